"""The masked-LM loss: what it is divided by, and where it is computed."""

import pytest
import torch

from tests.errors import relative_error


def batch(rows=8, length=16):
    """Rows with very different numbers of targets."""
    ids = torch.randint(3, 100, (rows, length))
    labels = torch.full_like(ids, -100)
    for row in range(rows):
        chosen = torch.randperm(length)[: 1 + row]
        labels[row, chosen] = ids[row, chosen]
    return ids, labels


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_accumulation_equals_one_batch(make_model, steps):
    ids, labels = batch()
    total = (labels != -100).sum()
    model = make_model(hidden_dropout_prob=0.0).train()
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    parts = []
    for x, y in zip(ids.chunk(steps), labels.chunk(steps), strict=True):
        part = model(input_ids=x, labels=y, num_items_in_batch=total).loss
        part.backward()
        parts.append(part.item())
    assert sum(parts) == pytest.approx(loss.item(), rel=1e-5)
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    wanted = torch.cat([g.flatten() for g in wanted])
    assert found.norm().item() == pytest.approx(wanted.norm().item(), rel=1e-5)
    assert relative_error(found, wanted) <= 1e-5


def test_b39_loss_is_a_mean_over_targets_not_over_micro_batches(make_model):
    """Micro-batches of 2 and 6 targets with losses 1 and 3: 2.5, not 2."""
    model = make_model()
    real = model.loss_function
    losses = []

    def fixed(logits, targets, num_items_in_batch=None, **keywords):
        count = (targets != -100).sum()
        each = 1.0 if count == 2 else 3.0
        losses.append(real(logits, targets, num_items_in_batch=num_items_in_batch, **keywords))
        return each * count / num_items_in_batch

    model.loss_function = fixed
    total = 0
    for count in (2, 6):
        ids = torch.randint(3, 100, (1, 8))
        labels = ids.masked_fill(torch.arange(8) >= count, -100)
        total += model(input_ids=ids, labels=labels, num_items_in_batch=torch.tensor(8)).loss
    assert total.item() == 2.5
    assert len(losses) == 2


def test_the_trainer_is_told_that_the_loss_is_normalised(make_model):
    assert make_model().accepts_loss_kwargs is True


def test_sparse_prediction_is_the_same_loss_and_gradient(make_model):
    ids, labels = batch()
    model = make_model()
    dense = model(input_ids=ids, labels=labels)
    wanted = torch.autograd.grad(dense.loss, list(model.parameters()))
    sparse = model(input_ids=ids, labels=labels, sparse_prediction=True)
    found = torch.autograd.grad(sparse.loss, list(model.parameters()))
    assert sparse.logits.shape == ((labels != -100).sum(), 100)
    assert relative_error(sparse.logits, dense.logits[labels != -100]) <= 1e-6
    assert sparse.loss.item() == pytest.approx(dense.loss.item(), rel=1e-6)
    for a, b in zip(found, wanted, strict=True):
        assert relative_error(a, b, scale=1e-6) <= 1e-4
