"""What the heads of all tasks promise: trunk, outputs, packing, saving, loading, resizing."""

import copy
import logging

import pytest
import torch
from transformers import AutoModel, DataCollatorWithFlattening

from tests.conftest import TINY, VARIANTS
from tests.errors import relative_error
from tests.models.task_models import (
    HEADS,
    IS_DECODER,
    LABELS,
    auto_class,
    batch,
    build,
    scores,
    task_class,
)

HEAD_PARAMETERS = {
    "SequenceClassification": {"classifier.dense", "classifier.out_proj"},
    "TokenClassification": {"classifier"},
    "QuestionAnswering": {"qa_outputs"},
    "MultipleChoice": {"classifier.dense", "classifier.out_proj"},
}


@pytest.fixture(params=HEADS)
def head(request):
    return request.param


@pytest.fixture(params=IS_DECODER)
def is_decoder(request):
    return request.param


def inputs_of(head):
    return {k: v for k, v in batch(head).items() if k in ("input_ids", "attention_mask")}


def test_b41_every_parameter_reaches_the_loss(variant, head, is_decoder):
    model = build(variant, head, is_decoder=is_decoder, type_vocab_size=2).train()
    model(**batch(head)).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        # Of the head no parameter's gradient vanishes either: no bias that a softmax cancels.
        if not name.startswith("model."):
            assert parameter.grad.norm() > 1e-4, name


def test_the_trainer_is_told_which_losses_are_normalised(variant, head, is_decoder):
    model = build(variant, head, is_decoder=is_decoder)
    assert model.accepts_loss_kwargs is (head != "QuestionAnswering")


def test_outputs_in_every_form(variant, head, is_decoder):
    model = build(variant, head, is_decoder=is_decoder)
    inputs = batch(head)
    out = model(**inputs, output_hidden_states=True)
    assert len(out.hidden_states) == 3
    assert model(**inputs).hidden_states is None
    assert "loss" not in model(**inputs_of(head))
    plain = model(**inputs, return_dict=False)
    assert torch.equal(plain[0], out.loss)
    assert len(plain) == (3 if head == "QuestionAnswering" else 2)
    assert torch.equal(plain[1], out[1])
    tuples = build(variant, head, is_decoder=is_decoder, return_dict=False)
    assert torch.equal(tuples(**inputs)[1], out[1])
    assert torch.equal(tuples(**inputs, return_dict=True)[1], out[1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"atention_mask": 1}, "Did you mean 'attention_mask'"),
        ({"output_atentions": True}, "output_attentions"),
        ({"use_cache": True}, "keeps no cache"),
        ({"cache": object()}, "keeps no cache"),
        ({"input_ids": None}, "exactly one"),
    ],
)
def test_what_cannot_be_honoured_is_refused(head, is_decoder, given, message):
    model = build("cosformer", head, is_decoder=is_decoder)
    with pytest.raises(ValueError, match=message):
        model(**{**inputs_of(head), **given})


def test_a_loss_of_answers_takes_no_count_of_targets():
    head = "QuestionAnswering"
    with pytest.raises(ValueError, match="num_items_in_batch"):
        build("cosformer", head)(**batch(head), num_items_in_batch=4)


def packed():
    documents = [torch.randint(3, 90, (n,)) for n in (5, 1, 9)]
    features = [{"input_ids": d, "labels": d % LABELS} for d in documents]
    collator = DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True)
    return documents, collator(features)


@pytest.mark.parametrize("keyword", ["seq_idx", "cu_seq_lens_q", "position_ids"])
def test_packed_documents_have_labels_of_tokens_only(head, is_decoder, keyword):
    model = build("cosformer", head, is_decoder=is_decoder)
    documents, pack = packed()
    inputs = {"input_ids": pack["input_ids"], keyword: pack[keyword]}
    if keyword == "cu_seq_lens_q":
        inputs["cu_seq_lens_k"] = pack["cu_seq_lens_k"]
    if head == "TokenClassification":
        found = model(**inputs).logits[0].split([len(d) for d in documents])
        for document, logits in zip(documents, found, strict=True):
            alone = model(input_ids=document[None]).logits[0]
            assert relative_error(logits, alone) <= 1e-5
        return
    if head == "MultipleChoice":
        choices = {"input_ids", "position_ids"} & inputs.keys()
        inputs |= {name: inputs[name][:, None] for name in choices}
    with pytest.raises(ValueError, match="one answer a row, but got packed documents"):
        model(**inputs)


def test_the_caller_s_config_is_never_changed(variant, head, is_decoder):
    config = VARIANTS[variant][0](**TINY, num_labels=LABELS, is_decoder=is_decoder)
    before = copy.deepcopy(config.to_dict())
    model = task_class(variant, head)(config)
    model(**batch(head))
    assert config.to_dict() == before
    assert model.config is model.model.config


