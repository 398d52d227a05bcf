"""Grids are crossed as they say; the report shows every run, failed ones too."""

import csv
import dataclasses
import io
from pathlib import Path

import pytest
import yaml
from PIL import Image
from rich.console import Console

from hf_linear_attn.training.ablation_grid import cells_of, read_grid, run_settings, slug
from hf_linear_attn.training.ablation_report import CellResult, best_of, rich_table, write_report

GRID = {
    "title": "Two things",
    "config": ["base.yaml"],
    "metric": {"key": "eval_loss", "label": "loss | nats"},
    "arguments": {"config_overrides": "hidden_size=32", "model": {"a": 2}},
    "axes": [
        {
            "name": "map",
            "values": [
                {"name": "ReLU", "arguments": {"config_overrides": "feature_map=relu"}},
                {"name": "1 + elu", "arguments": {"config_overrides": "feature_map=elu_plus_one"}},
            ],
        },
        {
            "name": "rate",
            "values": [
                {"name": "low", "arguments": {"learning_rate": 1e-4}},
                {"name": "high", "arguments": {"learning_rate": 1e-2}},
            ],
        },
    ],
}
BASE = {"attention": "cosformer", "learning_rate": 1.0, "model": {"a": 1, "b": 1}, "max_steps": 9}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(yaml.safe_dump(BASE))


def grid(**changes):
    Path("grid.yaml").write_text(yaml.safe_dump({**GRID, **changes}, allow_unicode=True))
    return read_grid(Path("grid.yaml"))


def test_cells_are_all_combinations():
    assert [slug(cell) for cell in cells_of(grid())] == [
        "relu--low", "relu--high", "1-elu--low", "1-elu--high"
    ]  # fmt: skip


def test_settings_of_a_cell_are_the_recipes_files_with_the_grid_over_them():
    cell = cells_of(grid())[3]
    assert run_settings(grid(), cell, {"max_steps": 2}) == {
        "attention": "cosformer",
        "learning_rate": 1e-2,
        "model": {"a": 2, "b": 1},
        "max_steps": 2,
        "config_overrides": "hidden_size=32,feature_map=elu_plus_one",
    }


def test_overrides_of_the_recipes_file_are_not_lost():
    Path("base.yaml").write_text(yaml.safe_dump({**BASE, "config_overrides": "norm_eps=1e-4"}))
    settings = run_settings(grid(), cells_of(grid())[0], {"config_overrides": "head_dim=8"})
    assert settings["config_overrides"] == (
        "norm_eps=1e-4,hidden_size=32,head_dim=8,feature_map=relu"
    )


def axis(name, *arguments):
    values = [{"name": f"v{i}", "arguments": a} for i, a in enumerate(arguments)]
    return {"name": name, "values": values}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"the_title": "x"}, "unknown field 'the_title'; did you mean 'title'"),
        ({"axes": []}, "expected a list of one or more"),
        ({"axes": [axis("a")]}, "a: expected a list of one or more"),
        ({"axes": [axis("a", {"x": 1}), axis("a", {"y": 1})]}, "'a' is there more than once"),
        ({"axes": [{"name": "a"}]}, "values is missing"),
        ({"axes": [axis("a", {"seed": 1})]}, "seed is set for each run by itself"),
        ({"axes": [axis("a", 3)]}, "arguments are a mapping"),
        ({"arguments": {"output_dir": "x"}}, "output_dir is set for each run by itself"),
        ({"metric": {"key": "eval_loss"}}, "metric: label is missing"),
        ({"metric": "eval_loss"}, "metric: expected key, label"),
        ({"metric": {"key": ["a"], "label": "b"}}, r"metric: key: got \['a'\], expected text"),
        ({"title": ["a"]}, r"title: got \['a'\], expected text"),
        ({"title": 3}, "title: got 3, expected text"),
        ({"metric": {**GRID["metric"], "label": 3}}, "metric: label: got 3, expected text"),
        ({"metric": {**GRID["metric"], "greater_is_better": "no"}}, "expected true or false"),
        ({"metric": {**GRID["metric"], "scale": float("nan")}}, "metric: scale is nan"),
        ({"metric": {**GRID["metric"], "pattern": "{[0]}"}}, "does not format a number"),
        ({"metric": {**GRID["metric"], "pattern": "{:1000000000}"}}, "asks for 100 characters"),
        ({"metric": {**GRID["metric"], "pattern": "{:.100f}"}}, "asks for 100 characters"),
        ({"axes": [axis(["a"], {"x": 1})]}, "name: expected a text or a number"),
        ({"axes": [{**axis("a", {"x": 1}), "name": ""}]}, "name: expected a text or a number"),
    ],
    ids=str,
)
def test_mistakes_in_the_file_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        grid(**changes)


def test_a_grid_that_nobody_could_run_is_refused_before_it_is_listed():
    values = [{"name": f"v{i}", "arguments": {}} for i in range(10)]
    axes = [{"name": f"a{i}", "values": values} for i in range(11)]
    with pytest.raises(ValueError, match="make 100,000,000,000 cells, expected 10,000 at most"):
        cells_of(grid(axes=axes))


def test_a_name_that_no_folder_has_is_told_before_anything_is_run():
    def cell(*names):
        axes = [{"name": n, "values": [{"name": n, "arguments": {}}]} for n in names]
        return cells_of(grid(axes=axes))

    assert len(cell("a" * 255)) == 1
    with pytest.raises(ValueError, match=r"name of 258 characters, .* at most; shorten 'bbb"):
        cell("a", "b" * 255)


