"""A full disk and a lost process are told in one line, however they come."""

import errno
import os

import pytest
import torch
from safetensors import SafetensorError

from hf_linear_attn.training.outer_faults import outer_fault
from hf_linear_attn.training.program import run_program

# As the writers themselves put it.
OF_A_DISK = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(
        errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"
    ),
    OSError("Not enough disk space. Needed: Unknown size (download: Unknown size)"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    Exception("No space left on device (os error 28)"),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
    RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed"),
    RuntimeError("basic_ios::clear: iostream error"),
]
OF_A_PROCESS = [
    RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"),
    RuntimeError("[gloo/transport/tcp/pair.cc:1] Read error: Connection reset by peer"),
    RuntimeError("NCCL error: remote process exited or there was a network error"),
]


def raising(error):
    def main(argv):
        raise error

    return main


def caused_by(error):
    """As a library wraps it."""
    try:
        raise RuntimeError("An error occurred while generating the dataset") from error
    except RuntimeError as wrapped:
        return wrapped


@pytest.mark.parametrize("error", [*OF_A_DISK, caused_by(OF_A_DISK[0])], ids=repr)
def test_a_full_disk_is_one_line_and_exit_code_1(error, capsys):
    with pytest.raises(SystemExit) as stop:
        run_program(raising(error), [])
    assert stop.value.code == 1
    line = capsys.readouterr().err
    assert line.startswith("error: No space left on device: what was being written is not complete")
    assert "make room" in line
    assert line.count("\n") == 1


def test_the_file_is_named_where_the_error_names_it():
    fault = outer_fault(OSError(errno.EROFS, os.strerror(errno.EROFS), "runs/a/run.yaml"))
    assert fault.startswith("Read-only file system: runs/a/run.yaml is not complete")


@pytest.mark.parametrize("error", OF_A_PROCESS, ids=repr)
def test_a_lost_process_is_one_line_and_exit_code_1(error, capsys):
    with pytest.raises(SystemExit) as stop:
        run_program(raising(error), [])
    assert stop.value.code == 1
    line = capsys.readouterr().err
    assert line.startswith("error: another process of this run has ended")
    assert line.count("\n") == 1


@pytest.mark.parametrize("error", [OF_A_DISK[0], OF_A_PROCESS[0]])
def test_debug_shows_the_traceback(error):
    with pytest.raises(type(error)):
        run_program(raising(error), ["--debug"])


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a file of 28 bytes"),
        OSError(errno.ENOENT, "No such file"),
        RuntimeError("the size of tensor a (3) must match"),
        Exception("No such file or directory (os error 2)"),
        ConnectionResetError("Connection reset by peer"),
    ],
)
def test_other_faults_are_not_taken_for_one(error):
    assert outer_fault(error) is None


def test_what_torch_says_of_a_file_that_it_cannot_write_is_known(tmp_path):
    full = tmp_path / "full.pt"
    full.symlink_to("/dev/full")
    with pytest.raises((RuntimeError, OSError)) as caught:
        torch.save(torch.zeros(100_000), full)
    assert outer_fault(caught.value).startswith("No space left on device")
