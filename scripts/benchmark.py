r"""Measure linear attention against softmax attention, on this machine, in ratios of one run.

    python scripts/benchmark.py                                   # a first look, under two minutes
    python scripts/benchmark.py --suite op --json op.json --plot op.png
    python scripts/benchmark.py --suite compare --official cosformer.py
    python scripts/benchmark.py --suite all --json all.json
    python scripts/benchmark.py --docs all.json                   # the page and its plot, from that

One process, one CPU thread (or one GPU); what is compared runs side by side in every round, in an
order that is drawn anew, ratios are taken within a round, and the median over rounds is shown with
its quartiles. A ratio is the other's time over ours unless it says otherwise.

"""

import argparse
import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from benchmarks import machine
from benchmarks.bench import Bench, Case, Settings
from benchmarks.clock import clock_of
from benchmarks.official import load_official
from benchmarks.plot import draw, has_curves
from benchmarks.report import (
    conditions_line,
    left_out_lines,
    markdown,
    page,
    peers_table,
    rich_table,
)
from benchmarks.results import Results, read_results
from benchmarks.suites import ALL, SUITES
from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.memory import memory_bytes
from hf_linear_attn.training.program import ProgramParser, run_program

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PLOT = "performance.md", "images/performance.png"
_COUNTS = ("rounds", "batch", "heads", "head_dim", "layers")
_MOST = {"tokens": 1_000_000_000, "seed": 2**32 - 1}
_OUTPUTS = ("json", "csv", "markdown", "plot")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def read_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    suites = "\n".join(f"  {name:8} {suite.about}" for name, suite in SUITES.items())
    about = f"{__doc__}suites:\n{suites}\n  all      all of them but quick\n"
    parser = ProgramParser(about, prog="python scripts/benchmark.py")
    add = parser.add_argument
    add("--suite", default="quick", help="one suite, or several as op,memory (default: quick)")
    add("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    add("--dtype", choices=list(DTYPES), help="default: float32 on a CPU, bfloat16 on a GPU")
    add("--rounds", type=int, default=7, help="rounds that count (default: 7)")
    add("--lengths", help="tokens, such as 1024,4096, instead of each suite's own")
    add("--batch", type=int, default=1, help="rows (default: 1)")
    add("--heads", type=int, default=12, help="attention heads (default: 12)")
    add("--head_dim", type=int, default=64, help="width of a head (default: 64)")
    add("--layers", type=int, default=12, help="layers of the models of suite model (default: 12)")
    add("--tokens", type=int, default=100_000, help="text of suite decode (default: 100000)")
    add("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    add("--official", type=Path, metavar="PATH", help="cosformer.py of the authors' repository; "
        "the file is run as Python code")  # fmt: skip
    files = parser.add_argument_group("files to write")
    files.add_argument("--json", type=Path, metavar="FILE", help="everything that was measured")
    files.add_argument("--csv", type=Path, metavar="FILE", help="the same, a line a figure")
    files.add_argument("--markdown", type=Path, metavar="FILE", help="tables")
    files.add_argument("--plot", type=Path, metavar="FILE", help="PNG: time and memory by length")
    files.add_argument("--docs", type=Path, nargs="+", metavar="JSON", help="measure nothing: "
        "write the page performance.md in docs and its plot from files of --json")  # fmt: skip
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Measure, show, write; or write the page of results."""
    args = read_arguments(argv)
    console = Console()
    if args.docs is not None:
        if args != read_arguments(["--docs", *map(str, args.docs)]):
            raise ValueError("--docs measures nothing: give it alone, with files of --json")
        _write_page(console, args.docs)
        return
    settings, names = read_settings(args), suite_names(args.suite)
    _check(args, settings, names)
    if settings.device.type == "cpu":
        torch.set_num_threads(1)
    written: list[Path] = []

    def keep(found: Results) -> None:
        written[:] = _write(args, found)

    results = measure(console, settings, names, keep)
    _show(console, results, written)
    _show_next(console, args, names)


def suite_names(text: str) -> list[str]:
    """The suites of --suite.

    Raises:
        ValueError: an unknown one.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (*SUITES, "all"):
            raise ValueError(
                f"--suite {name!r} is unknown{did_you_mean(name, [*SUITES, 'all'])}; there are "
                f"{', '.join(SUITES)} and all"
            )
    chosen = [one for name in names for one in (ALL if name == "all" else (name,))]
    return list(dict.fromkeys(chosen))


def read_settings(args: argparse.Namespace) -> Settings:
    """The settings of the command line.

    Raises:
        ValueError: a number that is too small or too large, a list that is none, a device that is
            not there.
    """
    # A text has a token behind its prompt.
    for name, least in {**dict.fromkeys(_COUNTS, 1), "tokens": 2, "seed": 0}.items():
        number, most = getattr(args, name), _MOST.get(name, 1_000_000)
        if not least <= number <= most:
            raise ValueError(
                f"--{name} is {number}; it must be at least {least} and at most {most}"
            )
    _check_memory(args)
    device = _device(args.device)
    own = "bfloat16" if device.type == "cuda" else "float32"
    settings = Settings(device, DTYPES[args.dtype or own])
    fields = {f.name for f in dataclasses.fields(Settings)} - {"device", "dtype", "lengths"}
    return dataclasses.replace(
        settings, lengths=_lengths(args.lengths), **{name: getattr(args, name) for name in fields}
    )


def _check_memory(args: argparse.Namespace) -> None:
    """What is measured is drawn first: one tensor of it has to fit."""
    longest = max(_lengths(args.lengths) or (1,))
    needed = 4 * args.batch * args.heads * args.head_dim * longest
    if needed > memory_bytes():
        raise ValueError(
            f"--batch {args.batch}, --heads {args.heads}, --head_dim {args.head_dim} and {longest} "
            f"tokens: one tensor takes {needed / 1e9:,.1f} GB, and this machine has "
            f"{memory_bytes() / 1e9:,.1f} GB of memory; lower them"
        )


def _lengths(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        lengths = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        lengths = ()
    if not lengths or lengths[0] < 1:
        raise ValueError(f"--lengths is {text!r}; give numbers of tokens, such as 1024,4096")
    return lengths


def _device(text: str) -> torch.device:
    try:
        device = torch.device(text)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device {text!r} is unknown; there are cpu, cuda and cuda:N")
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():
            raise ValueError(
                f"--device {text}: PyTorch sees {torch.cuda.device_count()} GPUs here; install a "
                "CUDA build of it, or leave --device out"
            )
        # Events and memory counters are those of the current one.
        torch.cuda.set_device(device)
    return device


def _check(args: argparse.Namespace, settings: Settings, names: list[str]) -> None:
    """Mistakes that would show only after everything was measured."""
    if settings.official is not None:
        if "compare" not in names:
            raise ValueError("--official belongs to suite compare; add it to --suite")
        load_official(settings.official)
    if args.plot is not None and not any(SUITES[name].draws for name in names):
        raise ValueError("--plot shows what suites op, memory and quick measure; add one of them")
    if args.plot is not None and args.plot.suffix.lower() != ".png":
        raise ValueError(f"--plot {args.plot}: a plot is a PNG; give a name that ends in .png")
    _check_files({name: getattr(args, name) for name in ("official", *_OUTPUTS)})


def _check_files(files: Mapping[str, Path | None]) -> None:
    """Files to write, by option, and one that is read: each is another, and can be written."""
    options: dict[Path, str] = {}
    for name, file in files.items():
        if file is None:
            continue
        other = options.setdefault(file.resolve(), name)
        if other != name:
            raise ValueError(f"--{other} and --{name} name the same file, {file}; give two names")
        if name == "official":
            continue
        if not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
            raise ValueError(f"{file} cannot be written: its folder is not there, or not writable")
        if file.is_dir():
            raise ValueError(f"{file} is a folder; give the name of a file")


def measure(
    console: Console, settings: Settings, names: list[str], keep: Callable[[Results], None]
) -> Results:
    """Run suites one after the other; the console shows how far they are.

    Args:
        console: to print to.
        settings: of all suites.
        names: of `SUITES`.
        keep: given the results after each suite, so that a long run leaves what it has done.
    """
    results = Results()
    suites = {name: SUITES[name].cases(settings) for name in names}
    with _progress(console) as progress:
        total = sum(len(cases) for cases in suites.values())
        task = progress.add_task("the machine", total=total)
        bench = Bench(settings, clock_of(settings.device), results)
        results.conditions = {**machine.describe(bench), "suites": []}
        console.print(Text(conditions_line(results.conditions), style="dim"))
        for name, cases in suites.items():
            for case in cases:
                _run(case, name, bench, progress, task)
            results.conditions["suites"].append(name)
            keep(results)
    return results


def _run(case: Case, suite: str, bench: Bench, progress: Progress, task: TaskID) -> None:
    begun = progress.tasks[task].completed
    rounds = bench.settings.rounds

    def on_round(done: int) -> None:
        words = f"{suite}: {case.title}, round {done} of {rounds}"
        progress.update(task, description=words, completed=begun + done / (rounds + 1))

    progress.update(task, description=f"{suite}: {case.title}")
    case.run(dataclasses.replace(bench, on_round=on_round))
    progress.update(task, completed=begun + 1)


def _progress(console: Console) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("{task.description}"), console=console)


def _write(args: argparse.Namespace, results: Results) -> list[Path]:
    """Write what is asked for; the files that are there now."""
    written = []
    for file, text in (
        (args.json, results.to_json),
        (args.csv, results.to_csv),
        (args.markdown, lambda: markdown(results)),
    ):
        if file is not None:
            write_atomically(file, text())
            written.append(file)
    # Suites that draw nothing may come first.
    if args.plot is not None and has_curves(results):
        draw(results, args.plot)
        written.append(args.plot)
    return written


def _write_page(console: Console, files: list[Path]) -> None:
    """The page from the results of all files, the plot from those of the first."""
    runs = [read_results(file) for file in files]
    (DOCS / PLOT).parent.mkdir(parents=True, exist_ok=True)
    draw(runs[0], DOCS / PLOT)
    write_atomically(DOCS / PAGE, page(runs, PLOT))
    for file in (DOCS / PAGE, DOCS / PLOT):
        console.print(f"wrote {os.path.relpath(file)}", soft_wrap=True, highlight=False)


def _show(console: Console, results: Results, written: list[Path]) -> None:
    """Tables, and the files that have them."""
    console.print(rich_table(results))
    if results.peers:
        console.print(peers_table(results))
    for line in left_out_lines(results):
        console.print(Text(line), soft_wrap=True)
    if written:
        console.print(Text(f"Wrote {', '.join(map(str, written))}"), soft_wrap=True)


def _show_next(console: Console, args: argparse.Namespace, names: list[str]) -> None:
    """The command to run next."""
    purpose, command = _next_command(args, names)
    console.print(Text(f"\n# {purpose}", style="dim"), soft_wrap=True)
    console.print(Text(command), soft_wrap=True)


def _next_command(args: argparse.Namespace, names: list[str]) -> tuple[str, str]:
    program = ["python", os.path.relpath(__file__)]
    if args.json is not None and any(SUITES[name].draws for name in names):
        return "the page of results, from this run", shlex.join(
            [*program, "--docs", str(args.json)]
        )
    device = [] if args.device == "cpu" else ["--device", args.device]
    words = [*program, "--suite", "all", "--json", "all.json", *device]
    return "everything, kept as JSON", shlex.join(words)


if __name__ == "__main__":
    run_program(main, sys.argv[1:])
