"""Losses of the task heads: plain torch's, and targets that no loss could be right for."""

import copy

import pytest
import torch
from torch.nn import functional as F

from tests.errors import relative_error
from tests.models.task_models import HEADS, IS_DECODER, LABELS, batch, build, scores


@pytest.fixture(params=IS_DECODER)
def is_decoder(request):
    return request.param


CLASSES = torch.tensor([2, 0, 1, 1])
SEVERAL = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
NUMBERS = torch.tensor([0.5, -1, 2, 3])
PROBLEMS = {
    "single_label_classification": (LABELS, CLASSES, F.cross_entropy),
    "multi_label_classification": (LABELS, SEVERAL, F.binary_cross_entropy_with_logits),
    "regression": (1, NUMBERS, lambda x, y: F.mse_loss(x.flatten(), y.flatten())),
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_sequence_classification_is_plain_torch_s_loss(variant, is_decoder, problem, named):
    count, labels, loss = PROBLEMS[problem]
    fields = {"num_labels": count, "problem_type": problem if named else None}
    model = build(variant, "SequenceClassification", is_decoder=is_decoder, **fields)
    ids = batch("SequenceClassification")["input_ids"]
    out = model(input_ids=ids, labels=labels)
    assert out.logits.shape == (4, count)
    assert out.loss.item() == pytest.approx(loss(out.logits, labels).item(), rel=1e-6)
    # Transformers' rule found it, and it is kept.
    assert model.config.problem_type == problem
    if problem != "multi_label_classification":
        column = model(input_ids=ids, labels=labels[:, None]).loss
        assert column.item() == pytest.approx(out.loss.item(), rel=1e-6)


def test_regression_of_several_numbers(is_decoder):
    fields = {"problem_type": "regression", "num_labels": 3}
    model = build("cosformer", "SequenceClassification", is_decoder=is_decoder, **fields)
    out = model(input_ids=batch("SequenceClassification")["input_ids"], labels=SEVERAL * 3)
    assert out.loss.item() == pytest.approx(F.mse_loss(out.logits, SEVERAL * 3).item(), rel=1e-6)


def test_token_classification_is_plain_torch_s_loss(variant, is_decoder):
    model = build(variant, "TokenClassification", is_decoder=is_decoder)
    inputs = batch("TokenClassification")
    out = model(**inputs)
    assert out.logits.shape == (4, 12, LABELS)
    flat = out.logits.flatten(0, 1), inputs["labels"].flatten()
    expected = F.cross_entropy(*flat)
    assert out.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    summed = F.cross_entropy(*flat, reduction="sum")
    for count in (7, torch.tensor(7)):
        found = model(**inputs, num_items_in_batch=count).loss
        assert found.item() == pytest.approx(summed.item() / 7, rel=1e-6)


def test_question_answering_is_plain_torch_s_loss(variant, is_decoder):
    model = build(variant, "QuestionAnswering", is_decoder=is_decoder)
    inputs = batch("QuestionAnswering")
    start, end = inputs["start_positions"], inputs["end_positions"]
    out = model(**inputs)
    expected = F.cross_entropy(out.start_logits, start) + F.cross_entropy(out.end_logits, end)
    assert out.loss.item() == pytest.approx(expected.item() / 2, rel=1e-6)
    inputs |= {"start_positions": start[:, None], "end_positions": end[:, None]}
    assert model(**inputs).loss.item() == pytest.approx(out.loss.item(), rel=1e-6)


def test_the_first_score_is_the_start_as_in_transformers(is_decoder):
    """Checkpoints of other models have their scores in this order."""
    model = build("cosformer", "QuestionAnswering", is_decoder=is_decoder)
    ids = batch("QuestionAnswering")["input_ids"]
    x, out = model.model(input_ids=ids).last_hidden_state, model(input_ids=ids)
    assert torch.allclose(out.start_logits, x @ model.qa_outputs.weight[0], atol=1e-5)
    assert torch.allclose(out.end_logits, x @ model.qa_outputs.weight[1], atol=1e-5)


def test_answers_past_the_end_of_the_row_are_no_targets(is_decoder):
    model = build("cosformer", "QuestionAnswering", is_decoder=is_decoder)
    inputs = batch("QuestionAnswering")
    inputs["start_positions"] = torch.tensor([0, 3, 12, 500])
    out = model(**inputs)
    start = F.cross_entropy(out.start_logits[:2], inputs["start_positions"][:2])
    end = F.cross_entropy(out.end_logits, inputs["end_positions"])
    assert out.loss.item() == pytest.approx((start + end).item() / 2, rel=1e-6)


PADS = {"input_ids": 77, "attention_mask": 0}


def test_pads_never_win_an_answer_and_change_nothing(variant, is_decoder):
    model = build(variant, "QuestionAnswering", is_decoder=is_decoder)
    inputs = batch("QuestionAnswering")
    plain = model(**inputs)
    for side, ends in (("left", (5, 0)), ("right", (0, 5))):
        wide = {k: F.pad(inputs[k], ends, value=v) for k, v in PADS.items()}
        shift = 5 if side == "left" else 0
        positions = {k: inputs[k] + shift for k in ("start_positions", "end_positions")}
        real = slice(shift, shift + 12)
        out = model(**wide, **positions)
        assert relative_error(scores(out)[:, real], scores(plain)) <= 1e-5
        assert out.loss.item() == pytest.approx(plain.loss.item(), rel=1e-5)
        for logits in (out.start_logits, out.end_logits):
            guess = logits.argmax(-1)
            assert bool(((guess >= shift) & (guess < shift + 12)).all())
        half = scores(copy.deepcopy(model).half()(**wide))
        pairs = half[:, :, None, 0] + half[:, None, :, 1]
        assert torch.isfinite(pairs).all()
        best = pairs.flatten(1).argmax(-1)
        for position in (best // 17, best % 17):
            assert bool(((position >= shift) & (position < shift + 12)).all())


def test_multiple_choice_is_plain_torch_s_loss_over_rows_alone(variant, is_decoder):
    model = build(variant, "MultipleChoice", is_decoder=is_decoder)
    inputs = batch("MultipleChoice")
    out = model(**inputs)
    assert out.logits.shape == (4, 3)
    assert out.loss.item() == pytest.approx(
        F.cross_entropy(out.logits, inputs["labels"]).item(), rel=1e-6
    )
    for row in range(4):
        for choice in range(3):
            alone = model(input_ids=inputs["input_ids"][row : row + 1, choice : choice + 1])
            assert relative_error(alone.logits[0], out.logits[row, choice][None]) <= 1e-4


def test_multiple_choice_takes_every_input_of_the_trunk(variant, is_decoder):
    model = build(variant, "MultipleChoice", is_decoder=is_decoder, type_vocab_size=2)
    ids = batch("MultipleChoice")["input_ids"]
    mask = torch.arange(12).expand(4, 3, 12) < torch.tensor([12, 9, 5])[:, None]
    inputs = {
        "attention_mask": mask.long(),
        "position_ids": torch.arange(12).expand(4, 3, 12) * 2,
        "token_type_ids": ids % 2,
    }
    found = model(input_ids=ids, **inputs)
    embeds = model.get_input_embeddings()(ids)
    again = model(inputs_embeds=embeds, **inputs)
    assert relative_error(again.logits, found.logits) <= 1e-6
    for name in inputs:
        fewer = {k: v for k, v in inputs.items() if k != name}
        assert relative_error(model(input_ids=ids, **fewer).logits, found.logits) > 1e-3, name
    short = {k: v[1:2, 2:, :5] for k, v in inputs.items()}
    alone = model(input_ids=ids[1:2, 2:, :5], **short)
    assert relative_error(alone.logits[0], found.logits[1, 2:]) <= 1e-4


ROWS, TOKENS, SPANS, CHOICES = HEADS


@pytest.mark.parametrize(
    ("head", "fields", "given", "message"),
    [
        (ROWS, {}, {"labels": torch.tensor([0, 1, 2, 3])}, "labels hold 3; accepted: 0 to 2"),
        (ROWS, {}, {"labels": torch.tensor([0, 1, 2, -1])}, "labels hold -1"),
        (ROWS, {}, {"labels": torch.tensor([0, 1, 2])}, "labels have shape"),
        (ROWS, {}, {"labels": torch.zeros(4, 3).long()}, "labels have shape"),
        (ROWS, {}, {"labels": torch.zeros(4)}, "labels have shape"),
        (ROWS, {}, {"labels": SEVERAL.bool()}, "must be float"),
        (ROWS, {}, {"labels": SEVERAL * -100}, "between 0 and 1"),
        (ROWS, {"num_labels": 1}, {"labels": torch.zeros(4, 3)}, r"\(4,\) or \(4, 1\)"),
        (ROWS, {"problem_type": "multi_label_classification"}, {"labels": SEVERAL.long()}, "float"),
        (ROWS, {"problem_type": "single_label_classification"}, {"labels": NUMBERS}, "integers"),
        (ROWS, {"problem_type": "regression"}, {"labels": NUMBERS}, r"accepted: \(4, 3\)"),
        (TOKENS, {}, {"labels": torch.zeros(4, 11).long()}, "labels have shape"),
        (TOKENS, {}, {"labels": torch.full((4, 12), 3)}, "labels hold 3"),
        (TOKENS, {}, {"labels": torch.zeros(4, 12)}, "integers"),
        (SPANS, {}, {"end_positions": None}, "give both"),
        (SPANS, {}, {"start_positions": torch.tensor([-1, 0, 0, 0])}, "below 0"),
        (SPANS, {}, {"end_positions": torch.full((4,), 12)}, "one at least must lie inside"),
        (SPANS, {}, {"end_positions": torch.zeros(4, 12).long()}, "must be integers of shape"),
        (SPANS, {}, {"end_positions": torch.zeros(4)}, "must be integers of shape"),
        (SPANS, {}, {"end_positions": torch.tensor([1, 1, 11, 1])}, r"end_positions\[2\] is 11"),
        (CHOICES, {}, {"labels": torch.tensor([0, 1, 2, 3])}, "labels hold 3"),
        (CHOICES, {}, {"labels": torch.zeros(4, 3).long()}, "labels have shape"),
        (CHOICES, {}, {"input_ids": torch.zeros(4, 12).long()}, "takes .batch, choices, seq"),
        (CHOICES, {}, {"position_ids": torch.arange(12)[None]}, "position_ids has shape"),
        (CHOICES, {}, {"inputs_embeds": torch.zeros(4, 3, 12, 32)}, "exactly one"),
    ],
)
def test_targets_that_fit_nothing_are_refused(head, fields, given, message):
    model = build("cosformer", head, **fields)
    inputs = batch(head)
    if head == SPANS:
        inputs["attention_mask"][2, 11] = 0
    with pytest.raises(ValueError, match=message):
        model(**{**inputs, **given})


@pytest.mark.parametrize("head", [ROWS, TOKENS])
def test_a_target_of_minus_100_does_not_count(head, is_decoder):
    model = build("cosformer", head, is_decoder=is_decoder)
    inputs = batch(head)
    few = inputs["labels"].clone()
    few[1:3] = -100
    kept = {k: v[[0, 3]] for k, v in inputs.items()}
    found = model(**{**inputs, "labels": few}).loss
    assert found.item() == pytest.approx(model(**kept).loss.item(), rel=1e-5)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_loss_is_taken_in_fp32(head, dtype, is_decoder):
    model = build("cosformer", head, is_decoder=is_decoder)
    inputs = batch(head)
    plain = model(**inputs).loss
    out = model.to(dtype)(**inputs)
    assert scores(out).dtype == dtype
    assert out.loss.dtype == torch.float32
    assert out.loss.item() == pytest.approx(plain.item(), rel=5e-2)
    out.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
