"""Files that are cut off, flipped in a bit, emptied or gone: told, and nothing else is touched."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.faults.kills import Whole
from tests.faults.outcomes import Outcome
from tests.faults.soundness import MODEL_FILES, complete, differences, snapshot
from tests.faults.started import Started
from tests.faults.words import contradictions


def _cut(file: Path, choice: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: choice.randrange(1, max(len(content), 2))])


def _flip(file: Path, choice: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[choice.randrange(len(content))] ^= 1 << choice.randrange(8)
    file.write_bytes(content)


def _empty(file: Path, choice: random.Random) -> None:
    file.write_bytes(b"")


def _delete(file: Path, choice: random.Random) -> None:
    file.unlink()


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "cut": _cut,
    "flipped": _flip,
    "emptied": _empty,
    "deleted": _delete,
}


def in_checkpoint(whole: Whole, name: str, damage: str, folder: Path, seed: int) -> Outcome:
    """Damage to a file of the newest checkpoint, with an older one beside it.

    The start refuses it by name, touches nothing, and goes on from the older one when it is told
    to; or, where the checkpoint only looks as if its saving was interrupted, passes over it.
    """
    case = f"{whole.trained.recipe}: checkpoint-8/{name} {damage}"
    run = _stopped_at_8(whole, folder)
    DAMAGES[damage](run / "checkpoint-8" / name, random.Random(seed))
    before, state = snapshot(run), complete(run)
    started = Started(whole.trained, folder)
    code = started.finish()
    if code == 0:
        wrong = contradictions(started.said(), state, to_the_end=True)
        wrong += [f"differs in {n}" for n in differences(run, whole.run)]
        return Outcome("damage", case, wrong, "passed over, ends to the bit")
    wrong = _refusal(started, code, run / "checkpoint-8", "delete the folder")
    wrong += [] if snapshot(run) == before else ["something was changed"]
    shutil.rmtree(run / "checkpoint-8")
    return Outcome("damage", case, wrong + _goes_on(whole, folder), "refused, then from 4")


def in_best(whole: Whole, name: str, damage: str, folder: Path, seed: int) -> Outcome:
    """Damage to a file of the best checkpoint, which is older than the newest.

    The start refuses it by name, touches nothing, and goes on when a sound one was put back.
    """
    case = f"{whole.trained.recipe}: {name} of the best checkpoint {damage}"
    run = _stopped_at_8(whole, folder)
    best = run / "checkpoint-4"
    DAMAGES[damage](best / name, random.Random(seed))
    before = snapshot(run)
    started = Started(whole.trained, folder)
    wrong = _refusal(started, started.finish(), best, "put a sound one back")
    wrong += [] if snapshot(run) == before else ["something was changed"]
    shutil.rmtree(best)
    shutil.copytree(whole.run / "checkpoint-4", best)
    return Outcome("damage", case, wrong + _goes_on(whole, folder, 8), "refused, then from 8 again")


def in_finished(whole: Whole, name: str, damage: str, folder: Path, seed: int) -> Outcome:
    """Damage to a file of the finished run: seen where it matters, and made good as told."""
    case = f"{whole.trained.recipe}: {name} of the finished run {damage}"
    shutil.copytree(whole.run, folder / "run")
    shutil.copytree(whole.run.parent / "cache", folder / "cache")
    run = folder / "run"
    DAMAGES[damage](run / name, random.Random(seed))
    before = snapshot(run)
    started = Started(whole.trained, folder)
    code, said = started.finish(), started.said()
    if code == 0 and "finished; nothing was changed" not in said:
        wrong = [f"differs in {n}" for n in differences(run, whole.run)]
        return Outcome("damage", case, wrong, "completed again, to the bit")
    wrong = [] if snapshot(run) == before else ["something was changed"]
    if code != 0:
        # A flipped bit may have made it the arguments of another run.
        advice = ("put a sound copy in its place", "repeat that run's arguments")
        wrong += _refusal(started, code, run, *advice)
        return Outcome("damage", case, wrong, "refused")
    if f"But {Path('run') / name} is " not in said:
        wrong += ["it is not what was saved, which was not said"] if name in MODEL_FILES else []
        return Outcome("damage", case, wrong, "left as it is")
    (run / "trainer_state.json").unlink()
    return Outcome("damage", case, wrong + _goes_on(whole, folder), "told, then saved again")


def in_source(whole: Whole, name: str, damage: str, folder: Path, seed: int) -> Outcome:
    """Damage to a file of a saved model from which another run is to start."""
    case = f"{whole.trained.recipe}: {name} of --model_name_or_path {damage}"
    source = folder / "source"
    shutil.copytree(whole.run, source, ignore=shutil.ignore_patterns("checkpoint-*"))
    DAMAGES[damage](source / name, random.Random(seed))
    more = ["--model_name_or_path", str(source), "--max_steps", "1"]
    started = Started(whole.trained, folder, *more)
    wrong = _refusal(started, started.finish(), source, "")
    wrong += ["something was written"] if (folder / "run").exists() else []
    return Outcome("damage", case, wrong, "refused")


def in_cache(whole: Whole, name: str, damage: str, folder: Path, seed: int) -> Outcome:
    """Damage to a file of the cache of `datasets`, before a run goes on."""
    case = f"{whole.trained.recipe}: cache/{Path(name).name} {damage}"
    run = _stopped_at_8(whole, folder)
    DAMAGES[damage](folder / "cache" / name, random.Random(seed))
    before = snapshot(run)
    started = Started(whole.trained, folder)
    code = started.finish()
    if code == 0:
        wrong = [f"differs in {n}" for n in differences(run, whole.run)]
        return Outcome("damage", case, wrong, "made again or not needed, to the bit")
    wrong = _refusal(started, code, folder / "cache", "delete that folder", "delete the cache")
    wrong += [] if snapshot(run) == before else ["something was changed"]
    shutil.rmtree(folder / "cache")
    return Outcome("damage", case, wrong + _goes_on(whole, folder, 8), "refused, then made again")


def cache_files(whole: Whole) -> list[str]:
    """The files of the cache, without locks."""
    return [n for n in snapshot(whole.run.parent / "cache") if not n.endswith(".lock")]


def _stopped_at_8(whole: Whole, folder: Path) -> Path:
    """A copy of a run as it was behind its second checkpoint; its folder."""
    run = folder / "run"
    for name in ("checkpoint-4", "checkpoint-8"):
        shutil.copytree(whole.run / name, run / name)
    for name in ("run.yaml", "data.json"):
        shutil.copy2(whole.run / name, run / name)
    shutil.copytree(whole.run.parent / "cache", folder / "cache")
    return run


def _refusal(started: Started, code: int, named: Path, *advice: str) -> list[str]:
    """What is wrong with how a start refuses."""
    said = started.said()
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    wrong = [] if code == 2 else [f"exit code {code}"]
    if "Traceback" in said:
        wrong.append(f"a traceback: {said[-1500:]}")
    told = len(lines) == 1 and named.name in lines[0] and any(words in lines[0] for words in advice)
    return wrong if told else [*wrong, f"said {lines or said[-500:]}"]


def _goes_on(whole: Whole, folder: Path, step: int = 0) -> list[str]:
    """What is wrong with the start after the advice was followed."""
    state = complete(folder / "run")
    wrong = [f"{state.newest} is the newest"] if step and state.newest != step else []
    started = Started(whole.trained, folder)
    code = started.finish()
    if code:
        return [*wrong, f"exit code {code} after it: {started.said()[-1500:]}"]
    wrong += contradictions(started.said(), state, to_the_end=True)
    return wrong + [f"differs in {n} after it" for n in differences(folder / "run", whole.run)]
