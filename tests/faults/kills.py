"""Runs that are killed again and again until they are through, and must not show it.

Half of the kills come at a moment drawn over the whole time that a run takes; the others wait until
the run is seen in a phase that was drawn, most of which are short, and strike at a moment drawn
over the time that it takes.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.outcomes import Outcome
from tests.faults.phases import STARTING
from tests.faults.soundness import Complete, complete, differences, lost
from tests.faults.started import Started
from tests.faults.trained import Trained
from tests.faults.words import contradictions

MOST_IN_A_CHAIN = 6
_AIMED = 0.5  # the share of kills that wait for a phase
_LOOK = 0.01  # seconds between two looks at a run


@dataclass
class Whole:
    """The uninterrupted run.

    Attributes:
        trained: what was run.
        run: its folder.
        seconds: how long such a run takes; it follows the load of the machine.
        phases: each phase with the seconds that it took the longest time it came.
    """

    trained: Trained
    run: Path
    seconds: float
    phases: dict[str, float]


@dataclass(frozen=True)
class Moment:
    """When to kill.

    Attributes:
        delay: in seconds, from the start or from the beginning of the phase.
        phase: to be waited for; None counts from the start.
        group: the workers are killed, too.
    """

    delay: float
    phase: str | None = None
    group: bool = False

    def __str__(self) -> str:
        what = "the group" if self.group else "it"
        return f"{what} {self.delay:.2f} s into {self.phase or 'the run'}"


def run_whole(trained: Trained, folder: Path) -> Whole:
    """Run without a disturbance, and see what takes how long."""
    started = Started(trained, folder)
    seen: dict[str, float] = defaultdict(float)
    phase, since = STARTING, time.monotonic()
    while not started.wait(_LOOK):
        now = started.phase()
        if now != phase:
            phase, since = now, time.monotonic()
        seen[phase] = max(seen[phase], time.monotonic() - since + _LOOK)
    code = started.finish()
    assert code == 0, f"{trained.recipe} does not run:\n{started.said()}"
    return Whole(trained, folder / "run", time.monotonic() - started.begun, dict(seen))


def draw(whole: Whole, choice: random.Random, before: Complete) -> Moment | None:
    """A moment at random; None for a run that is finished.

    Args:
        whole: the run undisturbed.
        choice: of the moment.
        before: what is complete; a run that goes on trains no tokenizer.
    """
    if before.finished:
        return None
    group = choice.random() < 0.5
    if choice.random() >= _AIMED:
        return Moment(choice.uniform(0, whole.seconds), None, group)
    never = {STARTING, "tokenizer"} if before.newest else {STARTING}
    phase = choice.choice(sorted(set(whole.phases) - never))
    return Moment(choice.uniform(0, whole.phases[phase]), phase, group)


def kill_at(started: Started, moment: Moment) -> str | None:
    """Kill at a moment; in which phase it was, or None where it ended before."""
    if moment.phase is not None:
        while started.phase() != moment.phase:
            if started.wait(_LOOK / 5):
                return None
        aimed = time.monotonic()
    else:
        aimed = started.begun
    if started.wait(aimed + moment.delay - time.monotonic()):
        return None
    phase = started.phase()
    return phase if started.kill(group=moment.group) else None


def chain(
    whole: Whole, choose: Callable[[Complete], Moment | None], folder: Path
) -> Iterator[Outcome]:
    """Start a run and kill it, again and again, until it ends by itself.

    Args:
        whole: the run undisturbed.
        choose: the moment of the next kill, from what is complete; None lets the run end.
        folder: new; it is to hold the run.

    Yields:
        An outcome a kill, as soon as it is known; the last one says how the run ended.
    """
    killed: list[str] = []
    while True:
        before = complete(folder / "run")
        moment = choose(before) if len(killed) < MOST_IN_A_CHAIN else None
        started = Started(whole.trained, folder)
        phase = None if moment is None else kill_at(started, moment)
        if phase is None:
            yield _ended(whole, started, before, folder / "run", killed)
            if not killed or started.seconds > whole.seconds:
                whole.seconds = started.seconds
            return
        killed.append(phase)
        wrong = [] if started.workers_end() else ["its workers live on"]
        after = complete(folder / "run")
        wrong += lost(before, after) + contradictions(started.said(), before, to_the_end=False)
        yield Outcome("kill", f"{whole.trained.recipe}: {moment}", wrong, phase)


def _ended(
    whole: Whole, started: Started, before: Complete, run: Path, killed: list[str]
) -> Outcome:
    """What the start that was not killed has made of the run."""
    code = started.finish()
    wrong = [] if code == 0 else [f"exit code {code}: {started.said()[-2000:]}"]
    if code == 0:
        wrong += contradictions(started.said(), before, to_the_end=True)
        wrong += [f"differs in {name}" for name in differences(run, whole.run)]
    case = f"{whole.trained.recipe} after {len(killed)} kills ({', '.join(killed)})"
    return Outcome("end", case, wrong, "to the bit" if not wrong else "")