def test_two_settings_of_one_argument_are_refused():
    twice = grid(axes=[axis("a", {"bf16": True}), axis("b", {"bf16": False})])
    with pytest.raises(ValueError, match="bf16 is set by axis 'b' and by axis 'a'"):
        run_settings(twice, cells_of(twice)[0], {})
    with pytest.raises(ValueError, match="learning_rate is set by axis 'rate' and by the arg"):
        run_settings(grid(), cells_of(grid())[0], {"learning_rate": 1})
    with pytest.raises(ValueError, match="'feature_map' is given more than once"):
        run_settings(grid(), cells_of(grid())[0], {"config_overrides": "feature_map=relu"})


def test_overrides_are_text():
    with pytest.raises(ValueError, match="config_overrides: got 3, expected text"):
        run_settings(grid(arguments={"config_overrides": 3}), cells_of(grid())[0], {})


def test_values_whose_folders_would_be_one_are_refused():
    alike = {"name": "a", "values": [{"name": n, "arguments": {}} for n in ("A b", "a-b")]}
    with pytest.raises(ValueError, match="'a-b' is there more than once"):
        cells_of(grid(axes=[alike]))


def results():
    cells = cells_of(grid())
    return [
        CellResult(cells[0], {1: 2.0, 2: 4.0}, {}),
        CellResult(cells[1], {1: 2.5, 2: 2.5}, {}),
        CellResult(cells[2], {1: 0.5}, {2: "exit code 2: error: no | good"}),
        CellResult(cells[3], {}, {1: "killed", 2: "killed"}),
    ]


def test_the_best_cell_is_one_without_failures():
    assert best_of(grid(), results()) == 1
    higher = grid(metric={**GRID["metric"], "greater_is_better": True})
    assert best_of(higher, results()) == 0
    assert best_of(grid(), results()[2:]) is None


def shown(which, of_cells):
    screen = io.StringIO()
    Console(width=200, file=screen).print(rich_table(which, of_cells))
    return screen.getvalue()


def test_names_are_shown_as_they_are(tmp_path):
    """Neither a style of the table nor a formula of the plot."""
    names = ("[red]", "[/b] $\\frac$", "[softmax, cosformer]")
    values = [{"name": name, "arguments": {"x": i}} for i, name in enumerate(names)]
    which = grid(title="[bold] $\\sum$", axes=[{"name": "[i]", "values": values}])
    of_cells = [CellResult(cell, {1: 2.0}, {}) for cell in cells_of(which)]
    screen = shown(which, of_cells)
    for name in ("[bold] $\\sum$", "[i]", *names):
        assert name in screen
    write_report(which, of_cells, tmp_path)
    assert (tmp_path / "plot.png").is_file()


def test_table_csv_and_markdown_say_the_same(tmp_path):
    write_report(grid(), results(), tmp_path)
    with open("table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert rows[1] == {
        "map": "ReLU", "rate": "low", "seed": "2", "eval_loss": "4.0", "failure": ""
    }  # fmt: skip
    assert rows[5]["eval_loss"] == ""
    assert rows[5]["failure"] == "exit code 2: error: no | good"
    markdown = Path("table.md").read_text(encoding="utf-8")
    assert "| map | rate | loss \\| nats | seeds | failed |" in markdown
    assert "| ReLU | low | 3.0000 ± 1.4142 | 1, 2 | – |" in markdown
    assert "| ReLU | high | **2.5000 ± 0.0000** | 1, 2 | – |" in markdown
    assert "| 1 + elu | low | 0.5000 | 1 | 2 |" in markdown
    assert "| 1 + elu | high | – | – | 1, 2 |" in markdown
    screen = shown(grid(), results())
    for cell in ("3.0000 ± 1.4142", "2.5000 ± 0.0000", "0.5000", "lower is better"):
        assert cell in screen


@pytest.fixture
def figures(monkeypatch):
    """What is drawn."""
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda f, path, **k: (drawn.append(f), save(f, path, **k))
    )
    return drawn


@pytest.mark.parametrize(
    ("level", "words"), [(5.0, None), (-2.0, None), (200.0, "↑ unigram: 200.0000"), (-50.0, "↓")]
)
def test_a_baseline_that_is_far_away_does_not_press_the_models_together(
    tmp_path, figures, level, words
):
    metric = {**GRID["metric"], "baseline": "unigram_loss", "baseline_label": "unigram"}
    cells = [dataclasses.replace(each, baselines={1: level}) for each in results()]
    write_report(grid(metric=metric), cells, tmp_path)
    (axes,) = figures[0].axes
    dashed = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == ([] if words else [level])
    low, high = axes.get_ylim()
    assert high - low < 8
    said = [text.get_text() for text in axes.texts]
    assert [words in each for each in said] == [True] if words else not said


def test_the_plot_has_a_line_a_combination_and_every_run(tmp_path, figures):
    write_report(grid(), results(), tmp_path)
    with Image.open("plot.png") as picture:
        picture.verify()
        assert min(picture.size) > 400
    (axes,) = figures[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["ReLU", "1 + elu"]
    assert axes.get_ylabel() == "loss | nats"
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["low", "high"]
    low, high = axes.containers
    assert list(low.lines[0].get_ydata()) == [3.0, 0.5]
    assert list(high.lines[0].get_ydata()) == [2.5]
    dots = [y for line in axes.lines if line.get_marker() == "." for y in line.get_ydata()]
    assert sorted(dots) == [0.5, 2.0, 2.5, 2.5, 4.0]
