"""Programs: what a user can mend is one line, everything else keeps its traceback.

The exit code is 2 after a mistake of the user, 1 after a full disk or the end of another process of
the run, 130 after Ctrl-C. A Hub that is not reached or that refuses counts as a mistake: a wrong
name, no login and a network that is down look alike from here. Output that nobody reads any more
(`… | head`) ends no program; `streams` says why.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from hf_linear_attn.training.children import end_children_with_this_process
from hf_linear_attn.training.outer_faults import causes, outer_fault
from hf_linear_attn.training.streams import secure_streams

INTERRUPTED = 128 + signal.SIGINT  # what a shell reports of a process that Ctrl-C has ended
_USER_MISTAKES = (
    ValueError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


class ProgramParser(argparse.ArgumentParser):
    """argparse whose complaints are a `ValueError`, and which takes no abbreviations.

    Args:
        description: the program's docstring, shown as it stands.
        prog: how the program is called; None = its file.
    """

    def __init__(self, description: str | None, prog: str | None = None):
        super().__init__(
            prog=prog, description=description, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        """Raise what argparse has to say."""
        raise ValueError(message)


def run_program(main: Callable[[list[str]], None], argv: Sequence[str] | None = None) -> None:
    """Run a program's `main`.

    Args:
        main: takes the command line without the program's name and without a bare `--debug`.
        argv: the command line; None means `sys.argv[1:]`.

    Raises:
        SystemExit: code 2 after a user's mistake (a `ValueError`, as the Hub's absence and refusals
            are, or what the operating system refuses, such as a file that is missing), code 1 after
            a fault of `outer_faults`, code 130 after Ctrl-C, each with one line on stderr. With
            `--debug` the exception itself is raised.
    """
    end_children_with_this_process()
    secure_streams()
    arguments, debug = _take_debug(list(sys.argv[1:] if argv is None else argv))
    try:
        main(arguments)
    except (Exception, KeyboardInterrupt) as error:
        answer = _answer(error)
        if debug or answer is None:
            raise
        code, line = answer
        if code == INTERRUPTED:
            # Who presses it again does not want to wait for the end of this process.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.stderr.write(f"{line}\n")
        raise SystemExit(code) from None


def _answer(error: BaseException) -> tuple[int, str] | None:
    """The exit code and the line for an exception; None for a fault of the program."""
    # In its place may come what fails because of it, in the clean-up of a library.
    if any(isinstance(one, KeyboardInterrupt) for one in causes(error)):
        return INTERRUPTED, (
            "interrupted; the same command begins again, and a run goes on from its newest "
            "complete checkpoint"
        )
    fault = outer_fault(error)
    if fault is not None:
        return 1, f"error: {_one_line(fault)}"
    if _is_of_the_user(error):
        return 2, f"error: {_one_line(str(error).strip() or type(error).__name__)}"
    return None


def _is_of_the_user(error: BaseException) -> bool:
    """A mistake, or what the operating system says of a file, such as too long a name."""
    said = isinstance(error, OSError) and error.errno is not None
    return said or isinstance(error, _USER_MISTAKES)


def _one_line(message: str) -> str:
    """In one line that a terminal takes for nothing but text."""
    message = " ".join(message.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """Remove each `--debug` without a value; with one it is Transformers' own argument."""
    kept: list[str] = []
    for at, argument in enumerate(arguments):
        alone = at + 1 == len(arguments) or arguments[at + 1].startswith("-")
        if argument != "--debug" or not alone:
            kept.append(argument)
    return kept, len(kept) < len(arguments)
