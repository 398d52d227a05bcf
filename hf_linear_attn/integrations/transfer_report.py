"""What an attention transfer shows: a table by layer, and the losses over the steps as a plot."""

import math
from pathlib import Path

from rich.table import Table

from hf_linear_attn.integrations.distill import AttentionTransfer
from hf_linear_attn.models.conversion_report import ConversionReport


def transfer_table(result: AttentionTransfer) -> Table:
    """One row a changed layer, and their mean; a layer that got worse is red.

    Args:
        result: of `transfer_attention`.
    """
    alone = result.left_alone
    caption = "‖new − old‖² / ‖old‖² of the attention's output, on held-out text; 0 is perfect."
    if alone:
        caption += f" Left alone, for both models have the same there: layers {_ranges(alone)}."
    if result.undone:
        caption += f" No better, so as they were: layers {_ranges(result.undone)}."
    table = Table(title=f"Attention transfer, {result.steps:,} steps", caption=caption)
    for heading in ("layer", "from", "to"):
        table.add_column(heading)
    for heading in ("before", "after", "after / before"):
        table.add_column(heading, justify="right")
    for i, (old, new) in result.mechanisms.items():
        before, after = result.before[i], result.after[i]
        style = "red" if i in result.undone else ""
        table.add_row(str(i), old, new, *_figures(before, after), style=style)
    table.add_section()
    means = [math.fsum(by.values()) / len(by) for by in (result.before, result.after)]
    table.add_row("mean", "", "", *_figures(*means), style="bold")
    return table


def transfer_markdown(result: AttentionTransfer) -> str:
    """The same as a section of a page.

    Args:
        result: of `transfer_attention`.
    """
    lines = [
        "## Attention transfer",
        "",
        f"{result.steps:,} steps at a peak learning rate of {result.learning_rate:g}, projections "
        f"{result.trained!r} of each new attention; ‖new − old‖² / ‖old‖² of its output "
        "on held-out text.",
        "",
        "| layer | from | to | before | after | after / before |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for i, (old, new) in result.mechanisms.items():
        figures = _figures(result.before[i], result.after[i])
        lines.append(" | ".join([f"| {i}", old, new, *figures]) + " |")
    means = [math.fsum(by.values()) / len(by) for by in (result.before, result.after)]
    lines.append(" | ".join(["| mean", "", "", *_figures(*means)]) + " |")
    for words, layers in (
        ("Alike in both models and left alone", result.left_alone),
        ("No better behind the last step and left as they were", result.undone),
    ):
        if layers:
            lines += ["", f"{words}: layers {_ranges(layers)}."]
    return "\n".join(lines) + "\n"


def _figures(before: float, after: float) -> tuple[str, str, str]:
    share = f"{after / before:.2f}" if before else "–"
    return f"{before:.4f}", f"{after:.4f}", share


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers in words: 0–2, 5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)


def plot_transfer(result: AttentionTransfer, path: str | Path) -> None:
    """Draw each layer's loss over the steps, first layers dark, last ones bright.

    Args:
        result: of `transfer_attention`.
        path: picture to write; its suffix decides the format.
    """
    # The object interface, not pyplot: no window system is looked for and no state is left.
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    axes = figure.subplots()
    colors = colormaps["viridis"].resampled(max(len(result.losses), 2))
    for place, (i, losses) in enumerate(result.losses.items()):
        steps = range(1, len(losses) + 1)
        axes.plot(steps, losses, color=colors(place), linewidth=1, label=f"layer {i}")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("‖new − old‖² / ‖old‖²")
    axes.set_title(f"Attention transfer, learning rate {result.learning_rate:g}")
    axes.grid(alpha=0.3, which="both")
    columns = math.ceil(len(result.losses) / 16)
    figure.legend(loc="outside right upper", fontsize="small", ncols=columns)
    figure.savefig(path, dpi=120)


def mark_fitted(report: ConversionReport, result: AttentionTransfer) -> None:
    """Let a conversion's report say which tensors were fitted, and not that they were copied.

    Args:
        report: of the student; it is changed.
        result: of `transfer_attention`.
    """
    changed = [i for i in result.mechanisms if i not in result.undone]
    names = {f"{letter}_proj" for letter in result.trained}
    names |= {f"{letter}_norm" for letter in result.trained if letter in "qk"} | {"mechanism"}
    said = "then fitted by attention transfer"

    def is_fitted(tensor: str) -> bool:
        _, layer, inside = f".{tensor}".partition(".layers.")
        parts = inside.split(".")
        return bool(layer) and int(parts[0]) in changed and parts[2] in names

    for name, filled in report.filled.items():
        if is_fitted(name):
            how = f"{filled.how}, {said}" if filled.how else said
            report.filled[name] = filled._replace(how=how)
    report.new |= {n: f"{why}; {said}" for n, why in report.new.items() if is_fitted(n)}
    report.notes.append(
        f"the attention of {len(changed)} layers was fitted to the old one in {result.steps:,} "
        f"steps of attention transfer (projections {result.trained!r}, and the mechanism's own "
        f"weights); {len(result.undone)} layers were no better for it and are as they were."
    )
