"""What programs print: characters that a terminal lacks, streams that nobody reads."""

import errno
import io
import os

import pytest

from hf_linear_attn.training.program import run_program
from hf_linear_attn.training.streams import lasting

LINE = "nobody reads the output any more; the program goes on without it\n"


@pytest.mark.parametrize(
    ("encoding", "text", "written"),
    [
        ("ascii", "a table │ café", b"a table \\u2502 caf\\xe9\n"),
        ("utf-8", "a table │ café", "a table │ café\n".encode()),
        # As the names of files come from the operating system.
        ("utf-8", "a name \udcff", b"a name \\udcff\n"),
    ],
)
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_character_that_cannot_be_shown_is_written_out(
    name, encoding, text, written, monkeypatch
):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    monkeypatch.setattr(f"sys.{name}", stream)
    run_program(lambda argv: print(text, file=stream), [])
    assert stream.buffer.getvalue() == written


def pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def terminal():
    master, slave = os.openpty()
    os.close(master)
    return slave


@pytest.mark.parametrize("unread", [pipe, terminal])
@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_stream_that_nobody_reads_is_the_null_device_from_then_on(unread, unbuffered, capfd):
    with open(unread(), "w", encoding="utf-8") as opened:
        if unbuffered:
            raw = opened.buffer.raw  # pyright: ignore[reportAttributeAccessIssue]
            opened = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
        stream = lasting(opened)
        assert isinstance(stream.buffer, io.FileIO) == unbuffered
        print("one", file=stream, flush=True)
        assert os.path.samestat(os.fstat(opened.fileno()), os.stat(os.devnull))
        assert capfd.readouterr().err == LINE
        print("two", file=stream, flush=True)
        assert capfd.readouterr().err == ""


def test_what_is_read_comes_as_it_was_printed(tmp_path):
    with open(tmp_path / "file", "w", encoding="ascii") as opened:
        opened.write("before, ")
        print("a table │ café", file=lasting(opened), flush=True)
    assert (tmp_path / "file").read_bytes() == b"before, a table \\u2502 caf\\xe9\n"


def test_a_full_disk_is_told():
    with (
        open("/dev/full", "w", encoding="utf-8") as opened,
        pytest.raises(OSError, match=os.strerror(errno.ENOSPC)),
    ):
        print("one", file=lasting(opened), flush=True)
