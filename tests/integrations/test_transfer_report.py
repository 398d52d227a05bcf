"""The table and the plot of an attention transfer."""

import io

import pytest
from rich.console import Console

from hf_linear_attn.integrations.distill import AttentionTransfer
from hf_linear_attn.integrations.transfer_report import (
    plot_transfer,
    transfer_markdown,
    transfer_table,
)

RESULT = AttentionTransfer(
    losses={1: [0.5, 0.25], 4: [0.1, 0.2]},
    before={1: 0.5, 4: 0.1},
    after={1: 0.25, 4: 0.1},
    undone=[4],
    mechanisms={1: ("softmax", "cosformer"), 4: ("softmax", "nystrom")},
    left_alone=[0, 2, 3],
    steps=2,
    learning_rate=1e-3,
    trained="qk",
)


def test_a_row_a_layer_and_their_mean():
    console = Console(width=120, record=True, file=io.StringIO())
    table = transfer_table(RESULT)
    console.print(table)
    words = [line.replace("│", " ").split() for line in console.export_text().splitlines()]
    assert ["1", "softmax", "cosformer", "0.5000", "0.2500", "0.50"] in words
    assert ["4", "softmax", "nystrom", "0.1000", "0.1000", "1.00"] in words
    assert ["mean", "0.3000", "0.1750", "0.58"] in words
    assert "layers 0, 2–3." in table.caption
    assert table.caption.endswith("No better, so as they were: layers 4.")
    assert [row.style for row in table.rows] == ["", "red", "bold"]


def test_the_same_as_a_page():
    lines = transfer_markdown(RESULT).splitlines()
    assert "| 1 | softmax | cosformer | 0.5000 | 0.2500 | 0.50 |" in lines
    assert "| 4 | softmax | nystrom | 0.1000 | 0.1000 | 1.00 |" in lines
    assert "| mean |  |  | 0.3000 | 0.1750 | 0.58 |" in lines
    assert "Alike in both models and left alone: layers 0, 2–3." in lines
    assert "No better behind the last step and left as they were: layers 4." in lines


def test_the_plot_has_a_line_a_layer(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    drawn, plot = [], Axes.plot

    def spy(axes, x, y, **style):
        drawn.append((list(x), list(y), style["label"]))
        return plot(axes, x, y, **style)

    monkeypatch.setattr(Axes, "plot", spy)
    plot_transfer(RESULT, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert drawn == [([1, 2], [0.5, 0.25], "layer 1"), ([1, 2], [0.1, 0.2], "layer 4")]


def test_a_perfect_start_divides_by_nothing():
    perfect = AttentionTransfer(**{**vars(RESULT), "before": {1: 0.0, 4: 0.1}})
    assert transfer_table(perfect).row_count == 3


@pytest.mark.parametrize("left_alone", [[], [0]])
def test_what_was_left_alone_is_said(left_alone):
    result = AttentionTransfer(**{**vars(RESULT), "left_alone": left_alone})
    assert ("Left alone" in transfer_table(result).caption) == bool(left_alone)
