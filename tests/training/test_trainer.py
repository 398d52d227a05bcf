"""The trainer: exact losses under accumulation, exact evaluation, bit-exact resume."""

import json
import math
import os
import shutil

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback, TrainingArguments
from transformers.modeling_outputs import MaskedLMOutput

from hf_linear_attn.training import callbacks
from hf_linear_attn.training.collators import MaskedLMCollator
from hf_linear_attn.training.metrics import row_statistics
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from hf_linear_attn.training.trainer import MaskedLMTrainer
from tests.training.tiny_run import make_trainer, rows


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 64)


class Gradients(TrainerCallback):
    """Keeps the gradients of each optimiser step."""

    def __init__(self):
        self.steps = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.steps.append([p.grad.clone() for p in model.parameters()])


def train_with_gradients(trainer):
    gradients = Gradients()
    trainer.add_callback(gradients)
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    return gradients.steps, logs


class FixedLoss(torch.nn.Module):
    """A model whose tokens below 20 have loss 1 and the others loss 3."""

    accepts_loss_kwargs = True

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(
        self, input_ids, attention_mask, labels, sparse_prediction=False, num_items_in_batch=None
    ):
        targets = labels[labels != -100]
        nll = torch.where(targets < 20, 1.0, 3.0) * self.scale
        divisor = len(targets) if num_items_in_batch is None else num_items_in_batch
        return MaskedLMOutput(loss=nll.sum() / divisor)


def test_b39_two_and_six_targets_of_loss_one_and_three_give_two_and_a_half(tmp_path, tokenizer):
    data = Dataset.from_list(
        [
            {"input_ids": [10] * 2, "labels": [10] * 2},
            {"input_ids": [30] * 6, "labels": [30] * 6},
        ]
    )
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        max_steps=1,
        max_grad_norm=0,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    collator = MaskedLMCollator(tokenizer)
    trainer = MaskedLMTrainer(FixedLoss(), arguments, collator, data, None, None)
    gradients, logs = train_with_gradients(trainer)
    assert logs[0]["loss"] == pytest.approx(2.5, rel=1e-6)
    assert gradients[0][0].item() == pytest.approx(2.5, rel=1e-6)


@pytest.mark.parametrize("accumulation", [2, 4])
def test_b39_accumulation_gives_the_loss_and_gradients_of_one_batch(
    tmp_path, tokenizer, accumulation
):
    def run(batch, steps, clip):
        trainer = make_trainer(
            tmp_path,
            tokenizer,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=steps,
            max_steps=3,
            max_grad_norm=clip,
            weight_decay=0.0,
        )
        return train_with_gradients(trainer)

    whole, logs = run(8, 1, 0.0)
    parts, logs_of_parts = run(8 // accumulation, accumulation, 0.0)
    for step, (a, b) in enumerate(zip(whole, parts, strict=True)):
        for x, y in zip(a, b, strict=True):
            assert (x - y).norm() <= 1e-5 * max(x.norm(), 1e-3), step
    for a, b in zip(logs, logs_of_parts, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-5)
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=1e-5)


def test_the_logged_loss_is_that_of_the_masked_tokens(tmp_path, tokenizer):
    trainer = make_trainer(tmp_path, tokenizer, max_steps=1, learning_rate=0.0)
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.train()
    with torch.no_grad():
        logits = trainer.model.eval()(batch["input_ids"], batch["attention_mask"]).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_the_evaluation_loss_is_a_mean_over_all_masked_tokens(tmp_path, tokenizer, batch):
    trainer = make_trainer(tmp_path, tokenizer, per_device_eval_batch_size=batch)
    found = trainer.evaluate()
    nll, right, total = 0.0, 0, 0
    for example in trainer.eval_dataset:
        ids, labels = (torch.tensor([example[k]]) for k in ("input_ids", "labels"))
        with torch.no_grad():
            logits = trainer.model(ids).logits.double()
        chosen = labels != -100
        nll += torch.nn.functional.cross_entropy(
            logits[chosen], labels[chosen], reduction="sum"
        ).item()
        right += (logits[chosen].argmax(-1) == labels[chosen]).sum().item()
        total += int(chosen.sum())
    assert found["eval_loss"] == pytest.approx(nll / total, rel=1e-6)
    assert found["eval_perplexity"] == pytest.approx(math.exp(nll / total), rel=1e-5)
    assert found["eval_masked_accuracy"] == pytest.approx(right / total)
    assert found["eval_unigram_loss"] == 3.0
    assert trainer.state.log_history[-1]["eval_loss"] == found["eval_loss"]


