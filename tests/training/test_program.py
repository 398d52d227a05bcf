"""Programs: one line and exit code 2 for a user's mistake, 130 for Ctrl-C."""

import signal

import pytest

from hf_linear_attn.training.program import run_program


def failing(error: BaseException):
    def main(argv: list[str]) -> None:
        raise error

    return main


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such\n  thing"),
        FileNotFoundError(2, "No such file", "a.txt"),
        PermissionError("not yours"),
        IsADirectoryError("a folder"),
        OSError(36, "File name too long", "a" * 300),
        ValueError(),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(error, capsys):
    with pytest.raises(SystemExit) as caught:
        run_program(failing(error), [])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err
    assert len(err) > len("error: \n")


def test_what_a_terminal_would_obey_is_written_out(capsys):
    with pytest.raises(SystemExit):
        run_program(failing(ValueError("no \x1b[31mfile\x07 a\udcffb café")), [])
    assert capsys.readouterr().err == "error: no \\x1b[31mfile\\x07 a\\udcffb café\n"


def test_debug_shows_the_traceback():
    with pytest.raises(ValueError, match="mistake"):
        run_program(failing(ValueError("mistake")), ["--seed", "1", "--debug"])


@pytest.fixture
def own_answer_to_ctrl_c():
    """Python's own; a program that a shell starts behind `&` begins by ignoring it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def in_a_clean_up():
    """A library that waits for its workers, which the same Ctrl-C has ended."""
    try:
        raise KeyboardInterrupt
    finally:
        raise TimeoutError


def interrupted(argv):
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("main", [interrupted, lambda argv: in_a_clean_up()])
def test_ctrl_c_is_one_line_and_exit_code_130(main, capsys, own_answer_to_ctrl_c):
    with pytest.raises(SystemExit) as caught:
        run_program(main, [])
    assert caught.value.code == 130
    err = capsys.readouterr().err
    assert err.startswith("interrupted; the same command")
    assert err.count("\n") == 1
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_debug_shows_where_ctrl_c_came(own_answer_to_ctrl_c):
    with pytest.raises(KeyboardInterrupt):
        run_program(interrupted, ["--debug"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("error", [RuntimeError("bug"), KeyError("bug"), OSError("disk")])
def test_what_is_no_mistake_of_the_user_keeps_its_traceback(error):
    with pytest.raises(type(error)):
        run_program(failing(error), [])


@pytest.mark.parametrize(
    ("argv", "rest"),
    [
        (["--debug"], []),
        (["--debug", "--seed", "1"], ["--seed", "1"]),
        (["--seed", "1", "--debug"], ["--seed", "1"]),
        # Transformers has an argument of this name, which takes a value.
        (["--debug", "underflow_overflow"], ["--debug", "underflow_overflow"]),
        (["--debug=underflow_overflow"], ["--debug=underflow_overflow"]),
    ],
)
def test_only_a_bare_debug_is_taken_away(argv, rest):
    seen: list[list[str]] = []
    run_program(seen.append, argv)
    assert seen == [rest]


def test_arguments_come_from_the_command_line_by_default(monkeypatch):
    monkeypatch.setattr("sys.argv", ["program.py", "--seed", "1"])
    seen: list[list[str]] = []
    run_program(seen.append)
    assert seen == [["--seed", "1"]]


def test_exits_pass():
    with pytest.raises(SystemExit) as caught:
        run_program(failing(SystemExit(0)), [])
    assert caught.value.code == 0
