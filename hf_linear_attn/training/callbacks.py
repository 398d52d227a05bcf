"""Trainer callbacks: other masks each epoch, tokens per second, the loss curve."""

import csv
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from hf_linear_attn.training.atomic_files import replaced
from hf_linear_attn.training.collators import MaskedLMCollator

_CURVE_COLUMNS = {
    "step": "step",
    "loss": "train_loss",
    "eval_loss": "eval_loss",
    "learning_rate": "learning_rate",
    "tokens_per_second": "tokens_per_second",
    "mfu": "mfu",
}


class EpochMasks(TrainerCallback):
    """Tells the collator which epoch it is, also in a resumed run.

    Args:
        collator: draws other masks in each epoch.
    """

    def __init__(self, collator: MaskedLMCollator) -> None:
        self.collator = collator
        self._next_epoch = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start where the restored state stands."""
        self._next_epoch = math.floor(state.epoch)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count: `state.epoch` does not tell a stream's second pass from its first."""
        self.collator.set_epoch(self._next_epoch)
        self._next_epoch += 1


class Throughput(TrainerCallback):
    """Real tokens (padding not counted) per wall second of training.

    The clock stands still during evaluation, saving and start-up. The trainer reports the tokens
    through `add`; they stay on their device until they are asked for.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._tokens: torch.Tensor | None = None
        self._mark = time.perf_counter()
        self._logged = (0.0, 0.0)

    def add(self, tokens: torch.Tensor) -> None:
        """Count the tokens of one batch: the sum of a tensor, such as its attention mask."""
        count = tokens.sum()
        self._tokens = count if self._tokens is None else self._tokens + count

    @property
    def tokens(self) -> torch.Tensor:
        """All tokens so far on this process, int64 scalar."""
        return torch.zeros((), dtype=torch.int64) if self._tokens is None else self._tokens

    def since_last_log(self, tokens: float) -> float:
        """Tokens per second since the last call, given the tokens of all processes so far."""
        before, start = self._logged
        self._logged = (tokens, self.seconds)
        return (tokens - before) / max(self.seconds - start, 1e-9)

    def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
        """Start the clock before the loader is asked for the first batch."""
        self._mark = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Take the time of one optimiser step, its data included."""
        now = time.perf_counter()
        self.seconds += now - self._mark
        self._mark = now

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Leave the evaluation out."""
        self._mark = time.perf_counter()

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        """Leave the saving out."""
        self._mark = time.perf_counter()


class LossCurve(TrainerCallback):
    """Writes the loss curve at every save, so that a killed run keeps it up to its checkpoint.

    Args:
        unigram_loss: drawn as a dashed line; None where there is none.
        label: what the loss is, with its unit.
    """

    def __init__(
        self, unigram_loss: float | None = None, label: str = "cross-entropy (nats)"
    ) -> None:
        self.unigram_loss = unigram_loss
        self.label = label

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write from the main process."""
        if state.is_world_process_zero and args.output_dir:
            folder = Path(args.output_dir)
            write_loss_curve(state.log_history, folder, self.unigram_loss, self.label)


def write_loss_curve(
    history: Sequence[dict[str, Any]],
    folder: Path,
    unigram: float | None = None,
    label: str = "cross-entropy (nats)",
) -> None:
    """Write `loss_curve.csv` (one line a logged step) and `loss_curve.png` into a folder.

    Args:
        history: a Trainer's `log_history`.
        folder: exists.
        unigram: cross-entropy of the unigram model, in nats; None where there is none.
        label: what the loss is, with its unit.
    """
    rows: dict[int, dict[str, float]] = {}
    for entry in history:
        known = {_CURVE_COLUMNS[k]: v for k, v in entry.items() if k in _CURVE_COLUMNS}
        if "train_loss" in known or "eval_loss" in known:
            rows.setdefault(entry["step"], {}).update(known)
    ordered = [rows[step] for step in sorted(rows)]
    measured = {column for row in ordered for column in row}
    # The utilisation alone is not known everywhere.
    columns = [c for c in _CURVE_COLUMNS.values() if c != "mfu" or c in measured]
    table = folder / "loss_curve.csv"
    with replaced(table) as path, open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=columns)
        writer.writeheader()
        writer.writerows(ordered)
    with replaced(folder / "loss_curve.png") as path:
        _draw(ordered, path, unigram, label)


def _draw(rows: list[dict[str, float]], path: Path, unigram: float | None, label: str) -> None:
    # The object interface, not pyplot: no window system is looked for and no state is left.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for column, name, marker in (
        ("train_loss", "training", "."),
        ("eval_loss", "evaluation", "o"),
    ):
        points = [(row["step"], row[column]) for row in rows if column in row]
        axes.plot([x for x, _ in points], [y for _, y in points], label=name, marker=marker)
    if unigram is not None:
        axes.axhline(unigram, linestyle="--", color="grey", label=f"unigram model ({unigram:.3f})")
    axes.set_xlabel("optimiser step")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, format="png", dpi=120)
