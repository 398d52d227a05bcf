"""Old checkpoints make room for new ones, and never a complete one for one that is not.

Trainer goes by the time of a folder's last change, which a removal that was killed, or a copy,
changes; or by the steps, of which an interrupted save may have the most.
"""

import shutil
from pathlib import Path

from transformers.utils import logging

from hf_linear_attn.training.checkpoints import (
    TRAINER_STATE_FILE,
    all_checkpoints,
    checkpoint_steps,
    unfinished_checkpoints,
)
from hf_linear_attn.training.checksums import CHECKSUMS_FILE

logger = logging.get_logger(__name__)


def remove_old_checkpoints(folder: Path, limit: int | None, steps: int, best: str | None) -> None:
    """Keep so many complete checkpoints, the newest ones; those that are not complete go, too.

    A warning says what should go and stays: a link, behind which somebody keeps a checkpoint
    elsewhere, or a folder that cannot be removed.

    Args:
        folder: of the run.
        limit: as Trainer's `save_total_limit`; None or 0 keeps all, as there.
        steps: of the checkpoint that was just saved, which stays.
        best: path of the best checkpoint, which stays.
    """
    if not limit or limit < 0:
        return
    unfinished = unfinished_checkpoints(folder)
    complete = [path for path in all_checkpoints(folder) if path not in unfinished]
    names = {f"checkpoint-{steps}", *([] if best is None else [Path(best).name])}
    kept = {path for path in complete if path.name in names}
    for path in sorted(complete, key=checkpoint_steps, reverse=True):
        if len(kept) < limit:
            kept.add(path)
    for path in sorted({*complete, *unfinished} - kept, key=checkpoint_steps):
        _remove(path)


def _remove(checkpoint: Path) -> None:
    if checkpoint.is_symlink():
        logger.warning_once(
            f"{checkpoint} is more than save_total_limit asks for, and is left: it is a link to "
            f"{checkpoint.resolve()}, which is not this run's to remove"
        )
        return
    try:
        # Without the two it counts as unfinished, should its removal be cut off. Between the two it
        # is complete, as one that never had checksums.
        (checkpoint / CHECKSUMS_FILE).unlink(missing_ok=True)
        (checkpoint / TRAINER_STATE_FILE).unlink(missing_ok=True)
        shutil.rmtree(checkpoint)
    except OSError as error:
        logger.warning(
            f"{checkpoint} is more than save_total_limit asks for, and is left, maybe in part: "
            f"{error.strerror or error}"
        )
