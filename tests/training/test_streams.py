"""What programs print: characters that a terminal lacks."""

import io

import pytest

from hf_linear_attn.training.program import run_program


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
