"""Exported models in processes that lack the package."""

import json

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn.models.entry_file import CODE, ENTRY
from hf_linear_attn.models.lra import LraForSequenceClassification
from hf_linear_attn.models.lra_config import LraConfig
from tests.conftest import CAUSAL_VARIANTS, OWN, TINY, VARIANTS
from tests.models.exported import export, run_python, run_without_package, tiny_tokenizer
from tests.models.task_models import HEADS, auto_class, batch, build


def inputs(batch_size=2, length=12):
    ids = torch.randint(5, 100, (batch_size, length))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask}


def masked_lm(variant, **fields):
    torch.manual_seed(0)
    config_class, _, model_class = VARIANTS[variant]
    return model_class(config_class(**{**TINY, **OWN.get(variant, {}), **fields}))


def decoder(kind, **fields):
    torch.manual_seed(0)
    config_class, model_class, own = CAUSAL_VARIANTS[kind]
    return model_class(config_class(**{**TINY, **own, **fields}))


@pytest.mark.slow
def test_b32_an_exported_folder_needs_nothing_of_this_package(tmp_path):
    """Logits, tokenizer, pipelines, generation with a cache: masked and causal."""
    tokenizer = tiny_tokenizer()
    model = masked_lm("cosformer", cos_horizon=16)
    export(tmp_path / "masked", model, "AutoModelForMaskedLM", inputs(), tokenizer)
    model = decoder("cosformer", cos_horizon=32)
    export(tmp_path / "causal", model, "AutoModelForCausalLM", inputs(), tokenizer)
    said = run_without_package(tmp_path / "masked", tmp_path / "causal", home=tmp_path / "home")
    assert said.count("equal") == 2


@pytest.mark.slow
def test_b32_every_variant_head_and_dtype(tmp_path):
    """Side by side in one process, whose folders all bring operators and cache layers."""
    folders = []

    def add(name, *given):
        folders.append(tmp_path / name)
        export(folders[-1], *given)

    tokenizer = tiny_tokenizer()
    for name, (_, base_class, _) in VARIANTS.items():
        model = masked_lm(name, position_embedding_type="lrpe", tie_word_embeddings=False)
        add(f"{name}-masked", model, "AutoModelForMaskedLM", inputs(), tokenizer)
        add(f"{name}-bf16", masked_lm(name).bfloat16(), "AutoModelForMaskedLM", inputs())
        torch.manual_seed(0)
        base = base_class(model.config)
        add(f"{name}-base", base, "AutoModel", inputs())
        for head in HEADS:
            given = {k: v for k, v in batch(head).items() if k in ("input_ids", "attention_mask")}
            add(f"{name}-{head}", build(name, head), auto_class(head).__name__, given)
    for name in CAUSAL_VARIANTS:
        add(f"{name}-causal", decoder(name), "AutoModelForCausalLM", inputs(), tokenizer)
    fields = {**TINY, **OWN["nystrom"]}
    config = LraConfig(trunk=hla.NystromConfig(**fields), num_labels=3, pooling="mean")
    lra = LraForSequenceClassification(config)
    add("lra", lra, "AutoModelForSequenceClassification", inputs())
    said = run_without_package(*folders, home=tmp_path / "home")
    assert said.count("equal") == len(folders) == 5 * (3 + len(HEADS)) + len(CAUSAL_VARIANTS) + 1


NOT_YET_IMPORTED = """
import json, os, sys, torch
from transformers import AutoModelForMaskedLM

folder = sys.argv[1]
[expected] = torch.load(folder + "/expected.pt").values()
assert "hf_linear_attn" not in sys.modules
model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True).eval()
assert type(model).__module__ == "hf_linear_attn.models.cosformer", type(model)
assert torch.equal(model(**expected["inputs"]).logits, expected["logits"])
model.save_pretrained("again")
type(model)(type(model.config)(**json.loads(sys.argv[2]))).save_pretrained("new")
print(json.dumps([sorted(os.listdir(name)) for name in ("again", "new")]))
"""


@pytest.mark.slow
def test_an_installed_package_is_used_before_it_is_imported(tmp_path):
    export(tmp_path / "m", masked_lm("cosformer"), "AutoModelForMaskedLM", inputs())
    fields = json.dumps(TINY)
    again, new = run_python(NOT_YET_IMPORTED, tmp_path / "m", fields, home=tmp_path)
    assert [name for name in again if name.endswith(".py")] == [f"{CODE}.py", f"{ENTRY}.py"]
    assert new == ["config.json", "model.safetensors"]
