"""Processes that a program forks end when it does, however it ends.

Workers of `datasets` wait for their next task for ever, and keep their memory, when the program
that has started them is gone without a word. A terminal sends Ctrl-C to all of them: the program
answers, and they end with it, where each would show a traceback of its own.
"""

import ctypes
import functools
import os
import signal
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1
_forking = 0


@functools.cache
def end_children_with_this_process() -> None:
    """Let every process that is forked from now on be killed when its parent ends; on Linux.

    The parent is the thread that forks: it has to live as long as its workers are wanted, as the
    main thread does.
    """
    if sys.platform == "linux":
        set_signal = ctypes.CDLL(None, use_errno=True).prctl
        os.register_at_fork(before=_note, after_in_child=lambda: _bind(set_signal))


def _note() -> None:
    global _forking
    _forking = os.getpid()


def _bind(set_signal: "ctypes._NamedFuncPointer") -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Not SIG_IGN, which a program would inherit that the child becomes.
        signal.signal(signal.SIGINT, _fall_silent)
    set_signal(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != _forking:  # it has ended meanwhile
        os.kill(os.getpid(), signal.SIGKILL)


def _fall_silent(number: int, frame: FrameType | None) -> None:
    """Leave Ctrl-C to the parent; what fails because of its end is not worth telling."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
