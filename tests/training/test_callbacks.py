"""Throughput counts real tokens and training time only; the loss curve is readable."""

import csv
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from hf_linear_attn.training import callbacks
from hf_linear_attn.training.callbacks import EpochMasks, LossCurve, Throughput, write_loss_curve

HISTORY = [
    {"eval_loss": 5.5, "epoch": 0, "step": 0},
    {"loss": 4.0, "learning_rate": 1e-3, "tokens_per_second": 100.0, "step": 10},
    {"loss": 3.0, "learning_rate": 5e-4, "tokens_per_second": 120.0, "step": 20},
    {"eval_loss": 2.9, "eval_unigram_loss": 3.3, "step": 20},
    {"train_loss": 3.5, "train_runtime": 9.0, "step": 20},
]


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves by hand."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: now.seconds)
    return now


def test_throughput_leaves_evaluation_saving_and_start_up_out(clock):
    throughput = Throughput()
    clock.seconds += 100  # start-up, evaluation before training
    throughput.on_evaluate()
    clock.seconds += 50
    throughput.on_epoch_begin()
    for seconds, pause in ((2, throughput.on_evaluate), (3, throughput.on_save)):
        clock.seconds += seconds
        throughput.on_step_end()
        clock.seconds += 1000
        pause()
    clock.seconds += 5
    throughput.on_step_end()
    assert throughput.seconds == 10


def test_throughput_counts_real_tokens_since_the_last_log(clock):
    throughput = Throughput()
    assert int(throughput.tokens) == 0
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    throughput.on_epoch_begin()
    throughput.add(mask)
    clock.seconds += 2
    throughput.on_step_end()
    assert throughput.since_last_log(int(throughput.tokens)) == pytest.approx(1.5)
    throughput.add(mask)
    throughput.add(mask)
    clock.seconds += 1
    throughput.on_step_end()
    assert throughput.since_last_log(int(throughput.tokens)) == pytest.approx(6.0)


def test_epochs_are_counted_from_the_restored_state():
    collator = SimpleNamespace(epochs=[])
    collator.set_epoch = collator.epochs.append
    callback = EpochMasks(collator)
    control = None
    for begun, ends in ((0, 2), (1.5, 1), (3.0, 1)):
        state = SimpleNamespace(epoch=begun)
        callback.on_train_begin(None, state, control)
        for _ in range(ends):
            callback.on_epoch_begin(None, state, control)
    assert collator.epochs == [0, 1, 1, 3]


def test_the_curve_has_one_line_a_step_and_a_picture(tmp_path):
    write_loss_curve(HISTORY, tmp_path, 3.3)
    with open(tmp_path / "loss_curve.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["step"] for r in rows] == ["0", "10", "20"]
    assert [r["train_loss"] for r in rows] == ["", "4.0", "3.0"]
    assert [r["eval_loss"] for r in rows] == ["5.5", "", "2.9"]
    assert rows[2]["learning_rate"] == "0.0005"
    assert rows[1]["tokens_per_second"] == "100.0"
    with Image.open(tmp_path / "loss_curve.png") as picture:
        picture.verify()
        assert min(picture.size) > 400


def test_the_picture_shows_both_losses_and_the_unigram_model(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    figures = []

    def savefig(figure, path, **_):
        path.touch()
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", savefig)
    write_loss_curve(HISTORY, tmp_path, 3.3)
    (axes,) = figures[0].axes
    training, evaluation, unigram = axes.lines
    assert list(training.get_ydata()) == [4.0, 3.0]
    assert list(evaluation.get_ydata()) == [5.5, 2.9]
    assert set(unigram.get_ydata()) == {3.3}
    assert unigram.get_linestyle() == "--"
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert len(axes.get_legend().get_texts()) == 3


def test_a_curve_without_unigram_model_says_what_its_loss_is(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    figures = []

    def savefig(figure, path, **_):
        path.touch()
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", savefig)
    state = SimpleNamespace(is_world_process_zero=True, log_history=HISTORY)
    args = SimpleNamespace(output_dir=str(tmp_path))
    LossCurve(label="squared error").on_save(args, state, None)
    (axes,) = figures[0].axes
    assert len(axes.lines) == 2
    assert axes.get_ylabel() == "squared error"


def test_the_utilisation_has_a_column_where_it_is_known(tmp_path):
    def header(history):
        write_loss_curve(history, tmp_path, 3.3)
        return (tmp_path / "loss_curve.csv").read_text().splitlines()[0].split(",")

    assert "mfu" not in header(HISTORY)
    assert header([*HISTORY, {"loss": 2.0, "mfu": 0.4, "step": 30}])[-1] == "mfu"


def test_the_curve_is_written_at_each_save_by_the_main_process_only(tmp_path):
    callback = LossCurve(3.3)
    args = SimpleNamespace(output_dir=str(tmp_path))
    state = SimpleNamespace(is_world_process_zero=False, log_history=HISTORY)
    callback.on_save(args, state, None)
    assert not list(tmp_path.iterdir())
    state.is_world_process_zero = True
    callback.on_save(args, state, None)
    assert {path.name for path in tmp_path.iterdir()} == {"loss_curve.csv", "loss_curve.png"}
