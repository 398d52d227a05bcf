"""Whether a program answers a wrong input as it should."""

from pathlib import Path

from tests.hostile.case import Case, holds
from tests.hostile.programs import Answer, Server


def fault(server: Server, case: Case, folder: Path) -> tuple[Answer, str | None]:
    """Run a case in its prepared folder.

    Returns:
        What the program left behind, and what is wrong with it, if anything.
    """
    before = snapshot(folder)
    answer = server.run(case, folder, folder.with_name(f"{folder.name}-streams"))
    if case.works:
        good = answer.code == 0 and holds(answer.out, case.says)
        return answer, None if good else f"exit code {answer.code}, not 0 and {case.says!r}"
    wrong = refusal_fault(answer, case.says)
    if wrong is None and snapshot(folder) != before:
        wrong = "files were changed"
    return answer, wrong


def refusal_fault(answer: Answer, says: str) -> str | None:
    """What is wrong with a refusal: exit code 2, one line and no traceback are wanted."""
    if answer.code != 2:
        return f"exit code {answer.code}, not 2"
    if "Traceback" in answer.err + answer.out:
        return "a traceback"
    lines = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    if len(lines) != 1 or answer.err.splitlines()[-1] != lines[0]:
        return f"{len(lines)} lines of error, or others behind it"
    if not holds(lines[0], says):
        return f"not {says!r}"
    return None


def last_line(answer: Answer) -> str:
    """The end of a program's answer."""
    return (answer.err.strip().splitlines() or [""])[-1]


def snapshot(folder: Path) -> dict[str, bytes]:
    """Everything below a folder: names, kinds and contents."""
    return {str(path): _content(path) for path in sorted(folder.rglob("*"))}


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return b"link to " + str(path.readlink()).encode()
    return path.read_bytes() if path.is_file() else str(path.stat().st_mode).encode()
