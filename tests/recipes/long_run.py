"""Runs of 16 steps in processes of their own: long enough to be stopped and to go on."""

import json
from pathlib import Path

import yaml

from tests.recipes.mlm_recipe import SETTINGS, load_recipe

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def write_config(folder: Path, **more) -> Path:
    """A config with a checkpoint after 8 steps and its text, 40 documents, beside it; its file."""
    documents = (
        " ".join(WORDS[(i * 7 + j * (i % 3 + 1)) % 10] for j in range(12)) + "." for i in range(40)
    )
    (folder / "text.txt").write_text("\n\n".join(documents))
    config = SETTINGS | {
        "train_file": str(folder / "text.txt"),
        "output_dir": "run",
        "max_steps": 16,
        "eval_steps": 8,
        "save_steps": 8,
        **more,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder / "config.yaml"


def train(recipe: str, argv: list[str]) -> None:
    """Run a recipe."""
    load_recipe(recipe).main(argv)


def history(folder: Path, key: str) -> dict[int, float]:
    """What was logged under a name in the run of a folder, by step."""
    state = json.loads((folder / "run" / "trainer_state.json").read_text())
    return {e["step"]: e[key] for e in state["log_history"] if key in e}
