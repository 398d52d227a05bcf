"""What a run shows: tables on the screen and in Markdown, and the page of all results."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.results import Ratio, Results, better
from benchmarks.suites import SUITES

_COLUMNS = ("key", "ratio", "quartiles", "better", "what")


def conditions_line(conditions: dict[str, Any]) -> str:
    """The conditions of a run in a sentence or two."""
    c = conditions
    sizes = f"batch {c['batch']}, {c['heads']} heads of {c['head_dim']}, {c['dtype']}"
    gemm = f"{c['gemm_gflops']:,.0f} GFLOP/s in a product of {c['gemm_size']}² matrices"
    load = ", ".join(f"{x:g}" for x in c["load_average_at_start"])
    return (
        f"{c['device']}; {sizes}; median of {c['rounds']} interleaved rounds by "
        f"{c['clock']}, seed {c['seed']}. Measured in the same process: {gemm}, "
        f"{c['copy_gbytes_per_second']:.1f} GB/s of copying (read and written). torch "
        f"{c['torch']}, transformers {c['transformers']}, Python {c['python']}; backend "
        f"{c['backend']}; MALLOC_MMAP_THRESHOLD_ {c['mmap_threshold'] or 'unset'}; load average "
        f"at the start {load}."
    )


def ratio_cells(key: str, ratio: Ratio) -> tuple[str, str, str, str, str]:
    """The cells of a result."""
    spread = "–"
    if ratio.lower is not None and ratio.upper is not None:
        spread = f"{_number(ratio.lower)} … {_number(ratio.upper)}"
    return key, _number(ratio.value), spread, better(ratio), ratio.what


def _number(value: float) -> str:
    """Three digits that count, without an exponent where a reader needs none."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        digits = 3 if abs(value) < 1 else 2 if abs(value) < 100 else 0
        return f"{value:,.{digits}f}"
    return f"{value:.1e}"


def rich_table(results: Results) -> Table:
    """The results for the screen: what a key means stands in its words, and in the files."""
    table = Table(title="Benchmark", caption="medians over rounds; a ratio is theirs over ours")
    for column in _COLUMNS[:-1]:
        table.add_column(column, justify="left" if column == "key" else "right", no_wrap=True)
    suite = ""
    for key, ratio in results.ratios.items():
        if suite not in ("", key.partition("/")[0]):
            table.add_section()
        suite = key.partition("/")[0]
        table.add_row(*ratio_cells(key, ratio)[:-1])
    return table


def peers_table(results: Results) -> Table:
    """Other packages, with what became of them."""
    table = Table(title="Other packages")
    table.add_column("package")
    table.add_column("")
    for package, status in results.peers.items():
        table.add_row(package, status)
    return table


def left_out_lines(results: Results) -> list[str]:
    """What could not be measured, a line each."""
    return [f"Left out: {key}: {why}" for key, why in results.left_out.items()]


def markdown(results: Results) -> str:
    """Conditions, a table a suite, other packages, what was left out, times."""
    lines = [conditions_line(results.conditions), ""]
    for suite in dict.fromkeys(key.partition("/")[0] for key in results.ratios):
        mine = {k: r for k, r in results.ratios.items() if k.partition("/")[0] == suite}
        lines += [f"### {suite}", "", *_about(suite), *_rows(_COLUMNS)]
        for key, ratio in mine.items():
            name, *cells = ratio_cells(key, ratio)
            lines.append(_row((f"`{name}`", *cells)))
        lines.append("")
    if results.peers:
        lines += ["### Other packages", "", *_rows(("package", ""))]
        lines += [_row(item) for item in results.peers.items()] + [""]
    for line in left_out_lines(results):
        lines += [f"{line}.", ""]
    return "\n".join([*lines, *_measured(results)]).rstrip("\n") + "\n"


def _about(suite: str) -> list[str]:
    if suite not in SUITES:
        return []
    about = SUITES[suite].about
    return [f"{about[0].upper()}{about[1:]}.", ""]


def _measured(results: Results) -> list[str]:
    """Seconds and bytes, which the ratios were made of."""
    lines: list[str] = []
    if results.times:
        lines += ["### Times", "", *_rows(("key", "milliseconds", "quartiles"))]
        for key, t in results.times.items():
            low, middle, high = (_number(1000 * x) for x in (t.lower, t.median, t.upper))
            lines.append(_row((f"`{key}`", middle, f"{low} … {high}")))
        lines.append("")
    if results.sizes:
        lines += ["### Memory", "", *_rows(("key", "MiB"))]
        lines += [_row((f"`{k}`", _number(size / 2**20))) for k, size in results.sizes.items()]
    return lines


def page(runs: Sequence[Results], plot: str) -> str:
    """The page of all results, in Markdown.

    Args:
        runs: such as one of a CPU and one of a GPU; runs of one device that follow each other
            share a section.
        plot: path of the figure, from the page.
    """
    lines = [
        "# Performance",
        "",
        "What linear attention costs beside softmax attention, by `scripts/benchmark.py`: one "
        "process, one CPU thread or one GPU; what is compared runs side by side in every round, in "
        "an order that is drawn anew, ratios are taken within a round, and the median over rounds "
        "is shown with its quartiles. A ratio is the other's time over ours unless it says "
        "otherwise. Times of two pages or two machines cannot be compared, ratios of one run can.",
        "",
        f"![Time and memory against length]({plot})",
        "",
    ]
    device = ""
    for results in runs:
        if results.conditions["device"] != device:
            device = results.conditions["device"]
            lines += [f"## {device}", ""]
        lines.append(markdown(results))
    lines += [_HOW_TO]
    return "\n".join(lines)


_HOW_TO = """\
## Measure it yourself

```
python scripts/benchmark.py --suite quick                   # a first look, within two minutes
python scripts/benchmark.py --suite all --json mine.json    # everything
python scripts/benchmark.py --suite op --device cuda        # on a GPU
```

On Linux a process that takes and frees large tensors again and again may spend up to two thirds
of its time on fresh pages; `MALLOC_MMAP_THRESHOLD_=4294967296` in the environment keeps them. It
was set here only where the conditions say so.
"""


def _rows(columns: Sequence[str]) -> list[str]:
    return [_row(columns), "|" + " --- |" * len(columns)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
