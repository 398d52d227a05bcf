"""The masked-LM recipe as a module, and settings under which it takes a second or two."""

import importlib.util
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "mlm.py"
SETTINGS = {
    "attention": "cosformer",
    "vocab_size": 261,
    "model": {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 16,
    },
    "block_size": 16,
    "validation_fraction": 0.2,
    "max_steps": 6,
    "per_device_train_batch_size": 4,
    "learning_rate": "1e-3",
    "logging_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_steps": 3,
    "use_cpu": True,
    "report_to": "none",
    "disable_tqdm": True,
    "ddp_find_unused_parameters": False,
}


WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def write_text(file):
    """40 documents of 12 words."""
    file.write_text(
        "\n\n".join(
            " ".join(WORDS[(i * 7 + j * (i % 3 + 1)) % 10] for j in range(12)) + "."
            for i in range(40)
        )
    )


def write_long_run(folder):
    """A config of 16 steps with a checkpoint after 8, its text beside it; returns its file."""
    write_text(folder / "text.txt")
    config = SETTINGS | {
        "train_file": str(folder / "text.txt"),
        "output_dir": "run",
        "max_steps": 16,
        "eval_steps": 8,
        "save_steps": 8,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder / "config.yaml"


def load_recipe():
    spec = importlib.util.spec_from_file_location("mlm_recipe", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MLM = load_recipe()
