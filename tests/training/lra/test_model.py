"""The classifiers: head, padding, towers, loss, saving."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForSequenceClassification

import hf_linear_attn as hla
from hf_linear_attn.models import CONFIG_CLASSES
from hf_linear_attn.models.lra import LraForSequenceClassification
from hf_linear_attn.models.lra_config import LraConfig
from hf_linear_attn.training.arguments import ModelArguments
from hf_linear_attn.training.flops import has_formula, training_flops
from hf_linear_attn.training.lra.model_setup import build_lra_config, build_lra_model
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.tasks import TASKS
from hf_linear_attn.training.lra.trainer import LraCollator

LENGTH = 12
FIELDS = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "norm_position": "pre", "final_norm": True, "embedding_norm": False,
}  # fmt: skip
KINDS = [(preset.name, task) for preset in PRESETS.values() for task in preset.tasks]


def model_of(preset="official", task="listops", attention="cosformer", **fields):
    torch.manual_seed(0)
    args = ModelArguments(attention=attention, model={**FIELDS, **fields})
    config = build_lra_config(args, PRESETS[preset], TASKS[task], LENGTH)
    return build_lra_model(args, config).eval()


def batch(task="listops", rows=3, length=LENGTH):
    torch.manual_seed(1)
    shape = (rows, 2, length) if TASKS[task].towers == 2 else (rows, length)
    # Pixels include 0.
    ids = torch.randint(0 if TASKS[task].symbols.pad is None else 1, 16, shape)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize(("preset", "task"), KINDS)
def test_b41_every_parameter_of_every_kind_takes_part_in_the_loss(preset, task):
    model = model_of(preset, task).train()
    model(**batch(task), labels=torch.tensor([0, 1, 0])).loss.backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


@pytest.mark.parametrize("attention", CONFIG_CLASSES)
def test_every_attention_trains_under_the_head(attention):
    model = model_of(attention=attention)
    assert torch.isfinite(model(**batch(), labels=torch.tensor([0, 9, 3])).loss)


def test_the_official_head_reads_a_zero_vector_before_the_sequence():
    model = model_of()
    assert model.cls.abs().sum() == 0
    assert [layer.weight.shape for layer in model.head.hidden] == [(24, 16)]
    assert model.head.out_proj.weight.shape == (10, 24)
    inputs = batch()
    seen = {}

    def look(module, args, kwargs):
        seen.update(kwargs)

    handle = model.model.register_forward_pre_hook(look, with_kwargs=True)
    before = model(**inputs).logits
    handle.remove()
    assert seen["inputs_embeds"].shape == (3, LENGTH + 1, 16)
    assert seen["inputs_embeds"][:, 0].abs().sum() == 0
    with torch.no_grad():
        model.cls.add_(1.0)
    assert not torch.allclose(model(**inputs).logits, before)


def test_heads_of_the_towers():
    official, nystromformer = model_of(task="retrieval"), model_of("nystromformer", "retrieval")
    assert [layer.weight.shape for layer in official.head.hidden] == [(24, 32), (12, 24)]
    assert [layer.weight.shape for layer in nystromformer.head.hidden] == [(24, 64)]
    assert official.config.pooling == "first"
    assert official.cls is None


@pytest.mark.parametrize("preset", ["official", "nystromformer"])
def test_the_head_reads_the_towers_in_the_published_order(preset):
    model, inputs = model_of(preset, "retrieval"), batch("retrieval")
    seen = []
    model.head.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model(**inputs)
    a, b = (model._encode(inputs["input_ids"][:, tower], None)[0] for tower in (0, 1))
    parts = [a, b] if preset == "official" else [a, b, a * b, a - b]
    assert torch.allclose(seen[0], torch.cat(parts, dim=-1), atol=1e-6)
    assert not torch.allclose(a, b, atol=1e-3)


def test_the_towers_do_not_see_each_other_and_share_their_weights():
    model = model_of(task="retrieval")
    inputs = batch("retrieval")
    a, b = model._features(**inputs)[0].split(16, dim=-1)
    changed = inputs["input_ids"].clone()
    changed[:, 1] = 3
    a_again, b_again = model._features(changed, inputs["attention_mask"])[0].split(16, dim=-1)
    assert torch.allclose(a, a_again, atol=1e-6)
    assert not torch.allclose(b, b_again)
    swapped, _ = model._features(inputs["input_ids"].flip(1), inputs["attention_mask"])[0].split(
        16, -1
    )
    assert torch.allclose(swapped, b, atol=1e-6)


@pytest.mark.parametrize("task", ["listops", "retrieval"])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("attention", ["cosformer", "softmax", "linear_transformer"])
def test_padding_changes_nothing(preset, task, attention):
    model = model_of(preset, task, attention)
    short = batch(task, length=7)
    longer = {name: torch.nn.functional.pad(value, (0, 5)) for name, value in short.items()}
    longer["input_ids"][..., 7:] = 4
    assert torch.allclose(model(**short).logits, model(**longer).logits, atol=1e-5)


def test_pixel_0_is_a_symbol_and_not_padding():
    collator = LraCollator(TASKS["image"].symbols.pad, 1)
    row = {"input_ids": [0, 0, 5, 0], "labels": 1}
    made = collator([row, row])
    assert made["attention_mask"].all()
    model = model_of(task="image")
    assert model.model.embed_tokens.weight[0].abs().sum() > 0
    assert model.config.encoder.pad_token_id is None
    black, grey = batch("image"), batch("image")
    black["input_ids"][:, 3] = 0
    grey["input_ids"][:, 3] = 7
    # As a pad it would be the same as nothing; as a symbol it counts.
    masked = {**black, "attention_mask": black["attention_mask"].clone()}
    masked["attention_mask"][:, 3] = 0
    logits = [model(**inputs).logits for inputs in (black, grey, masked)]
    assert not torch.allclose(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])


def test_the_collator_pads_by_the_mask():
    made = LraCollator(0, 2)([
        {"input_ids": [1, 2, 3], "input_ids_2": [4], "labels": 0},
        {"input_ids": [5], "input_ids_2": [6, 7], "labels": 1},
    ])  # fmt: skip
    assert made["input_ids"].tolist() == [[[1, 2, 3], [4, 0, 0]], [[5, 0, 0], [6, 7, 0]]]
    assert made["attention_mask"].sum(-1).tolist() == [[3, 1], [1, 2]]
    assert made["labels"].tolist() == [0, 1]


def test_sines_stand_beside_embeddings_of_their_own_size():
    model = model_of(position_embedding_type="sinusoidal")
    inputs = batch()
    inner = {}
    model.model.layers[0].register_forward_pre_hook(lambda m, args: inner.update(x=args[0]))
    model(**inputs)
    tokens = model.model.embed_tokens(inputs["input_ids"])
    sines = model.model.embeddings.embed_positions(torch.arange(LENGTH + 1)[None])
    assert torch.allclose(inner["x"][:, 1:], tokens + sines[:, 1:], atol=1e-5)
    assert torch.allclose(inner["x"][:, 0], sines[:, 0].expand(3, -1), atol=1e-6)


def test_initial_weights_are_the_presets():
    official = model_of(hidden_size=128, intermediate_size=256)
    tokens = official.model.embed_tokens.weight.detach()
    assert tokens[1:].std() == pytest.approx(1, abs=0.1)
    assert tokens[0].abs().sum() == 0
    query = official.model.layers[0].self_attn.q_proj
    assert query.weight.abs().max().item() == pytest.approx((6 / 256) ** 0.5, rel=0.01)
    assert query.bias.abs().sum() == 0
    other = model_of("nystromformer", hidden_size=128, intermediate_size=256)
    assert other.model.embed_tokens.weight[1:].std().item() == pytest.approx(0.02, rel=0.1)
    query = other.model.layers[0].self_attn.q_proj
    assert query.weight.abs().max().item() == pytest.approx(128**-0.5, rel=0.01)


@pytest.mark.parametrize(
    ("preset", "task"), [("official", "listops"), ("nystromformer", "retrieval")]
)
def test_saved_and_loaded_bit_for_bit(tmp_path, preset, task):
    model = model_of(preset, task)
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):
            weight.fill_(0.01 * (number + 1))
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert isinstance(loaded, LraForSequenceClassification)
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    config = AutoConfig.from_pretrained(tmp_path)
    assert (config.task, config.preset) == (task, preset)
    assert isinstance(config.trunk, hla.CosformerConfig)
    assert config.id2label[1] == TASKS[task].classes[1]
    inputs = batch(task)
    assert torch.equal(loaded.eval()(**inputs).logits, model(**inputs).logits)


def test_b39_parts_of_a_batch_add_up_to_the_whole():
    model, inputs = model_of(), batch(rows=8)
    labels = torch.arange(8)
    whole = model(**inputs, labels=labels).loss
    whole.backward()
    expected = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    parts = []
    for rows in (slice(0, 2), slice(2, 8)):
        part = {name: value[rows] for name, value in inputs.items()}
        loss = model(**part, labels=labels[rows], num_items_in_batch=torch.tensor(8)).loss
        loss.backward()
        parts.append(loss)
    assert torch.allclose(sum(parts), whole, rtol=1e-6)
    for name, weight in model.named_parameters():
        assert torch.allclose(weight.grad, expected[name], rtol=1e-4, atol=1e-7), name


def test_the_trainer_sees_that_the_loss_counts_examples(tmp_path):
    from transformers import Trainer, TrainingArguments

    trainer = Trainer(model_of(), TrainingArguments(str(tmp_path), use_cpu=True, report_to="none"))
    assert trainer.model_accepts_loss_kwargs


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokenizer_name": "gpt2"}, "tokenizer_name: the tasks .* have fixed tables"),
        ({"vocab_size": 300}, "vocab_size: the tasks .* have fixed tables"),
        ({"model": {"vocab_size": 300}}, "the 16 ids of its fixed table of ListOps symbols"),
        ({"model": {"max_position_embeddings": LENGTH}}, r"examples have up to 13 positions"),
        ({"model": {"cos_horizon": 5}}, r"cos_horizon of the model is 5"),
        ({"attention": "cosfromer"}, "did you mean 'cosformer'"),
        ({"model": {"is_decoder": True}}, "is_decoder"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(changed, message):
    args = ModelArguments(**{"attention": "cosformer", **changed})
    with pytest.raises(ValueError, match=message):
        build_lra_config(args, PRESETS["official"], TASKS["listops"], LENGTH)


def test_softmax_drops_attention_weights_as_published_and_linear_attention_has_none():
    assert model_of(attention="softmax").config.encoder.attention_probs_dropout_prob == 0.1
    image = model_of(task="image", attention="softmax")
    assert image.config.encoder.attention_probs_dropout_prob == 0.2
    assert model_of().config.encoder.attention_probs_dropout_prob == 0.0
    own = model_of(attention="softmax", attention_probs_dropout_prob=0.3)
    assert own.config.encoder.attention_probs_dropout_prob == 0.3


def test_a_saved_model_of_another_task_preset_or_kind_is_refused(tmp_path):
    model_of().save_pretrained(tmp_path / "listops")
    args = ModelArguments(model_name_or_path=str(tmp_path / "listops"))
    assert build_lra_config(args, PRESETS["official"], TASKS["listops"], LENGTH).task == "listops"
    with pytest.raises(ValueError, match="has the task listops, not text"):
        build_lra_config(args, PRESETS["official"], TASKS["text"], LENGTH)
    with pytest.raises(ValueError, match="has the preset official, not nystromformer"):
        build_lra_config(args, PRESETS["nystromformer"], TASKS["listops"], LENGTH)
    with pytest.raises(ValueError, match="up to 41 positions"):
        build_lra_config(args, PRESETS["official"], TASKS["listops"], 40)
    hla.CosformerForMaskedLM(hla.CosformerConfig(**FIELDS)).save_pretrained(tmp_path / "mlm")
    args = ModelArguments(model_name_or_path=str(tmp_path / "mlm"))
    with pytest.raises(ValueError, match="is of type cosformer; expected a model that"):
        build_lra_config(args, PRESETS["official"], TASKS["listops"], LENGTH)


def test_another_number_of_towers_and_unknown_words_are_refused():
    with pytest.raises(ValueError, match=r"takes \(batch, seq\)"):
        model_of()(**batch("retrieval"))
    with pytest.raises(ValueError, match=r"takes \(batch, 2, seq\)"):
        model_of(task="retrieval")(**batch())
    with pytest.raises(ValueError, match="unknown argument 'token_type_ids'"):
        model_of()(**batch(), token_type_ids=None)
    with pytest.raises(ValueError, match="labels hold 10"):
        model_of()(**batch(), labels=torch.tensor([0, 1, 10]))
    with pytest.raises(ValueError, match="pooling: got 'last'"):
        LraConfig(pooling="last")


@pytest.mark.parametrize(("preset", "task"), KINDS)
def test_the_work_is_what_pytorch_counts(preset, task):
    model, inputs = model_of(preset, task), batch(task)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**inputs)
    lengths = inputs["attention_mask"].flatten(0, -2).sum(-1)
    assert has_formula(model.config)
    assert training_flops(model, lengths).item() == 3 * counter.get_total_flops()