def test_only_masked_positions_reach_the_output_layer_in_training_and_evaluation(
    tmp_path, tokenizer
):
    trainer = make_trainer(tmp_path, tokenizer, max_steps=1)
    seen = []
    trainer.model.lm_head.register_forward_hook(lambda m, inputs, y: seen.append(tuple(y.shape)))
    trainer.train()
    trainer.evaluate()
    batch = next(iter(trainer.get_train_dataloader()))
    assert seen[0] == (int((batch["labels"] != -100).sum()), 261)
    masked = sum((np.array(e["labels"]) != -100).sum() for e in trainer.eval_dataset)
    assert sum(shape[0] for shape in seen[1:]) == masked


def test_statistics_and_not_logits_leave_a_prediction_step(tmp_path, tokenizer):
    trainer = make_trainer(tmp_path, tokenizer)
    batch = trainer.data_collator(list(trainer.eval_dataset))
    loss, statistics, labels = trainer.prediction_step(trainer.model, batch, False)
    assert loss is None
    assert statistics.shape == (7, 3)
    assert labels.shape == (7,)
    logits = trainer.model(**batch, sparse_prediction=True).logits
    torch.testing.assert_close(statistics, row_statistics(logits, batch["labels"]))


def strip(history):
    """The logged numbers that do not depend on the clock."""
    clock = ("runtime", "per_second", "flos")
    return [
        {k: v for k, v in entry.items() if not any(word in k for word in clock)}
        for entry in history
        if "train_runtime" not in entry
    ]


@pytest.mark.parametrize(
    ("workers", "persistent"),
    [
        (0, False),
        pytest.param(2, False, marks=pytest.mark.slow),
        pytest.param(2, True, marks=pytest.mark.slow),
    ],
    ids=["0", "2", "2-persistent"],
)
@pytest.mark.parametrize(
    ("examples", "save"),
    [
        pytest.param(16, {"save_strategy": "steps", "save_steps": 3}, id="into-the-next-epoch"),
        pytest.param(
            8,
            {"save_strategy": "steps", "save_steps": 3},
            id="within-epoch-two",
            marks=pytest.mark.slow,
        ),
        pytest.param(12, {"save_strategy": "epoch"}, id="between-epochs"),
    ],
)
def test_b36_six_steps_at_once_equal_three_and_three_after_a_resume(
    tmp_path, tokenizer, examples, save, workers, persistent
):
    def trainer(folder):
        return make_trainer(
            folder,
            tokenizer,
            rows(examples),
            dropout=0.1,
            max_steps=6,
            eval_on_start=folder == tmp_path / "whole",
            eval_strategy="steps",
            eval_steps=2,
            dataloader_num_workers=workers,
            dataloader_persistent_workers=persistent,
            **save,
        )

    whole = trainer(tmp_path / "whole")
    whole.train()
    checkpoint = tmp_path / "again" / "checkpoint-3"
    shutil.copytree(tmp_path / "whole" / "checkpoint-3", checkpoint)
    again = trainer(tmp_path / "again")
    torch.rand(7)  # another random state than the first run had here
    again.train(resume_from_checkpoint=str(checkpoint))
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert strip(again.state.log_history) == strip(whole.state.log_history)
    assert [e["step"] for e in whole.state.log_history if "loss" in e] == list(range(1, 7))


def test_masks_differ_between_the_epochs_of_a_run(tmp_path, tokenizer):
    seen = []

    class Spy(MaskedLMCollator):
        def __call__(self, rows):
            batch = super().__call__(rows)
            if "labels" not in rows[0]:
                order = batch["attention_mask"].sum(1).argsort()
                seen.append((batch["labels"] != -100)[order].tolist())
            return batch

    trainer = make_trainer(tmp_path, tokenizer, rows(4), max_steps=3)
    trainer.data_collator.__class__ = Spy
    trainer.train()
    assert len(seen) == 3
    assert seen[0] != seen[1] != seen[2]


def test_a_checkpoint_at_the_last_step_is_taken_over_without_another_step(tmp_path, tokenizer):
    def trainer(folder):
        return make_trainer(
            folder, tokenizer, max_steps=4, save_strategy="steps", eval_strategy="steps"
        )

    whole = trainer(tmp_path / "whole")
    whole.train()
    again = trainer(tmp_path / "again")
    output = again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    assert output.global_step == 4
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert again.final_evaluation()["eval_loss"] == whole.final_evaluation()["eval_loss"]


def test_the_final_evaluation_is_the_logged_one_or_a_new_one(tmp_path, tokenizer):
    trainer = make_trainer(tmp_path, tokenizer, max_steps=2, eval_strategy="steps", eval_steps=2)
    trainer.train()
    count = len(trainer.state.log_history)
    assert trainer.final_evaluation()["step"] == 2
    assert len(trainer.state.log_history) == count
    trainer = make_trainer(tmp_path, tokenizer, max_steps=2)
    trainer.train()
    assert trainer.final_evaluation()["eval_loss"] == trainer.evaluate()["eval_loss"]


