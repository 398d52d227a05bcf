"""Published results: figures that add up, and a printing rule that cannot be got round."""

import dataclasses

import pytest

from hf_linear_attn.training.published import (
    PublishedRow,
    footnotes,
    printable_cell,
    printable_rows,
    published_table,
    published_tables,
)


def with_rows(table_id, *rows):
    return dataclasses.replace(published_table(table_id), rows=rows)


AVERAGED = [t for t in published_tables().values() if "average" in t.columns]
ROWS = {(t.id, r.name): r for t in AVERAGED for r in t.rows}
# Printed so at its source; the row's note says it.
NOT_ITS_MEAN = {("lra_official", "Sinkhorn Transformer")}


@pytest.mark.parametrize("key", sorted(ROWS.keys() - NOT_ITS_MEAN), ids="/".join)
def test_the_mean_of_the_cells_is_the_average_published(key):
    """A typing error in a cell moves the mean; so does a swapped figure of another row."""
    values = dict(ROWS[key].values)
    average = values.pop("average")
    # Half a unit of the last digit; a little more for the binary fraction.
    assert sum(values.values()) / len(values) == pytest.approx(average, abs=0.00501)


@pytest.mark.parametrize("key", sorted(NOT_ITS_MEAN), ids="/".join)
def test_an_average_that_is_not_the_mean_is_noted(key):
    assert "mean" in (ROWS[key].note or "")


def test_rows_recalled_by_their_average_have_one():
    for table in published_tables().values():
        for row in table.rows:
            if "R=avg" in row.marks.values():
                assert "average" in row.values


def test_the_recipes_find_their_tables():
    lra = {t.columns for i, t in published_tables().items() if i.startswith("lra_")}
    assert lra == {("listops", "text", "retrieval", "image", "pathfinder", "average")}
    assert {"lra_official", "lra_nystromformer", "lra_transnormer"} <= set(published_tables())
    assert {"wikitext103_tnl", "wikitext103_transnormer", "wikitext103_cosformer"} <= set(
        published_tables()
    )
    assert {"glue_cosformer", "glue_transnormer", "glue_nystromformer"} <= set(published_tables())


def test_checked_figures_are_printed_plain():
    rows = printable_rows(published_table("wikitext103_tnl"))
    assert [r.cells for r in rows if r.name == "cosFormer"] == [("26.53", "27.06")]
    assert footnotes(rows) == []
    # Trailing zeros are part of what was published.
    assert printable_cell("wikitext103_tnl", "TransNormer T1", "test") == "25.00"


def test_notes_and_recalled_rows_carry_a_footnote_that_says_so():
    rows = printable_rows(published_table("lra_transnormer"))
    (row,) = [r for r in rows if r.name == "TransNormer T2"]
    assert row.cells == ("41.60‡", "72.20‡", "83.82‡", "49.60‡", "76.80‡", "64.80†")
    assert len(footnotes(rows)) == 2
    assert any(n.startswith("†") and "not checked against the paper" in n for n in footnotes(rows))
    assert any(n.startswith("‡") and "recalled" in n for n in footnotes(rows))


def test_unchecked_figures_are_never_printed():
    for table in published_tables().values():
        for row in table.rows:
            for column, mark in row.marks.items():
                shown = printable_cell(table.id, row.name, column)
                assert (shown == "–") == (mark == "R"), (table.id, row.name, column)


def test_a_row_without_printable_cells_is_left_out_and_a_mixed_one_stays():
    names = [r.name for r in printable_rows(published_table("wikitext103_cosformer"))]
    assert names == ["cosFormer§"]
    (_, row) = printable_rows(published_table("glue_nystromformer"))
    assert row.cells == ("91.4†", "88.7†", "–", "–", "–", "–", "–")


def test_single_cells_are_marked_apart():
    assert printable_cell("glue_cosformer", "cosFormer", "sst2") == "91.05"
    assert printable_cell("glue_cosformer", "cosFormer", "qqp") == "89.26‡"


def test_cells_that_were_not_published_are_empty():
    assert printable_cell("wikitext103_transnormer", "FLASH-quad", "test") == "–"


def test_a_note_is_printed_with_its_row():
    rows = printable_rows(published_table("wikitext103_cosformer"))
    assert footnotes(rows) == [
        "§ below its validation perplexity, the test perplexity may be a misprint"
    ]


def test_two_harnesses_in_one_table_are_refused():
    with pytest.raises(ValueError, match="lra_jax and mlpen cannot be compared"):
        printable_rows(published_table("lra_official"), published_table("lra_nystromformer"))
    own = PublishedRow("new", {"text": 1.0}, {"text": "V"})
    rows = printable_rows(published_table("lra_official"), with_rows("lra_official", own))
    assert rows[-1].cells == ("–", "1.00", "–", "–", "–", "–")


def test_each_table_has_a_source_and_harnesses_differ_between_papers():
    tables = published_tables().values()
    assert all(t.source and t.title and t.metric for t in tables)
    assert len({t.harness for t in tables}) == len(tables)


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="did you mean 'lra_official'"):
        published_table("lra_oficial")
    with pytest.raises(ValueError, match="its rows are Local attention"):
        printable_cell("lra_official", "cosformer", "text")
    with pytest.raises(ValueError, match="has the columns listops"):
        printable_cell("lra_official", "cosFormer", "path")
    with pytest.raises(ValueError, match="no published table is given"):
        printable_rows()
