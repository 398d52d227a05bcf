"""MFU: work over time over peak; known GPUs are looked up, an unknown peak gives no number."""

import json
from types import SimpleNamespace

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn.attention import ATTENTION, KernelizedAttention
from hf_linear_attn.training import callbacks, utilisation
from hf_linear_attn.training.arguments import ModelArguments
from hf_linear_attn.training.flops import training_flops
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from hf_linear_attn.training.utilisation import (
    Utilisation,
    build_utilisation,
    device_peak,
    document_lengths,
)
from tests.conftest import TINY
from tests.training.tiny_run import make_trainer


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 64)


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock is a second after the last."""
    now = SimpleNamespace(seconds=0.0)

    def tick():
        now.seconds += 1
        return now.seconds

    monkeypatch.setattr(callbacks.time, "perf_counter", tick)


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA H200", "bf16", 989),
        ("NVIDIA H200", "fp16", 989),
        ("NVIDIA H200", "tf32", 494),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-PCIE-40GB", "fp32", 19.5),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("Tesla T4", "fp16", 65),
        # No bf16 there: another number would be wrong.
        ("Tesla T4", "bf16", None),
        ("NVIDIA L40S", "bf16", 362),
        # Not the L40S.
        ("NVIDIA L40", "bf16", None),
        ("NVIDIA GeForce RTX 9999", "bf16", None),
    ],
)
def test_peaks_by_name_and_precision(name, precision, peak):
    assert device_peak(name, precision) == peak


def test_the_logged_share_is_work_over_time_over_peak(tmp_path, tokenizer, clock):
    trainer = make_trainer(tmp_path, tokenizer, max_steps=3)
    trainer.use_peak(1e-3)
    work, batches = [], []
    count = Utilisation.add

    def add(self, tokens, labels, seq_idx):
        batches.append(int((labels != -100).sum()))
        assert seq_idx is None
        count(self, tokens, labels)
        work.append(float(training_flops(trainer.model, tokens.sum(1), (labels != -100).sum())))

    trainer.utilisation.add = add.__get__(trainer.utilisation)
    output = trainer.train()
    logged = [entry["mfu"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(work) == 3
    assert all(batches)
    # The clock is looked at once a step, and once more at the end of each log or save.
    seconds = [trainer.throughput.seconds / 3] * 3
    expected = [w / s / 1e9 for w, s in zip(work, seconds, strict=True)]
    assert logged == pytest.approx(expected, rel=1e-3)
    total = sum(work) / trainer.throughput.seconds / 1e9
    assert output.metrics["train_mfu"] == pytest.approx(total, rel=1e-3)


def test_packed_documents_are_counted_each_for_itself():
    model = hla.SoftmaxForCausalLM(hla.SoftmaxConfig(**TINY))
    counter = Utilisation(model, 1.0, 1)
    seq_idx = torch.tensor([[4, 4, 4, 2, 2, 7, 7, 7], [0, 0, 0, 0, 0, 0, 0, 0]])
    real = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1]])
    assert document_lengths(real, seq_idx).tolist() == [3, 2, 1] + [0] * 5 + [8] + [0] * 7
    counter.add(real, real, seq_idx)
    apart = training_flops(model, torch.tensor([3, 2, 1, 8]))
    assert float(counter.flops) == float(apart) < float(training_flops(model, real.sum(1)))


@pytest.mark.parametrize("name", ["LinearTransformer", "TransNormer", "Cosformer", "Nystrom"])
def test_documents_that_are_not_there_have_no_work(name):
    model = getattr(hla, f"{name}Model")(getattr(hla, f"{name}Config")(**TINY))
    nothing = training_flops(model, torch.zeros(5))
    assert float(nothing) == 0
    some = training_flops(model, torch.tensor([9, 0, 0]))
    assert float(some) == float(training_flops(model, torch.tensor([9])))


def test_without_a_peak_there_is_no_number(tmp_path, tokenizer):
    trainer = make_trainer(tmp_path, tokenizer, max_steps=1)
    output = trainer.train()
    assert trainer.utilisation is None
    assert "train_mfu" not in output.metrics
    assert not any("mfu" in key for entry in trainer.state.log_history for key in entry)


def test_a_known_gpu_is_looked_up_at_the_precision_of_the_run(tmp_path, tokenizer, monkeypatch):
    model = make_trainer(tmp_path, tokenizer, max_steps=1).model
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    gpu = torch.device("cuda", 0)
    args = SimpleNamespace(device=gpu, bf16=True, fp16=False, world_size=4)
    assert build_utilisation(model, args, None).peak == 4 * 989e12
    assert build_utilisation(model, args, 100.0).peak == 4 * 100e12
    args.bf16 = False
    assert build_utilisation(model, args, None).peak == 4 * 67e12
    # As TrainingArguments leave it with tf32, and with torch_compile without a word.
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert build_utilisation(model, args, None).peak == 4 * 494e12
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a new one")
    assert build_utilisation(model, args, None) is None


def test_a_peak_for_work_that_is_not_known_is_an_error(tmp_path, tokenizer, monkeypatch):
    class Own(KernelizedAttention):
        feature_maps = ("relu",)

    trainer = make_trainer(tmp_path, tokenizer, max_steps=1)
    monkeypatch.setitem(ATTENTION, "own", Own)
    trainer.model.config.layer_attention = "own"
    trainer.use_peak(None)
    with pytest.raises(ValueError, match="peak_tflops 5: the work of this model's attention"):
        trainer.use_peak(5.0)


@pytest.mark.parametrize("peak", [0, -1.0, float("nan"), float("inf")])
def test_a_peak_is_a_number_above_0(peak):
    with pytest.raises(ValueError, match=r"peak_tflops: got .* expected a number above 0"):
        ModelArguments(peak_tflops=peak)


def test_tensorboard_shows_our_numbers(tmp_path, tokenizer):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer = make_trainer(tmp_path, tokenizer, max_steps=2, report_to=["tensorboard"])
    trainer.use_peak(1e-3)
    trainer.train()
    trainer.evaluate()
    # An evaluation after the training is done has a file of its own.
    files = [EventAccumulator(str(f)) for f in tmp_path.rglob("events.out.tfevents.*")]
    events = [file.Reload() for file in files]
    history = trainer.state.log_history
    for tag, key, count in (
        ("train/loss", "loss", 2),
        ("train/tokens_per_second", "tokens_per_second", 2),
        ("train/mfu", "mfu", 2),
        ("eval/loss", "eval_loss", 1),
        ("eval/perplexity", "eval_perplexity", 1),
        ("eval/masked_accuracy", "eval_masked_accuracy", 1),
    ):
        written = [file for file in events if tag in file.Tags()["scalars"]]
        shown = [event.value for file in written for event in file.Scalars(tag)]
        assert len(shown) == count
        assert shown == pytest.approx([e[key] for e in history if key in e], rel=1e-5)
    json.dumps(history)  # as it is kept beside a checkpoint


def test_the_table_is_of_numbers():
    assert all(v > 0 for peaks in utilisation._PEAKS.values() for v in peaks.values())
