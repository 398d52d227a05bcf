"""ListOps: the generator against an independent evaluator and the official statistics."""

import random
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from hf_linear_attn.training.lra.listops import ListOpsParameters, _lengths, check_possible, draw
from hf_linear_attn.training.lra.listops_check import evaluate
from hf_linear_attn.training.lra.listops_files import FILES, generate_listops, read_listops
from hf_linear_attn.training.lra.symbols import listops_tokens
from tests.training.lra.real_data import needs, real

SMALL = ListOpsParameters(min_length=5, max_length=30, max_depth=4, max_args=5)
COUNTS = {"train": 230, "validation": 20, "test": 30}


def written_value(source: str) -> int:
    """A third evaluator, which writes the expression as Python."""
    code = " ".join(
        {"[MIN": "lo(", "[MAX": "hi(", "[MED": "mid(", "[SM": "mod(", "]": "),"}.get(t, f"{t},")
        for t in listops_tokens(source)
    ).rstrip(",")
    names = {
        "lo": lambda *v: min(v),
        "hi": lambda *v: max(v),
        "mid": lambda *v: int(np.median(v)),
        "mod": lambda *v: sum(v) % 10,
    }
    return int(eval(code, {"__builtins__": {}}, names))


def drawn(parameters: ListOpsParameters, count: int):
    return list(islice(draw(parameters, random.Random(7)), count))


def depth(source: str) -> int:
    level = greatest = 0
    for token in listops_tokens(source):
        level += token.startswith("[") - (token == "]")
        greatest = max(greatest, level)
    return greatest


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("[SM 7 8 [MIN 9 [MAX 1 4 ] ] 6 ]", 5),
        # One text where brackets are no symbols, and two values.
        ("[MAX 2 [SM 9 9 ] 3 ]", 8),
        ("[MAX 2 [SM 9 ] 9 3 ]", 9),
        ("[MED 1 2 ]", 1),
        ("[MED 9 0 4 5 ]", 4),
        ("[MED 9 1 5 ]", 5),
        ("[SM 9 9 9 ]", 7),
        ("( ( ( [MED 1 ) 2 ) ] )", 1),
        ("7", 7),
    ],
)
def test_b49_values(source, value):
    assert evaluate(source) == value == written_value(source)


@pytest.mark.parametrize("source", ["[MIN 1 2", "1 2", "] 1", "[MAX ]", "[MIN 1 x ]", ""])
def test_what_is_no_expression_has_no_value(source):
    with pytest.raises(ValueError, match="no ListOps expression"):
        evaluate(source)


def test_labels_agree_with_other_evaluators():
    for expression in drawn(SMALL, 400):
        assert expression.value == evaluate(expression.source)
        assert expression.value == written_value(expression.source)
        assert expression.length == len(listops_tokens(expression.source))
        assert 5 < expression.length < 30
        assert depth(expression.source) <= 3
        assert expression.source.count("(") == expression.source.count(")")


@pytest.mark.slow
def test_labels_and_statistics_of_2000_official_expressions():
    expressions = drawn(ListOpsParameters(), 2000)
    assert all(e.value == evaluate(e.source) == written_value(e.source) for e in expressions)
    lengths = [expression.length for expression in expressions]
    # Measured on the official generator: median 998, 501 to 1995, depth always 9, about 6,800
    # characters, 9 in 17.5 % and 0 in 15.9 %.
    assert 950 < np.median(lengths) < 1050
    assert min(lengths) > 500
    assert max(lengths) < 2000
    assert {depth(expression.source) for expression in expressions} == {9}
    assert 6400 < np.mean([len(expression.source) for expression in expressions]) < 7200
    shares = Counter(expression.value for expression in expressions)
    assert 0.145 < shares[9] / 2000 < 0.205
    assert 0.13 < shares[0] / 2000 < 0.19
    assert all(shares[value] / 2000 < 0.12 for value in range(1, 9))


def test_the_law_of_lengths_is_long_range_arenas():
    # Digits at once: 3/4. Four symbols: an operator (1/4) with two (1/9) digits (3/4 each).
    shares, _ = _lengths(ListOpsParameters())
    assert shares[1] == 0.75
    assert shares[4] == pytest.approx(0.25 / 9 * 0.75**2, rel=1e-12)
    kept = shares[501:2000]
    assert kept.sum() == pytest.approx(0.0827552640, rel=1e-8)
    assert 501 + np.searchsorted(kept.cumsum(), kept.sum() / 2) == 954


