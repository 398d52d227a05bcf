"""PEFT on our models: adapters without naming layers, what is refused, and what it costs."""

import subprocess
import sys

import peft
import pytest
import torch
from peft import (
    LoraConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
    get_peft_model,
    inject_adapter_in_model,
)
from peft.utils import constants
from transformers import Trainer, TrainingArguments

import hf_linear_attn as hla
from hf_linear_attn.models import LraConfig, LraForSequenceClassification
from hf_linear_attn.models.peft_defaults import tell_peft
from tests.conftest import TINY
from tests.models.task_models import batch, build

TASKS = {
    "SequenceClassification": "SEQ_CLS",
    "TokenClassification": "TOKEN_CLS",
    "QuestionAnswering": "QUESTION_ANS",
}
IDS = torch.arange(3, 17).reshape(2, 7)


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def adapted(model, task, **keywords):
    """With LoRA that names no layer and does something from the start."""
    return get_peft_model(model, LoraConfig(task_type=task, init_lora_weights=False, **keywords))


@pytest.fixture
def lora_decoder(make_decoder):
    return adapted(make_decoder(), "CAUSAL_LM").eval()


@pytest.mark.parametrize(
    "head",
    [
        "SequenceClassification",
        pytest.param("TokenClassification", marks=pytest.mark.slow),
        pytest.param("QuestionAnswering", marks=pytest.mark.slow),
    ],
)
def test_lora_needs_no_names(variant, head):
    """Queries and values of every layer, and the task's own head."""
    model = adapted(build(variant, head), TASKS[head])
    layers = {
        f"base_model.model.model.layers.{i}.self_attn.{part}.lora_{side}.default.weight"
        for i in (0, 1) for part in ("q_proj", "v_proj") for side in "AB"
    }  # fmt: skip
    own = {name for name in trained(model) if "modules_to_save.default" in name}
    assert trained(model) == layers | own
    head_parts = [p for n, p in build(variant, head).named_parameters() if "model." not in n]
    assert len(own) == len(head_parts)
    before = {name: p.clone() for name, p in model.named_parameters()}
    model(**batch(head)).loss.backward()
    with_gradient = {n for n, p in model.named_parameters() if p.grad is not None}
    assert with_gradient == trained(model)
    assert all(p.equal(before[name]) for name, p in model.named_parameters())


def test_lora_generates_and_merges(lora_decoder, decoder_kind):
    model = lora_decoder
    plain = model.get_base_model()
    with model.disable_adapter(), torch.no_grad():
        without = model(input_ids=IDS).logits
    with torch.no_grad():
        logits = model(input_ids=IDS).logits
    assert not torch.allclose(logits, without, atol=1e-2)
    keywords = {"input_ids": IDS, "max_new_tokens": 8, "do_sample": False, "min_new_tokens": 8}
    tokens = model.generate(**keywords)
    assert tokens.equal(model.generate(**keywords, use_cache=False))
    merged = model.merge_and_unload()
    assert type(merged) is type(plain)
    with torch.no_grad():
        torch.testing.assert_close(merged(input_ids=IDS).logits, logits, rtol=1e-4, atol=1e-4)
    assert merged.generate(**keywords).equal(tokens)


def test_an_adapter_is_saved_and_loaded(tmp_path, lora_decoder, make_decoder):
    lora_decoder.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(make_decoder(), tmp_path).eval()
    with torch.no_grad():
        assert loaded(input_ids=IDS).logits.equal(lora_decoder(input_ids=IDS).logits)


@pytest.mark.parametrize("name", ["IA3Config", "AdaLoraConfig", "OSFConfig"])
def test_other_adapters_need_no_names_either(name):
    extra = {"total_step": 10} if name == "AdaLoraConfig" else {}
    config = getattr(peft, name)(task_type="SEQ_CLS", **extra)
    model = get_peft_model(build("cosformer", "SequenceClassification"), config)
    model(**batch("SequenceClassification")).loss.backward()
    assert {n for n, p in model.named_parameters() if p.grad is not None} == trained(model)
    assert any("layers.1.self_attn.v_proj" in name for name in trained(model))


