"""The symbol tables are written down, not collected."""

import subprocess
import sys

import pytest

from hf_linear_attn.training.lra import symbols
from hf_linear_attn.training.lra.symbols import (
    BYTES,
    LISTOPS,
    PIXELS,
    byte_ids,
    listops_ids,
    listops_tokens,
)


def test_b49_brackets_and_operators_are_symbols_and_length_counts_them():
    source = "[SM 7 8 [MIN 9 [MAX 1 4 ] ] 6 ]"
    assert len(listops_ids(source)) == 12
    with_parentheses = "( ( ( [SM 7 ) 8 ) ] )"
    assert listops_tokens(with_parentheses) == ["[SM", "7", "8", "]"]
    # The same digits and operators in the same order: only the brackets tell them apart.
    a, b = listops_ids("[MAX 2 [SM 9 9 ] 3 ]"), listops_ids("[MAX 2 [SM 9 ] 9 3 ]")
    assert len(a) == 8
    assert len(b) == 8
    assert a.tolist() != b.tolist()


def test_the_ids_are_these_for_ever():
    every = "0 1 2 3 4 5 6 7 8 9 [MIN [MAX [MED [SM ]"
    assert listops_ids(every).tolist() == list(range(1, 16))
    assert byte_ids(bytes(range(256))).tolist() == list(range(1, 257))
    assert [(table.size, table.pad) for table in (LISTOPS, BYTES, PIXELS)] == [
        (16, 0), (257, 0), (256, None)
    ]  # fmt: skip


def test_ids_do_not_depend_on_the_process():
    # The file by itself: the package takes seconds to import.
    code = (
        "import runpy;"
        f"module = runpy.run_path({symbols.__file__!r});"
        "print(module['listops_ids']('[MED 3 [SM 4 ] ]').tolist())"
    )
    run = [sys.executable, "-c", code]
    outputs = {
        subprocess.run(
            run, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert outputs == {"[13, 4, 14, 5, 15, 15]\n"}


def test_text_is_bytes_not_characters():
    assert byte_ids("é<br />".encode()).tolist() == [196, 170, 61, 99, 115, 33, 48, 63]


@pytest.mark.parametrize("source", ["[MIN 1 ten ]", "[MIN 12 3 ]", "", "( )"])
def test_what_is_no_symbol_is_refused(source):
    with pytest.raises(ValueError, match="no ListOps expression"):
        listops_ids(source)
