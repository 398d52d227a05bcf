"""Recipes as modules, and settings under which it takes a second or two."""

import importlib.util
from pathlib import Path

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


def load_recipe(name):
    path = ROOT / "recipes" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_recipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MLM = load_recipe("mlm")
