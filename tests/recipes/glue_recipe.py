"""The classification recipe as a module, and settings under which it takes a second or two."""

import importlib.util
import json
from pathlib import Path

import torch
import yaml
from transformers import AutoModelForSequenceClassification

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


def run(config, folder, *extra) -> dict:
    GLUE.main([*config, "--output_dir", folder, *extra])
    return json.loads((Path(folder) / "all_results.json").read_text())


def weights(folder) -> dict[str, torch.Tensor]:
    return AutoModelForSequenceClassification.from_pretrained(folder).state_dict()


def without_model_fields(config) -> None:
    settings = {k: v for k, v in SETTINGS.items() if k != "model"} | {"data_dir": "glue"}
    Path("config.yaml").write_text(yaml.safe_dump(settings))
