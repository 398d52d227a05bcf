"""Training a decoder: packed documents, what the loss counts, gradient checkpointing."""

import pytest
import torch
from transformers import DataCollatorWithFlattening, Trainer, TrainingArguments

import hf_linear_attn as hla
from tests.conftest import TINY
from tests.errors import relative_error
from tests.models.test_decoder import pad, tokens

PACKINGS = {
    "all": None,
    "seq_idx": {"input_ids", "labels", "seq_idx"},
    "cu_seq_lens": {"input_ids", "labels", "cu_seq_lens_q", "cu_seq_lens_k"},
    "position_ids": {"input_ids", "labels", "position_ids"},
}


@pytest.mark.parametrize("keywords", list(PACKINGS))
def test_packed_documents_equal_documents_alone(make_decoder, keywords):
    """Logits, loss and gradients; no target crosses from one document into the next."""
    model = make_decoder()
    documents = [torch.randint(3, 100, (n,)) for n in (5, 2, 9, 17)]
    collator = DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True)
    batch = dict(collator([{"input_ids": d, "labels": d} for d in documents]))
    batch["labels"] = batch["input_ids"]
    kept = PACKINGS[keywords] or set(batch)
    packed = model(**{k: v for k, v in batch.items() if k in kept})
    packed.loss.backward()
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    start, loss = 0, 0
    for document in documents:
        alone = model(input_ids=document[None], labels=document[None])
        stop = start + len(document)
        assert relative_error(packed.logits[0, start:stop], alone.logits[0]) <= 1e-5
        loss, start = loss + alone.loss * (len(document) - 1), stop
    loss = loss / (start - len(documents))
    loss.backward()
    assert packed.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    wanted = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert relative_error(found, wanted) <= 1e-5


def test_a_mask_of_ones_does_not_overwrite_boundaries(make_decoder):
    """(fla#838)"""
    model = make_decoder()
    ids = tokens(1, 10)
    boundaries = {"cu_seq_lens_q": torch.tensor([0, 4, 10])}
    plain = model(input_ids=ids, **boundaries).logits
    masked = model(input_ids=ids, attention_mask=torch.ones_like(ids), **boundaries).logits
    assert torch.equal(masked, plain)
    assert relative_error(plain[:, 4:], model(input_ids=ids).logits[:, 4:]) > 1e-2


@pytest.mark.parametrize("boundaries", [[0, 0, 4, 10], [0, 4, 4, 4, 10], [0, 4, 10, 10]])
def test_an_empty_document_in_a_pack_changes_nothing(make_decoder, boundaries):
    model = make_decoder()
    ids = tokens(1, 10)
    plain = model(input_ids=ids, labels=ids, cu_seq_lens_q=torch.tensor([0, 4, 10]))
    empty = model(input_ids=ids, labels=ids, cu_seq_lens_q=torch.tensor(boundaries))
    assert torch.equal(empty.logits, plain.logits)
    assert torch.equal(empty.loss, plain.loss)


def batch_of_targets(rows=8, length=16):
    """Rows with very different numbers of targets."""
    ids = torch.randint(3, 100, (rows, length))
    labels = torch.full_like(ids, -100)
    for row in range(rows):
        chosen = 1 + torch.randperm(length - 1)[: 1 + row]
        labels[row, chosen] = ids[row, chosen]
    return ids, labels


