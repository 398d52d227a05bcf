"""The curve of a run: validation accuracy beside the chance level, and the training loss."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_linear_attn.training.atomic_files import replaced

_COLUMNS = {
    "step": "step",
    "loss": "train_loss",
    "eval_loss": "validation_loss",
    "eval_accuracy": "validation_accuracy",
    "learning_rate": "learning_rate",
    "tokens_per_second": "tokens_per_second",
}


def write_curve(
    history: Sequence[dict[str, Any]], folder: Path, chance: float, test: float
) -> None:
    """Write `accuracy_curve.csv` (one line a logged step) and `accuracy_curve.png`.

    Args:
        history: a Trainer's `log_history`.
        folder: exists.
        chance: accuracy of a constant answer.
        test: accuracy on the test split.
    """
    rows: dict[int, dict[str, float]] = {}
    for entry in history:
        known = {_COLUMNS[name]: value for name, value in entry.items() if name in _COLUMNS}
        if "train_loss" in known or "validation_accuracy" in known:
            row = rows.setdefault(entry["step"], {})
            # Behind the last step the best model is validated once more: another model's figures.
            row.update({name: value for name, value in known.items() if name not in row})
    ordered = [rows[step] for step in sorted(rows)]
    table = folder / "accuracy_curve.csv"
    with replaced(table) as path, open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(_COLUMNS.values()))
        writer.writeheader()
        writer.writerows(ordered)
    with replaced(folder / "accuracy_curve.png") as path:
        _draw(ordered, path, chance, test)


def _draw(rows: list[dict[str, float]], path: Path, chance: float, test: float) -> None:
    # The object interface, not pyplot: no window system is looked for and no state is left.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, column, label, marker in (
        (left, "validation_accuracy", "validation", "o"),
        (right, "train_loss", "training", "."),
        (right, "validation_loss", "validation", "o"),
    ):
        points = [(row["step"], row[column]) for row in rows if column in row]
        axes.plot([x for x, _ in points], [y for _, y in points], label=label, marker=marker)
    left.axhline(test, color="black", label=f"test, best checkpoint ({test:.1%})")
    left.axhline(chance, linestyle="--", color="grey", label=f"chance level ({chance:.1%})")
    left.set_ylabel("accuracy")
    right.set_ylabel("cross-entropy (nats)")
    for axes in (left, right):
        axes.set_xlabel("optimiser step")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, format="png", dpi=120)
