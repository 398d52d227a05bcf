"""One process of two is killed: the other ends, and the run goes on from what is complete."""

import random
import time
from pathlib import Path

from tests.faults.kills import Whole
from tests.faults.outcomes import Outcome
from tests.faults.soundness import complete, differences
from tests.faults.started import Started
from tests.faults.words import contradictions

BOUND = 60  # seconds in which the other process has to end
CASES = [
    (0, "training"),
    (1, "training"),
    (0, "writing a checkpoint"),
    (1, "writing a checkpoint"),
    (1, "evaluation"),
]
_TOLD = "error: another process of this run has ended"


def lost_rank(whole: Whole, rank: int, phase: str, folder: Path, seed: int) -> Outcome:
    """Kill one process when it is seen in a phase, look at the other, and start both again.

    Args:
        whole: the run of two processes undisturbed.
        rank: which is killed.
        phase: when.
        folder: new.
        seed: of the moment.
    """
    choice = random.Random(seed)
    started = Started(whole.trained, folder, rank=rank)
    while not _has_a_checkpoint(folder) or started.phase() != phase:
        assert not started.wait(0.01), f"it ended before {phase} was seen"
    # A step is over in no time.
    time.sleep(choice.uniform(0, whole.phases[phase] if phase != "training" else 0))
    phase = started.phase()
    wrong = [] if started.kill(group=True) else ["it had ended"]
    killed = time.monotonic()
    [code] = started.others_end(BOUND)
    seconds = time.monotonic() - killed
    wrong += _ended_well(code, started.said(1 - rank))
    before = complete(folder / "run")
    again = Started(whole.trained, folder)
    code = again.finish()
    wrong += [f"exit code {code} of the next start: {again.said()[-1500:]}"] if code else []
    wrong += contradictions(again.said(), before, to_the_end=True)
    wrong += [f"differs in {n}" for n in differences(folder / "run", whole.run)] if not code else []
    saw = f"the other ended after {seconds:.1f} s; from {before.newest}, to the bit"
    return Outcome("lost rank", f"rank {rank} in {phase}", wrong, saw)


def _has_a_checkpoint(folder: Path) -> bool:
    return (folder / "run" / "checkpoint-4" / "checksums.json").is_file()


def _ended_well(code: int | None, said: str) -> list[str]:
    if code is None:
        return [f"the other process did not end within {BOUND} s"]
    wrong = [] if code == 1 else [f"exit code {code} of the other process"]
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    if len(lines) != 1 or not lines[0].startswith(_TOLD) or "Traceback" in said:
        wrong.append(f"the other process said {lines}: {said[-1500:]}")
    return wrong
