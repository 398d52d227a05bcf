"""The runs that are disturbed: one of each recipe, on a small text of its own.

They are as short as a run can be that trains a tokenizer, fills a cache, evaluates, writes several
checkpoints and saves a model.
"""

import random
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from tests.recipes.glue_recipe import SETTINGS as GLUE_SETTINGS
from tests.recipes.mlm_recipe import SETTINGS
from tests.training.glue.official import glue_folder

VOWELS, CONSONANTS = "aeiou", "bdfgklmnprstv"
# Logs that do not fall on saves, dropout, more than one pass over the data.
TRAINING = {
    "vocab_size": 400,
    "max_steps": 16,
    "logging_steps": 3,
    "eval_steps": 5,
    "save_steps": 4,
    "output_dir": "run",
    "dataloader_num_workers": 0,
}


@dataclass(frozen=True)
class Trained:
    """A recipe with the command line of a run in the folder `run` of the current one.

    Attributes:
        recipe: mlm, clm or glue.
        argv: the command line.
        processes: that train together.
        engine: of several processes, as its launcher's file is called.
    """

    recipe: str
    argv: tuple[str, ...]
    processes: int = 1
    engine: str | None = None


def text(documents: int, seed: int = 0) -> str:
    """Documents of made-up words, so many that a tokenizer has something to learn."""
    choice = random.Random(seed)

    def word() -> str:
        syllables = choice.randint(1, 3)
        pairs = (choice.choice(CONSONANTS) + choice.choice(VOWELS) for _ in range(syllables))
        return "".join(pairs)

    words = [word() for _ in range(200)]
    lines = (" ".join(choice.choices(words, k=12)).capitalize() + "." for _ in range(documents))
    return "\n\n".join(lines) + "\n"


def masked(folder: Path) -> Trained:
    """Masked-LM pretraining that keeps its newest checkpoint only, and its best one."""
    more = {"save_total_limit": 1, "preprocessing_num_workers": 2}
    return _language_model("mlm", folder, more)


def causal(folder: Path) -> Trained:
    """Causal-LM pretraining that keeps every checkpoint."""
    return _language_model("clm", folder, {"prompts": ["Ba"], "max_new_tokens": 4})


def best_of(folder: Path) -> Trained:
    """Causal-LM pretraining whose first checkpoint is the best one, by the greatest loss."""
    more = {"eval_steps": 4, "load_best_model_at_end": True, "greater_is_better": True}
    return _language_model("clm", folder, more)


def classifier(folder: Path) -> Trained:
    """Training of a classifier on official files, with predictions of the test rows."""
    glue_folder(folder / "glue", train=24, dev=12)
    more = {"task": "mnli", "data_dir": str(folder / "glue"), "do_predict": True}
    settings = GLUE_SETTINGS | TRAINING | more | {"save_total_limit": 2}
    return _written("glue", folder, settings)


def shared(folder: Path) -> Trained:
    """Masked-LM pretraining on two processes."""
    more = {"per_device_train_batch_size": 2, "save_total_limit": 2}
    return replace(_language_model("mlm", folder, more), processes=2, engine="ddp-cpu")


RUNS = {"mlm": masked, "clm": causal, "glue": classifier}


def _language_model(recipe: str, folder: Path, more: dict) -> Trained:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(text(600))
    settings = SETTINGS | TRAINING | {"train_file": str(folder / "text.txt")} | more
    return _written(recipe, folder, settings)


def _written(recipe: str, folder: Path, settings: dict) -> Trained:
    file = folder / f"{recipe}.yaml"
    file.write_text(yaml.safe_dump(settings))
    return Trained(recipe, ("--config", str(file)))
