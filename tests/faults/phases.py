"""What a run is doing, told from its stack."""

from types import FrameType

STARTING = "starting"
# A phase and the functions of which one is on the stack; the first phase that fits is meant, so
# what is done on behalf of another thing stands before it.
_FUNCTIONS = {
    "sealing a checkpoint": ("write_checksums", "remove_old", "write_engine"),
    "writing a checkpoint": ("_save_checkpoint", "on_save"),
    "evaluation": ("evaluation_loop", "final_evaluation"),
    "training": ("_inner_training_loop", "train", "take_over"),
    "card and plots": ("finish",),
    "final save": ("save_model", "save_metrics", "_publish", "_train"),
    "tokenizer": ("load_or_train_tokenizer",),
    "dataset cache": ("from_generator", "map", "filter", "load_documents", "read_rows"),
    "preparation": ("prepare", "check", "build_model", "_build_trainer"),
}
PHASES = (STARTING, *_FUNCTIONS)


def phase_of(frame: FrameType | None) -> str:
    """The phase of a run.

    Args:
        frame: the innermost one.
    """
    functions = set()
    while frame is not None:
        functions.add(frame.f_code.co_name)
        frame = frame.f_back
    found = (phase for phase, names in _FUNCTIONS.items() if functions & set(names))
    return next(found, STARTING)