def test_operators_and_numbers_of_arguments_are_drawn_by_the_law():
    flat = ListOpsParameters(min_length=0, max_length=200, max_depth=2)
    lengths = Counter(expression.length for expression in drawn(flat, 40_000))
    assert lengths[1] / 40_000 == pytest.approx(0.75, abs=0.005)
    # An operator, its bracket and 2 to 10 digits, each number of them as often.
    assert sorted(lengths) == [1, *range(4, 13)]
    for length in range(4, 13):
        assert lengths[length] / 40_000 == pytest.approx(0.25 / 9, abs=0.003)
    exact = _lengths(flat)[0]
    assert exact[1] == 0.75
    assert exact[4:13] == pytest.approx(0.25 / 9, rel=1e-12)
    assert exact.sum() == pytest.approx(1.0)


def test_the_share_of_kept_trees_is_exact():
    open_ended = ListOpsParameters(0, 200, SMALL.max_depth, SMALL.max_args)
    share = check_possible(SMALL, 10)
    # Among all trees of up to 199 symbols (practically all there are), those of a kept length.
    kept = [5 < expression.length < 30 for expression in drawn(open_ended, 20_000)]
    assert share / check_possible(open_ended, 10) == pytest.approx(np.mean(kept), rel=0.1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"min_length": 30}, "no tree is of such a length"),
        ({"max_depth": 1}, "no tree is of such a length"),
        ({"max_args": 2, "max_length": 7, "min_length": 4}, "no tree is of such a length"),
        ({"min_length": 500, "max_length": 600, "max_args": 2, "max_depth": 20}, "only .* of all"),
        ({"min_length": 0, "max_length": 3}, "there are 10 different expressions"),
    ],
)
def test_parameters_that_cannot_give_a_sample_are_refused_before_any_work(
    tmp_path, monkeypatch, changed, message
):
    from hf_linear_attn.training.lra import listops_files

    monkeypatch.setattr(listops_files, "draw", None)
    values = {"min_length": 5, "max_length": 30, "max_depth": 4, "max_args": 5, **changed}
    with pytest.raises(ValueError, match=message):
        generate_listops(tmp_path, ListOpsParameters(**values), COUNTS, seed=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changed", [{"max_args": 1}, {"max_depth": 0}, {"min_length": -1}, {"operator_share": 1.0}]
)
def test_parameters_out_of_range_are_refused(changed):
    with pytest.raises(ValueError, match=f"listops_{next(iter(changed))}: got"):
        ListOpsParameters(**changed)


def test_files_are_the_same_on_any_number_of_processes(tmp_path):
    contents = []
    for processes in (None, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        generate_listops(folder, SMALL, COUNTS, seed=3, processes=processes)
        contents.append([(folder / name).read_bytes() for name in FILES.values()])
    assert contents[0] == contents[1]
    other = tmp_path / "other"
    other.mkdir()
    generate_listops(other, SMALL, COUNTS, seed=4)
    assert (other / FILES["train"]).read_bytes() != contents[0][0]


def test_files_have_the_released_layout_and_no_expression_twice(tmp_path):
    generate_listops(tmp_path, SMALL, COUNTS, seed=3)
    lines = [
        line for name in FILES.values() for line in (tmp_path / name).read_bytes().split(b"\r\n")
    ]
    assert lines.count(b"Source\tTarget") == 3
    sources = [line.split(b"\t")[0] for line in lines if line and not line.startswith(b"Source")]
    assert len(sources) == len(set(sources)) == sum(COUNTS.values())
    splits = read_listops(tmp_path)
    assert {name: len(split) for name, split in splits.items()} == COUNTS


def write(folder: Path, row: str) -> None:
    for name in FILES.values():
        (folder / name).write_bytes(b"Source\tTarget\r\n[MIN 1 2 ]\t1\r\n" + row.encode())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("[MIN 4 2 ]\t3\r\n", "basic_train.tsv, line 3: the label is 3, the value .* is 2"),
        ("[MIN 4 2 ]\tx\r\n", "line 3: expected an expression, a TAB and its value"),
        ("[MIN 4 2 ]\r\n", "line 3: expected an expression, a TAB and its value"),
        ("[MIN 4 2\t2\r\n", "line 3: no ListOps expression"),
        ("hello\t2\r\n", "line 3: no ListOps expression"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, row, message):
    write(tmp_path, row)
    with pytest.raises(ValueError, match=message):
        read_listops(tmp_path)


def test_another_file_under_the_name_is_refused(tmp_path):
    for name in FILES.values():
        (tmp_path / name).write_text("text\tlabel\nfine\t1\n")
    with pytest.raises(ValueError, match="expected the header of a ListOps file"):
        read_listops(tmp_path)


@needs("lra/listops")
def test_the_official_generators_files_are_read():
    splits = read_listops(real("lra/listops"))
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 500, "validation": 100, "test": 100
    }  # fmt: skip
