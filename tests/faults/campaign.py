"""All faults, one after another: progress while it goes on, tables at the end."""

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests import processes
from tests.faults import damage, full_disk
from tests.faults.kills import Whole, chain, draw, run_whole
from tests.faults.lost_rank import CASES, lost_rank
from tests.faults.outcomes import Outcome
from tests.faults.phases import PHASES
from tests.faults.trained import RUNS, best_of, causal, shared

CACHE_SHARES = (0.05, 0.4, 0.9)
LONGER = ("model.safetensors", "all_results.json", "loss_curve.png")
SOURCE = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def campaign(kinds: Sequence[str], kills: int, seed: int, folder: Path | None) -> int:
    """Disturb runs and report.

    Args:
        kinds: of faults.
        kills: at least so many.
        seed: of all that is drawn.
        folder: where to run, or None for a temporary one.

    Returns:
        The exit code.
    """
    # The semaphores of what is killed here are not news.
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker"
    console = Console()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        if "disk" in kinds and not full_disk.can_mount(place):
            raise SystemExit("disk: a tmpfs cannot be mounted here; be root, or leave disk out")
        outcomes = [o for kind in kinds for o in _watched(kind, kills, seed, place, console)]
    if "kills" in kinds:
        console.print(_table_of_kills(outcomes))
    console.print(_table(outcomes))
    bad = [outcome for outcome in outcomes if outcome.wrong]
    for outcome in bad:
        console.print(f"\n{outcome.kind}: {outcome.case}", style="bold red", markup=False)
        console.print(*outcome.wrong, sep="\n", markup=False)
    minutes = (time.monotonic() - begun) / 60
    console.print(f"\n{len(outcomes)} outcomes, {len(bad)} wrong, {minutes:.1f} min, seed {seed}")
    processes.end()
    return 1 if bad else 0


def _watched(kind: str, kills: int, seed: int, place: Path, console: Console) -> Iterator[Outcome]:
    """The outcomes of a kind of faults, counted on the screen."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(kind, total=None)
        total, outcomes = _FAULTS[kind](place / kind, kills, random.Random(seed))
        progress.update(task, total=total)
        for outcome in outcomes:
            progress.advance(task)
            if outcome.wrong:
                progress.console.print(f"WRONG {outcome.case}: {outcome.wrong}", markup=False)
            yield outcome


Planned = tuple[int | None, Iterator[Outcome]]


def _kills(place: Path, kills: int, choice: random.Random) -> Planned:
    return None, _chains(place, kills, choice)


def _chains(place: Path, kills: int, choice: random.Random) -> Iterator[Outcome]:
    """Chains of kills, recipe by recipe in turn, until there are enough."""
    wholes = [run_whole(make(place / "given" / name), place / name) for name, make in RUNS.items()]
    done = 0
    while done < kills:
        for at, whole in enumerate(wholes):
            folder = place / f"{done}-{at}"
            for outcome in chain(whole, partial(draw, whole, choice), folder):
                done += outcome.kind == "kill"
                yield outcome


def _disk(place: Path, kills: int, choice: random.Random) -> Planned:
    whole = _whole(place)
    output = full_disk.output_cases(whole)
    cases = [
        *((full_disk.output_full, name) for name in output),
        *((full_disk.longer_full, name) for name in LONGER),
        *((full_disk.cache_full, share) for share in CACHE_SHARES),
    ]
    made = (make(whole, what, place / str(at)) for at, (make, what) in enumerate(cases))
    return len(cases), made


def _damage(place: Path, kills: int, choice: random.Random) -> Planned:
    whole, best = _whole(place), run_whole(best_of(place / "given-best"), place / "whole-best")
    every = list(damage.DAMAGES)
    plain = [way for way in every if way != "flipped"]  # a flipped bit of a text may say nothing
    checkpoint = sorted(path.name for path in (whole.run / "checkpoint-8").iterdir())
    finished = sorted(path.name for path in whole.run.iterdir() if path.is_file())
    cases = [
        *((damage.in_checkpoint, name, way) for name in checkpoint for way in every),
        # Without its checksums an older checkpoint is one that never had any.
        *((damage.in_best, n, choice.choice(every)) for n in checkpoint if n != "checksums.json"),
        *((damage.in_finished, name, choice.choice(every)) for name in finished),
        *((damage.in_source, name, choice.choice(plain)) for name in SOURCE),
        *((damage.in_cache, name, choice.choice(every)) for name in damage.cache_files(whole)),
    ]
    made = (
        make(
            best if make is damage.in_best else whole,
            name,
            way,
            place / str(at),
            choice.randrange(1 << 30),
        )
        for at, (make, name, way) in enumerate(cases)
    )
    return len(cases), made


def _ranks(place: Path, kills: int, choice: random.Random) -> Planned:
    whole = run_whole(shared(place / "given"), place / "whole")
    made = (
        lost_rank(whole, rank, phase, place / str(at), choice.randrange(1 << 30))
        for at, (rank, phase) in enumerate(CASES)
    )
    return len(CASES), made


_FAULTS = {"kills": _kills, "disk": _disk, "damage": _damage, "ranks": _ranks}


def _whole(place: Path) -> Whole:
    return run_whole(causal(place / "given"), place / "whole")


def _table_of_kills(outcomes: Sequence[Outcome]) -> Table:
    """How many kills fell into each phase of each recipe."""
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        if outcome.kind == "kill":
            counts[outcome.case.partition(":")[0], outcome.saw] += 1
    table = Table(title="Kills by what the run was doing")
    for column in ("phase", *RUNS, "all"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for phase in PHASES:
        numbers = [counts[recipe, phase] for recipe in RUNS]
        table.add_row(phase, *map(str, numbers), str(sum(numbers)))
    totals = [sum(n for (r, _), n in counts.items() if r == recipe) for recipe in RUNS]
    table.add_row("all", *map(str, totals), str(sum(totals)), style="bold")
    return table


def _table(outcomes: Sequence[Outcome]) -> Table:
    """Each fault but the kills, which are counted."""
    table = Table(title="Faults and what came of them")
    for column in ("fault", "where", "outcome", ""):
        table.add_column(column, overflow="fold")
    killed = [outcome for outcome in outcomes if outcome.kind == "kill"]
    for outcome in outcomes:
        if outcome.kind != "kill":
            verdict = "WRONG" if outcome.wrong else "ok"
            table.add_row(outcome.kind, outcome.case, outcome.saw, verdict)
    if killed:
        bad = sum(bool(outcome.wrong) for outcome in killed)
        said = "nothing lost, nothing said that is not so" if not bad else f"{bad} wrong"
        table.add_row("kill", f"{len(killed)} kills", said, "WRONG" if bad else "ok")
    return table