def test_tokens_per_second_count_the_real_tokens_that_passed(tmp_path, tokenizer):
    trainer = make_trainer(tmp_path, tokenizer, max_steps=6, gradient_accumulation_steps=2)
    passed = 0
    for _ in range(2):
        passed += sum(len(example["input_ids"]) for example in trainer.train_dataset)
    output = trainer.train()
    assert int(trainer.throughput.tokens) == passed
    expected = passed / trainer.throughput.seconds
    assert output.metrics["train_tokens_per_second"] == pytest.approx(expected, abs=0.1)
    logs = [e for e in trainer.state.log_history if "loss" in e]
    assert all(e["tokens_per_second"] > 0 for e in logs)


def test_columns_of_the_collator_are_kept_and_others_dropped(tmp_path, tokenizer):
    data = Dataset.from_list(
        [
            {
                "input_ids": [7, 10, 11, 12],
                "special_tokens_mask": [1, 0, 0, 0],
                "word_ids": [-1, 0, 0, 1],
                "text": "dropped",
            }
        ]
        * 4
    )
    trainer = make_trainer(tmp_path, tokenizer, data, max_steps=1)
    trainer.data_collator.masking = "word"
    batch = next(iter(trainer.get_train_dataloader()))
    assert (batch["labels"][:, 0] == -100).all()
    assert (batch["labels"] != -100).any(dim=1).all()


def test_the_draft_card_of_the_trainer_is_not_written(tmp_path, tokenizer):
    trainer = make_trainer(tmp_path, tokenizer)
    (tmp_path / "README.md").write_text("ours")
    trainer.create_model_card()
    assert (tmp_path / "README.md").read_text() == "ours"


def test_label_smoothing_is_refused(tmp_path, tokenizer):
    with pytest.raises(ValueError, match=r"label_smoothing_factor 0\.1 is not supported"):
        make_trainer(tmp_path, tokenizer, label_smoothing_factor=0.1)


def test_the_curve_is_written_with_the_checkpoints(tmp_path, tokenizer):
    make_trainer(tmp_path, tokenizer, max_steps=1, save_strategy="steps").train()
    assert (tmp_path / "loss_curve.csv").is_file()
    state = json.loads((tmp_path / "checkpoint-1" / "trainer_state.json").read_text())
    assert state["global_step"] == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_and_evaluation_leave_the_global_generator_alone(tmp_path, tokenizer, workers):
    """Dropout draws from it: how often one evaluates must not change what is trained."""
    trainer = make_trainer(tmp_path, tokenizer, dataloader_num_workers=workers)
    before = torch.get_rng_state()
    trainer.evaluate()
    list(trainer.get_train_dataloader())
    assert torch.equal(torch.get_rng_state(), before)


def test_more_evaluations_do_not_change_the_weights(tmp_path, tokenizer):
    weights = []
    for number, evaluation in enumerate(({}, {"eval_strategy": "steps", "eval_steps": 1})):
        trainer = make_trainer(
            tmp_path / str(number), tokenizer, dropout=0.1, max_steps=4, **evaluation
        )
        trainer.train()
        weights.append(trainer.model.state_dict())
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


def test_the_clock_stands_still_while_the_curve_is_drawn(tmp_path, tokenizer, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: now[0])

    def slow(*_):
        now[0] += 1000

    monkeypatch.setattr(callbacks, "write_loss_curve", slow)
    trainer = make_trainer(tmp_path, tokenizer, max_steps=4, save_strategy="steps", save_steps=1)
    trainer.train()
    assert now[0] >= 4000
    assert trainer.throughput.seconds < 1000


def test_results_that_were_cut_off_do_not_keep_a_run_from_ending(tmp_path, tokenizer):
    trainer = make_trainer(tmp_path, tokenizer, max_steps=1)
    (tmp_path / "all_results.json").write_text('{"eval_loss": 1.')
    trainer.save_metrics("eval", {"eval_loss": 2.0})
    trainer.save_metrics("train", {"train_loss": 3.0})
    results = json.loads((tmp_path / "all_results.json").read_text())
    assert results == {"eval_loss": 2.0, "train_loss": 3.0}
    assert json.loads((tmp_path / "eval_results.json").read_text()) == {"eval_loss": 2.0}


def test_results_are_what_they_were_when_new_ones_cannot_be_written(
    tmp_path, tokenizer, monkeypatch
):
    trainer = make_trainer(tmp_path, tokenizer, max_steps=1)
    trainer.save_metrics("eval", {"eval_loss": 2.0})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def no_room(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(OSError, match="No space"):
        trainer.save_metrics("eval", {"eval_loss": 1.0})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