def test_the_loss_is_that_of_the_next_token(make_decoder):
    model = make_decoder()
    ids, labels = batch_of_targets()
    out = model(input_ids=ids, labels=labels)
    wanted = torch.nn.functional.cross_entropy(
        out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    )
    assert out.loss.item() == pytest.approx(wanted.item(), rel=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_loss_does_not_depend_on_padding(make_decoder, side):
    """A pad predicts nothing: the first token of a row padded on the left is no target."""
    model = make_decoder(hidden_dropout_prob=0.0).train()
    ids = tokens()
    wide, mask = pad(ids, 4, side)
    labels = wide.masked_fill(mask == 0, -100)
    losses, gradients = [], []
    for inputs in (
        {"input_ids": ids, "labels": ids},
        {"input_ids": wide, "attention_mask": mask, "labels": labels},
    ):
        loss = model(**inputs).loss
        losses.append(loss.item())
        grads = torch.autograd.grad(loss, list(model.parameters()))
        gradients.append(torch.cat([g.flatten() for g in grads]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert relative_error(gradients[1], gradients[0]) <= 1e-5


def test_targets_that_a_trainer_counts_in_vain_are_refused(make_decoder):
    """Its count of targets, by which the loss is divided, sees the labels alone."""
    model = make_decoder()
    wide, mask = pad(tokens(), 4, "left")
    labels = wide.masked_fill(mask == 0, -100)
    inputs = {"input_ids": wide, "attention_mask": mask}
    counted = (labels[:, 1:] != -100).sum()
    with pytest.raises(ValueError, match="2 tokens right behind a pad or behind another document"):
        model(**inputs, labels=labels, num_items_in_batch=counted)
    wanted = model(**inputs, labels=labels).loss
    labels[:, 4] = -100
    counted = (labels[:, 1:] != -100).sum()
    found = model(**inputs, labels=labels, num_items_in_batch=counted).loss
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_b39_accumulation_equals_one_batch(make_decoder, steps):
    ids, labels = batch_of_targets()
    total = (labels[:, 1:] != -100).sum()
    model = make_decoder(hidden_dropout_prob=0.0).train()
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    wanted = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    parts = 0
    for x, y in zip(ids.chunk(steps), labels.chunk(steps), strict=True):
        part = model(input_ids=x, labels=y, num_items_in_batch=total).loss
        part.backward()
        parts += part.item()
    assert parts == pytest.approx(loss.item(), rel=1e-5)
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert found.norm().item() == pytest.approx(wanted.norm().item(), rel=1e-5)
    assert relative_error(found, wanted) <= 1e-5


def test_b39_loss_is_a_mean_over_targets_not_over_micro_batches(make_decoder, monkeypatch):
    """Micro-batches of 2 and 6 targets with losses 1 and 3: 2.5, not 2."""
    model = make_decoder()
    assert model.accepts_loss_kwargs is True
    assert model.loss_type == "ForCausalLM"
    each = iter((1.0, 3.0))

    def cross_entropy(logits, targets, *, ignore_index, reduction):
        assert reduction == "sum"
        return next(each) * (targets != ignore_index).sum()

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", cross_entropy)
    total = 0
    for count in (2, 6):
        ids = tokens(1, 8)
        labels = ids.masked_fill(torch.arange(8) > count, -100)
        total += model(input_ids=ids, labels=labels, num_items_in_batch=torch.tensor(8)).loss
    assert total.item() == 2.5


def test_b39_the_trainer_logs_one_loss_for_any_accumulation(tmp_path):
    ids, labels = batch_of_targets()
    rows = [{"input_ids": x, "labels": y} for x, y in zip(ids, labels, strict=True)]
    logged = []
    for steps in (1, 2, 4):
        torch.manual_seed(0)
        fields = {**TINY, "hidden_dropout_prob": 0.0}
        arguments = TrainingArguments(
            tmp_path, per_device_train_batch_size=8 // steps, gradient_accumulation_steps=steps,
            max_steps=2, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True,
            disable_tqdm=True, optim="sgd", learning_rate=1e-2, lr_scheduler_type="constant",
        )  # fmt: skip
        trainer = Trainer(
            hla.CosformerForCausalLM(hla.CosformerConfig(**fields)), arguments,
            train_dataset=rows, eval_dataset=rows,
        )  # fmt: skip
        trainer.train()
        steps_logged = [x for x in trainer.state.log_history if "loss" in x]
        logged.append([x[key] for x in steps_logged for key in ("loss", "grad_norm")])
        # The cache a decoder returns outside training is no prediction.
        logged[-1].append(trainer.evaluate()["eval_loss"])
    assert logged[1] == pytest.approx(logged[0], rel=1e-5)
    assert logged[2] == pytest.approx(logged[0], rel=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("reentrant", [True, False])
def test_b47_gradient_checkpointing_changes_memory_only(make_decoder, reentrant, dropout):
    model = make_decoder(hidden_dropout_prob=dropout).train()
    ids = tokens()
    assert model.config.use_cache is True
    results = []
    for checkpointed in (False, True):
        if checkpointed:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        model.zero_grad()
        torch.manual_seed(3)
        out = model(input_ids=ids, labels=ids)
        assert out.cache is None
        out.loss.backward()
        results.append((out.loss.item(), [p.grad.clone() for p in model.parameters()]))
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-6)
    for found, wanted in zip(results[1][1], results[0][1], strict=True):
        assert relative_error(found, wanted, scale=1e-6) <= 1e-6
    assert model(input_ids=ids, use_cache=True).cache is None
    cache = model.eval()(input_ids=ids).cache
    with pytest.raises(
        ValueError, match="cannot continue from a cache; call activation_checkpointing_disable"
    ):
        model.train()(input_ids=ids, cache=cache)
