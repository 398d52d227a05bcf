"""Sound models, made once, from which damaged ones are copied."""

from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import RobertaConfig, RobertaForMaskedLM

import hf_linear_attn as hla
from hf_linear_attn.models.lra import LraForSequenceClassification
from hf_linear_attn.training.lra.model_setup import build_lra_config
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.suite import read_runs
from hf_linear_attn.training.lra.tasks import TASKS
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.recipes.lra_recipe import CONFIGS
from tests.recipes.lra_recipe import SETTINGS as LRA

SIZES: dict[str, Any] = {
    "vocab_size": 261,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}


def fill_store(store: Path) -> None:
    """Make the models `mlm`, `clm`, `classifier`, `sharded`, `lra` and `roberta`."""
    torch.manual_seed(0)
    text = ["one two three"]
    tokenizer = load_or_train_tokenizer(None, text, 261, 32)
    config = hla.CosformerConfig(**SIZES)
    classes = {"id2label": {0: "0", 1: "1"}, "label2id": {"0": 0, "1": 1}}
    models = {
        "mlm": hla.CosformerForMaskedLM(config),
        "classifier": hla.CosformerForSequenceClassification(
            hla.CosformerConfig(**SIZES, **classes)
        ),
        "roberta": RobertaForMaskedLM(RobertaConfig(**SIZES | {"max_position_embeddings": 34})),
    }
    for name, model in models.items():
        model.save_pretrained(store / name)
        tokenizer.save_pretrained(store / name)
    models["mlm"].save_pretrained(store / "sharded", max_shard_size="20KB")
    tokenizer.save_pretrained(store / "sharded")
    hla.CosformerForCausalLM(config).save_pretrained(store / "clm")
    load_or_train_tokenizer(None, text, 261, 32, causal=True).save_pretrained(store / "clm")
    (store / "lra.yaml").write_text(yaml.safe_dump(LRA))
    [run], _ = read_runs(["--config", str(store / "lra.yaml")], CONFIGS)
    lra = build_lra_config(run.model, PRESETS[run.lra.preset], TASKS[run.lra.task], 20)
    LraForSequenceClassification(lra).save_pretrained(store / "lra")