def test_lora_of_a_long_range_arena_classifier():
    trunk = hla.CosformerConfig(**TINY)
    model = LraForSequenceClassification(LraConfig(trunk=trunk, num_labels=3)).eval()
    model = adapted(model, "SEQ_CLS", modules_to_save=["head"])
    assert any("layers.1.self_attn.q_proj.lora_A" in name for name in trained(model))
    assert any("head.modules_to_save" in name for name in trained(model))


def test_an_adapter_put_inside_needs_no_names():
    """The way of Transformers' `add_adapter`, which wants a later PEFT than there is."""
    model = hla.CosformerForMaskedLM(hla.CosformerConfig(**TINY))
    model = inject_adapter_in_model(LoraConfig(), model)
    assert sum("self_attn.q_proj.lora_A" in name for name in trained(model)) == 2


def test_what_others_registered_is_kept(monkeypatch):
    table = constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    monkeypatch.setitem(table, "cosformer", ["o_proj"])
    tell_peft("cosformer")
    assert table["cosformer"] == ["o_proj"]
    model = adapted(hla.CosformerForMaskedLM(hla.CosformerConfig(**TINY)), None)
    assert all(".o_proj." in name for name in trained(model))


def test_norms_without_parameters_are_nobodys_default():
    """They have other names than Llama's, and some are no module that could be tuned."""
    hla.CosformerConfig(**TINY).to_dict()
    assert "cosformer" not in constants.TRANSFORMERS_MODELS_TO_LNTUNING_TARGET_MODULES_MAPPING


@pytest.mark.parametrize(
    ("head", "task"),
    [("CausalLM", "CAUSAL_LM"), ("Model", "FEATURE_EXTRACTION"), *TASKS.items()],
)
def test_prefix_tuning_is_refused_by_name(head, task):
    name = head if head == "Model" else "For" + head
    for heads in (2, 1):
        config = hla.SoftmaxConfig(**TINY, num_key_value_heads=heads)
        model = getattr(hla, "Softmax" + name)(config).eval()
        model = get_peft_model(model, PrefixTuningConfig(task_type=task, num_virtual_tokens=3))
        with pytest.raises(ValueError, match=r"take no prefix tuning.*Use LoRA"):
            model(input_ids=IDS)
    if head == "CausalLM":
        with pytest.raises(ValueError, match=r"take no prefix tuning.*Use LoRA"):
            model.generate(input_ids=IDS, max_new_tokens=2)


