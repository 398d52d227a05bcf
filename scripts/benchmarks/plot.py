"""Time and memory against length, from the keys of a run's results."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.results import Results

# As in the other plots of the repository: models in the cycle's colours, what they are compared
# with black or grey and dashed.
_STYLES: dict[str, dict[str, Any]] = {
    "softmax": {"label": "softmax (SDPA)", "color": "black", "linestyle": "--"},
    "eager_softmax": {"label": "softmax (eager)", "color": "grey", "linestyle": ":"},
    "cosformer": {"label": "cosFormer", "color": "C0"},
    "linear_transformer": {"label": "Linear Transformer", "color": "C1"},
    "nystrom": {"label": "Nyström", "color": "C2"},
}
_MIB = 2**20


def has_curves(results: Results) -> bool:
    """There is something to draw."""
    return any(curves for _, _, curves in _panels(results))


def draw(results: Results, file: Path) -> None:
    """Write a PNG with a panel for each quantity that was measured, on logarithmic axes.

    Args:
        results: of a run with suite op, memory or quick.
        file: in an existing folder.

    Raises:
        ValueError: nothing in the results has a length.
    """
    # The object interface, not pyplot: no window system is looked for and no state is left.
    from matplotlib.figure import Figure

    panels = [panel for panel in _panels(results) if panel[2]]
    if not panels:
        raise ValueError("nothing to plot: time and memory by length come from suite op and memory")
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns + 0.4, 3.6 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    places = list(grid.flat)
    for axes, (title, label, curves) in zip(places, panels, strict=False):
        _panel(axes, title, label, curves)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    _legend(figure, places)
    figure.savefig(file, dpi=120)


def _panels(results: Results) -> list[tuple[str, str, dict[str, dict[int, float]]]]:
    """Title, label of the y axis, and curves by name: value by length."""
    found = []
    for kind in ("causal", "bidirectional"):
        times = {key: time.median * 1000 for key, time in results.times.items()}
        curves = _curves(times, f"op/{kind}/")
        found.append((f"{kind}: time, forward + backward", "milliseconds", curves))
    for kind in ("causal", "bidirectional"):
        sizes = {key: size / _MIB for key, size in results.sizes.items()}
        curves = _curves(sizes, f"memory/peak/{kind}/")
        found.append((f"{kind}: peak memory, forward + backward", "MiB", curves))
    return found


def _curves(values: Mapping[str, float], prefix: str) -> dict[str, dict[int, float]]:
    curves: dict[str, dict[int, float]] = {}
    for key, value in values.items():
        if key.startswith(prefix):
            name, length = key.removeprefix(prefix).split("/")
            curves.setdefault(name, {})[int(length)] = value
    return curves


def _panel(axes, title: str, label: str, curves: Mapping[str, Mapping[int, float]]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    lengths = sorted({length for curve in curves.values() for length in curve})
    for name, style in _STYLES.items():
        if name in curves:
            points = sorted(curves[name].items())
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", ms=4, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    # Numbers as they are read, also where the axis spans less than a power of ten.
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.12g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axes.set_xlabel("tokens")
    axes.set_ylabel(label)
    axes.set_title(title, fontsize="medium")
    axes.grid(alpha=0.3)


def _legend(figure, places: list) -> None:
    """One for all panels, in the order of the styles."""
    shown = {}
    for axes in places:
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, line)
    labels = [s["label"] for s in _STYLES.values() if s["label"] in shown]
    handles = [shown[label] for label in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
