"""Runs whose disk is full at a given file: told in one line, and made good when there is room.

The disk is a small file system in memory, so that every writer, in Python or not, gets the system's
own error. Where mounting one is not allowed, there is nothing to see.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.kills import Whole
from tests.faults.outcomes import Outcome
from tests.faults.soundness import complete, differences, is_sealed, lost, snapshot
from tests.faults.started import Started
from tests.faults.words import contradictions

PAGE = 4096
_ROOMY = "64m"
_FULL = "error: No space left on device"


class Disk:
    """A mounted disk.

    Args:
        place: the folder where it is mounted.
    """

    def __init__(self, place: Path) -> None:
        self.place = place

    def leave(self, pages: int) -> None:
        """Make it so small that so many pages are free."""
        used = sum(taken(path) for path in self.place.rglob("*") if path.is_file())
        self._resize(str((used + max(pages, 0)) * PAGE or PAGE))

    def make_room(self) -> None:
        """Make it large."""
        self._resize(_ROOMY)

    def _resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.place)], check=True)


@contextmanager
def disk(place: Path) -> Iterator[Disk]:
    """A disk in memory, mounted at a new folder."""
    place.mkdir(parents=True)
    options = ["-o", f"size={_ROOMY}"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(place)], check=True)
    try:
        yield Disk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def can_mount(folder: Path) -> bool:
    """Whether a disk can be mounted here."""
    try:
        with disk(folder / "trial"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def taken(file: Path) -> int:
    """The pages that a file takes."""
    return -(-file.stat().st_size // PAGE)


def room_before(folder: Path, name: str) -> int:
    """The pages that a run takes until it writes a file, half of which has room then.

    Args:
        folder: what the whole run has written, every file once.
        name: of the file in it.
    """
    files = [path for path in folder.rglob("*") if path.is_file()]
    aimed = folder / name
    when = aimed.stat().st_mtime_ns
    before = sum(taken(path) for path in files if path.stat().st_mtime_ns < when)
    return before + taken(aimed) // 2


def output_cases(whole: Whole) -> list[str]:
    """Files of a later checkpoint, and of all that is written behind it."""
    names = [name for name in snapshot(whole.run) if not name.startswith("checkpoint-")]
    later = snapshot(whole.run / "checkpoint-8")
    # The state of the end is a page; what was there before it is what the last plot has left.
    return [f"checkpoint-8/{name}" for name in later] + names


def output_full(whole: Whole, name: str, folder: Path) -> Outcome:
    """A disk that is full when a file of the output is written."""
    with disk(folder / "disk") as full:
        run = full.place / "run"
        output = ("--output_dir", str(run))
        full.leave(room_before(whole.run, name))
        wrong = _refused(Started(whole.trained, folder, *output))
        before = complete(run)
        full.make_room()
        again = Started(whole.trained, folder, *output)
        code = again.finish()
        wrong += [f"exit code {code} with room: {again.said()[-1500:]}"] if code else []
        wrong += contradictions(again.said(), before, to_the_end=True)
        wrong += lost(before, complete(run))
        wrong += [f"differs in {name}" for name in differences(run, whole.run)] if not code else []
        saw = f"complete: {before.sealed or 'nothing'}, torn: {before.torn or 'nothing'}"
    return Outcome("full disk", f"{whole.trained.recipe}: output, {name}", wrong, saw)


def longer_full(whole: Whole, name: str, folder: Path) -> Outcome:
    """A finished run is made longer, and its disk is full: what was finished is still there."""
    with disk(folder / "disk") as full:
        run = full.place / "run"
        shutil.copytree(whole.run, run)
        before, wrong = snapshot(run), []
        longer = ("--output_dir", str(run), "--max_steps", "17", "--save_strategy", "no")
        # What is there is replaced, and needs its room twice for a moment.
        full.leave(taken(run / name) // 2)
        wrong += _refused(Started(whole.trained, folder, *longer))
        full.make_room()
        wrong += [
            f"{n} was overwritten" for n in _changed(before, snapshot(run)) if n != "run.yaml"
        ]
        wrong += [] if is_sealed(run / "checkpoint-16") else ["checkpoint-16 is no longer sealed"]
        code = Started(whole.trained, folder, *longer).finish()
        wrong += [f"exit code {code} with room"] if code else []
    return Outcome(
        "full disk", f"{whole.trained.recipe}: longer, {name}", wrong, "what was finished is there"
    )


def cache_full(whole: Whole, share: float, folder: Path) -> Outcome:
    """A disk that is full when a part of the cache of `datasets` is written."""
    pages = sum(taken(path) for path in (whole.run.parent / "cache").rglob("*") if path.is_file())
    with disk(folder / "disk") as full:
        full.leave(int(pages * share))
        wrong = _refused(Started(whole.trained, folder, cache=full.place))
        run = folder / "run"
        wrong += ["something was written into the output"] if run.exists() else []
        full.make_room()
        again = Started(whole.trained, folder, cache=full.place)
        code = again.finish()
        wrong += [f"exit code {code} with room: {again.said()[-1500:]}"] if code else []
        wrong += [f"differs in {name}" for name in differences(run, whole.run)] if not code else []
    return Outcome(
        "full disk", f"{whole.trained.recipe}: cache at {share:.0%}", wrong, "made again"
    )


def _refused(started: Started) -> list[str]:
    """What is wrong with a start that finds no room."""
    code, said = started.finish(), started.said()
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    wrong = [] if code == 1 else [f"exit code {code}"]
    if "Traceback" in said:
        wrong.append(f"a traceback: {said[-1500:]}")
    if len(lines) != 1 or not lines[0].startswith(_FULL):
        wrong.append(f"said {lines or said[-500:]}")
    return wrong


def _changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [name for name, content in before.items() if after.get(name) != content]