def test_b28_a_saved_classifier_comes_back_bit_equal(variant, head, is_decoder, tmp_path):
    names = {0: "no", 1: "maybe", 2: "yes"}
    fields = {"id2label": names, "pooling": "mean", "classifier_dropout": 0.3}
    model = build(variant, head, is_decoder=is_decoder, **fields)
    inputs = batch(head)
    wanted = model(**inputs)
    model.save_pretrained(tmp_path)
    for loader in (task_class(variant, head), auto_class(head)):
        loaded, info = loader.from_pretrained(tmp_path, output_loading_info=True)
        assert type(loaded) is task_class(variant, head)
        assert not any(info.values()), info
        assert (loaded.config.id2label, loaded.config.num_labels) == (names, 3)
        assert (loaded.config.pooling, loaded.config.classifier_dropout) == ("mean", 0.3)
        out = loaded.eval()(**inputs)
        assert torch.equal(out.loss, wanted.loss)
        assert torch.equal(scores(out), scores(wanted))


def test_b28_a_trunk_becomes_a_classifier_and_only_the_head_is_new(variant, head, tmp_path):
    _, base_class, masked_lm_class = VARIANTS[variant]
    for source_class in (base_class, masked_lm_class):
        source = source_class(VARIANTS[variant][0](**TINY))
        folder = tmp_path / source_class.__name__
        source.save_pretrained(folder)
        model, info = auto_class(head).from_pretrained(
            folder, num_labels=5, output_loading_info=True
        )
        missing = {name.rsplit(".", 1)[0] for name in info["missing_keys"]}
        assert missing == HEAD_PARAMETERS[head]
        assert all(name.startswith("lm_head") for name in info["unexpected_keys"])
        assert not info["mismatched_keys"]
        trunk = getattr(source, "model", source).state_dict()
        assert model.model.state_dict().keys() == trunk.keys()
        for name, tensor in trunk.items():
            assert torch.equal(model.model.state_dict()[name], tensor), name
        fresh = [p for n, p in model.named_parameters() if not n.startswith("model.")]
        for parameter in fresh:
            size = 0 if parameter.ndim == 1 else TINY["initializer_range"]
            assert parameter.std().item() == pytest.approx(size, rel=0.4)
        assert model.config.num_labels == 5


def test_a_classifier_s_trunk_can_be_taken_back(variant, head, is_decoder, tmp_path):
    model = build(variant, head, is_decoder=is_decoder)
    model.save_pretrained(tmp_path)
    base = AutoModel.from_pretrained(tmp_path)
    for name, tensor in base.state_dict().items():
        assert torch.equal(tensor, model.model.state_dict()[name]), name


@pytest.mark.parametrize("size", [105, 90])
def test_b31_resizing_the_vocabulary_leaves_the_head_alone(variant, head, is_decoder, size):
    model = build(variant, head, is_decoder=is_decoder)
    inputs = inputs_of(head)
    wanted = scores(model(**inputs))
    model.resize_token_embeddings(size)
    assert model.get_input_embeddings().weight.shape[0] == size
    assert model.config.vocab_size == model.model.config.vocab_size == size
    assert torch.equal(scores(model(**inputs)), wanted)


def test_b47_gradient_checkpointing_changes_memory_only(variant, head, is_decoder, caplog):
    inputs = batch(head)
    losses, gradients = [], []
    for checkpointing in (False, True):
        model = build(variant, head, is_decoder=is_decoder, hidden_dropout_prob=0.0).train()
        if checkpointing:
            model.activation_checkpointing_enable()
        with caplog.at_level(logging.WARNING):
            loss = model(**inputs).loss
        loss.backward()
        losses.append(loss)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.equal(*losses)
    assert relative_error(*gradients) <= 1e-6
    assert "use_cache" not in caplog.text


@pytest.mark.parametrize("rate", [None, 0.25])
def test_dropout_of_the_head(head, is_decoder, monkeypatch, rate):
    fields = {"hidden_dropout_prob": 0.125, "classifier_dropout": rate}
    model = build("cosformer", head, is_decoder=is_decoder, **fields).train()
    rates = []
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p, *a: (rates.append(p), x)[1])
    model(**inputs_of(head))
    count = {"QuestionAnswering": 0, "TokenClassification": 1}.get(head, 1 if is_decoder else 2)
    assert rates == [0.125] * 5 + [0.125 if rate is None else rate] * count


def test_a_classifier_without_classes_is_refused():
    for head in ("SequenceClassification", "TokenClassification"):
        with pytest.raises(ValueError, match="num_labels is 0"):
            build("cosformer", head, num_labels=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pooling": "middle"}, "pooling"),
        ({"classifier_dropout": 1.0}, r"classifier_dropout is 1.0; it must lie in \[0, 1\)"),
        ({"classifier_dropout": -0.1}, "classifier_dropout is -0.1"),
    ],
)
def test_fields_of_the_heads_are_checked(make_config, fields, message):
    with pytest.raises(ValueError, match=message):
        make_config(**fields)