@pytest.mark.parametrize("kind", [PromptTuningConfig, PromptEncoderConfig])
def test_virtual_tokens_stand_before_the_text(kind, make_decoder):
    plain = make_decoder()
    model = get_peft_model(plain, kind(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()
    vectors = model.get_prompt(batch_size=2)

    def logits(ids, mask):
        embeds = torch.cat((vectors, plain.model.embed_tokens(ids)), 1)
        mask = torch.nn.functional.pad(mask, (3, 0), value=1)
        return plain(inputs_embeds=embeds, attention_mask=mask, use_cache=False).logits

    mask = torch.ones_like(IDS)
    mask[0, :2] = 0
    with torch.no_grad():
        found, wanted = model(input_ids=IDS, attention_mask=mask).logits, logits(IDS, mask)
        torch.testing.assert_close(found, wanted)
        keywords = {"attention_mask": mask, "min_new_tokens": 4, "max_new_tokens": 4}
        tokens = model.generate(input_ids=IDS, use_cache=False, do_sample=False, **keywords)
        ids = IDS
        for _ in range(4):
            scores = logits(ids, torch.nn.functional.pad(mask, (0, ids.shape[1] - 7), value=1))
            scores[..., plain.config.eos_token_id] = -torch.inf
            ids = torch.cat((ids, scores[:, -1:].argmax(-1)), 1)
    assert tokens.equal(ids)
    with pytest.raises(ValueError, match=r"virtual tokens into the cache again.*use_cache=False"):
        model.generate(input_ids=IDS, **keywords)


@pytest.mark.parametrize(
    ("head", "task"),
    [
        ("CausalLM", "CAUSAL_LM"),
        pytest.param("SequenceClassification", "SEQ_CLS", marks=pytest.mark.slow),
        pytest.param("MaskedLM", None, marks=pytest.mark.slow),
        pytest.param("TokenClassification", "TOKEN_CLS", marks=pytest.mark.slow),
        pytest.param("QuestionAnswering", "QUESTION_ANS", marks=pytest.mark.slow),
    ],
)
def test_trainer_trains_the_adapter_alone(tmp_path, head, task):
    """And knows of each head whether its loss is divided by the number of targets."""
    if head in TASKS:
        model, rows = build("cosformer", head), batch(head)
    else:
        model = getattr(hla, "CosformerFor" + head)(hla.CosformerConfig(**TINY))
        ids = torch.randint(3, 90, (4, 12))
        rows = {"input_ids": ids, "labels": ids}
    expected = model.accepts_loss_kwargs
    model = adapted(model, task)
    before = {name: p.clone() for name, p in model.named_parameters()}
    arguments = TrainingArguments(
        tmp_path, max_steps=1, learning_rate=0.1, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no", gradient_accumulation_steps=2, per_device_train_batch_size=2,
    )  # fmt: skip
    data = [{name: values[i] for name, values in rows.items()} for i in range(4)]
    trainer = Trainer(model, arguments, train_dataset=data)
    assert trainer.model_accepts_loss_kwargs == expected
    trainer.train()
    moved = {name for name, p in model.named_parameters() if not p.equal(before[name])}
    assert moved == trained(model)


FRESH = """
import sys
{first}
import hf_linear_attn as hla
assert ("peft" in sys.modules) == {peft_is_first}
model = hla.{model}(hla.{config}(**{fields}))
from peft import LoraConfig, PeftModel, get_peft_model
import torch
if {folder!r}:
    model = hla.{model}.from_pretrained({folder!r} + "/base")
    model = PeftModel.from_pretrained(model, {folder!r} + "/adapter").eval()
    ids = torch.arange(3, 17).reshape(2, 7)
    length = {{"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}}
    print(model.generate(input_ids=ids, **length).tolist())
else:
    print(sorted(get_peft_model(model, LoraConfig()).peft_config["default"].target_modules))
"""


def fresh(model, first="", folder=""):
    code = FRESH.format(
        first=first, peft_is_first=bool(first), model=type(model).__name__, folder=str(folder),
        config=type(model.config).__name__, fields=TINY,
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "import peft"])
def test_either_may_be_imported_first(first):
    """A model may even be there before PEFT is; and our import must not pay for PEFT's."""
    model = hla.LinearTransformerForCausalLM(hla.LinearTransformerConfig(**TINY))
    assert fresh(model, first) == "['q_proj', 'v_proj']"


@pytest.mark.slow
def test_an_adapter_generates_alike_in_a_fresh_process(tmp_path):
    plain = hla.CosformerForCausalLM(hla.CosformerConfig(**TINY)).eval()
    plain.save_pretrained(tmp_path / "base")
    model = adapted(plain, "CAUSAL_LM").eval()
    model.save_pretrained(tmp_path / "adapter")
    keywords = {"input_ids": IDS, "max_new_tokens": 8, "do_sample": False, "min_new_tokens": 8}
    wanted = model.generate(**keywords).tolist()
    assert wanted != plain.from_pretrained(tmp_path / "base").generate(**keywords).tolist()
    assert fresh(plain, folder=tmp_path) == str(wanted)
