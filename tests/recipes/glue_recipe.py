"""The classification recipe as a module, and settings under which it takes a second or two."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "glue.py"
SETTINGS = {
    "attention": "cosformer",
    "vocab_size": 261,
    "max_length": 32,
    "model": {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
        "initializer_range": 0.1,
    },
    "max_steps": 4,
    "per_device_train_batch_size": 4,
    "learning_rate": "1e-3",
    "logging_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_steps": 2,
    "use_cpu": True,
    "report_to": "none",
    "disable_tqdm": True,
    "ddp_find_unused_parameters": False,
}


def load_recipe():
    spec = importlib.util.spec_from_file_location("glue_recipe_program", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GLUE = load_recipe()
