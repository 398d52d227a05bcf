"""The Long Range Arena recipe as a module, and settings under which it takes a second or two."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "recipes" / "configs" / "lra"
SETTINGS = {
    "task": "listops",
    "preset": "official",
    "max_length": 20,
    "listops_train": 60,
    "listops_validation": 20,
    "listops_test": 30,
    "listops_min_length": 4,
    "listops_max_length": 20,
    "listops_max_depth": 3,
    "listops_max_args": 4,
    "pathfinder_images": 40,
    "pathfinder_contour_length": 6,
    "generated_dir": "drawn",
    "model": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 8,
        "intermediate_size": 24,
    },
    "learning_rate": "1e-3",
    "warmup_steps": 1,
    "max_steps": 6,
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 10,
    "logging_steps": 1,
    "eval_steps": 2,
    "save_steps": 2,
    "save_total_limit": 5,
    "use_cpu": True,
    "disable_tqdm": True,
}


def load_recipe():
    path = ROOT / "recipes" / "lra.py"
    spec = importlib.util.spec_from_file_location("lra_recipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.CONFIGS = CONFIGS
    return module


LRA = load_recipe()
