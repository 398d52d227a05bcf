"""Losses of the task heads under the Trainer: accumulation equals one batch, evaluation runs."""

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from tests.conftest import VARIANTS
from tests.models.task_models import HEADS, IS_DECODER, batch, build

ROWS = 8


def data(head):
    inputs = batch(head, rows=ROWS)
    return [{k: v[i] for k, v in inputs.items()} for i in range(ROWS)], inputs


class Gradients(TrainerCallback):
    """Keeps the norm of the gradient of each optimiser step."""

    def __init__(self):
        self.norms = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.norms.append(norm_of_gradient(model))


def norm_of_gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()


def trained_model(head, is_decoder, variant="cosformer"):
    return build(variant, head, is_decoder=is_decoder, hidden_dropout_prob=0.0)


def make_trainer(folder, model, rows, **settings):
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=1, logging_steps=1, max_grad_norm=0,
        save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, **settings,
    )  # fmt: skip
    return Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)


def train_one_step(folder, model, rows, batch_size, steps):
    """The logged loss and the norm of the gradient of one step over all rows."""
    trainer = make_trainer(
        folder, model, rows,
        per_device_train_batch_size=batch_size, gradient_accumulation_steps=steps,
    )  # fmt: skip
    gradients = Gradients()
    trainer.add_callback(gradients)
    trainer.train()
    (loss,) = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    (norm,) = gradients.norms
    return [loss, norm]


@pytest.mark.parametrize("is_decoder", IS_DECODER)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_b39_accumulation_gives_the_loss_and_gradient_of_one_batch(
    tmp_path, head, steps, is_decoder
):
    rows, whole = data(head)
    model = trained_model(head, is_decoder)
    loss = model(**whole).loss
    loss.backward()
    wanted = [loss.item(), norm_of_gradient(model)]
    model.zero_grad()
    found = train_one_step(tmp_path, model, rows, ROWS // steps, steps)
    assert found == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("is_decoder", IS_DECODER)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "cosformer"])
def test_b39_accumulation_is_the_same_for_every_mechanism(tmp_path, variant, head, is_decoder):
    rows, whole = data(head)
    model = trained_model(head, is_decoder, variant)
    loss = model(**whole).loss
    loss.backward()
    wanted = [loss.item(), norm_of_gradient(model)]
    model.zero_grad()
    found = train_one_step(tmp_path, model, rows, ROWS // 4, 4)
    assert found == pytest.approx(wanted, rel=1e-5)


RAGGED = [
    ("TokenClassification", {}),
    ("MultipleChoice", {}),
    ("SequenceClassification", {}),
    ("SequenceClassification", {"problem_type": "regression", "num_labels": 1}),
    ("SequenceClassification", {"problem_type": "multi_label_classification", "num_labels": 3}),
]


@pytest.mark.parametrize(("head", "fields"), RAGGED)
def test_b39_micro_batches_of_other_sizes_count_by_their_rows(tmp_path, head, fields):
    """The end of an epoch: seven rows as 3 + 3 + 1."""
    rows, _ = data(head)
    rows = rows[:7]
    if fields:
        for i, row in enumerate(rows):
            row["labels"] = torch.tensor([float((i >> bit) & 1) for bit in range(3)])
            if fields["num_labels"] == 1:
                row["labels"] = torch.tensor(float(i * i))
    whole = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    model = build("cosformer", head, hidden_dropout_prob=0.0, **fields)
    loss = model(**whole).loss
    loss.backward()
    wanted = [loss.item(), norm_of_gradient(model)]
    model.zero_grad()
    assert train_one_step(tmp_path, model, rows, 3, 3) == pytest.approx(wanted, rel=1e-5)


def test_b39_targets_of_tokens_are_unequal_between_the_micro_batches():
    """Else a mean of means could not be told from the right loss."""
    rows, _ = data("TokenClassification")
    targets = [int((row["labels"] != -100).sum()) for row in rows]
    assert targets == list(range(1, ROWS + 1))


@pytest.mark.parametrize("head", HEADS)
def test_the_trainer_finds_labels_and_evaluates(tmp_path, head):
    rows, whole = data(head)
    model = build("cosformer", head)
    trainer = make_trainer(tmp_path, model, rows, per_device_eval_batch_size=ROWS)
    found = trainer.predict(rows)
    out = model(**whole)
    assert found.metrics["test_loss"] == pytest.approx(out.loss.item(), rel=1e-5)
    guesses = found.predictions if head == "QuestionAnswering" else (found.predictions,)
    wanted = (out.start_logits, out.end_logits) if head == "QuestionAnswering" else (out.logits,)
    for a, b in zip(guesses, wanted, strict=True):
        assert torch.allclose(torch.from_numpy(a), b, atol=1e-5)
    labels = found.label_ids if head == "QuestionAnswering" else (found.label_ids,)
    names = ("start_positions", "end_positions") if len(labels) == 2 else ("labels",)
    for name, given in zip(names, labels, strict=True):
        assert torch.equal(torch.from_numpy(given), whole[name])
