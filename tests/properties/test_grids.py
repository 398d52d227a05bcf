"""Any ablation file and command line: runs whose settings the recipe takes, or one ValueError."""

import copy
import io
import tempfile
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hf_linear_attn.training.ablation_grid import cells_of, read_grid, run_settings, slug
from hf_linear_attn.training.ablation_report import CellResult, rich_table, write_report
from tests.properties.choices import evenly
from tests.properties.examples import examples
from tests.properties.recipe_cases import TEXT, WRONG, as_words, settings_of
from tests.properties.test_recipes import check_refusal, same_environment
from tests.scripts.test_ablate import ABLATE

GRID = {
    "title": "Two things",
    "config": [],
    "metric": {
        "key": "eval_loss", "label": "loss", "greater_is_better": False, "pattern": "{:.2f}",
        "scale": 1.0, "baseline": None, "baseline_label": "unigram",
    },
    "arguments": {"config_overrides": "hidden_size=32", "model": {"num_hidden_layers": 2}},
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
                {"name": 0.1, "arguments": {"learning_rate": 1e-1, "model": {"norm_eps": 1e-4}}},
            ],
        },
    ],
}  # fmt: skip


def places(content, path=()):
    """Paths of all parts of a nested mapping."""
    yield path
    inner = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in inner:
        if isinstance(value, dict | list):
            yield from places(value, (*path, name))
        else:
            yield (*path, name)


NAMED = ["grid.yaml", "metric", "axis", "override", "configuration file", "folders of the grid"]
PLACES = [path for path in places(GRID) if path]


@st.composite
def grids(draw):
    """The grid with up to three things changed, left out or added."""
    grid = copy.deepcopy(GRID)
    for path in draw(st.lists(evenly(PLACES), max_size=3, unique=True)):
        part = grid
        try:
            for name in path[:-1]:
                part = part[name]
            part[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
        if isinstance(part, str):
            continue
        kind = draw(evenly(["replace", "text", "remove", "add"]))
        if kind == "replace":
            part[path[-1]] = draw(WRONG)
        elif kind == "text":
            part[path[-1]] = draw(TEXT)
        elif kind == "remove":
            del part[path[-1]]
        elif isinstance(part, dict):
            part[draw(TEXT)] = draw(WRONG)
        else:
            part.append(draw(WRONG))
    return grid


@examples(200)
@given(grid=grids())
def test_a_grid_is_taken_whole_or_refused(grid):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "grid.yaml"
        file.write_text(yaml.safe_dump(grid, allow_unicode=True), encoding="utf-8")
        try:
            found = read_grid(file)
            cells = cells_of(found)
            settings = [run_settings(found, cell, {}) for cell in cells]
        except ValueError as error:
            return check_refusal(error, NAMED)
        assert len({slug(cell) for cell in cells}) == len(cells)
        for cell, of_cell in zip(cells, settings, strict=True):
            for value in cell:
                assert value.arguments.keys() <= of_cell.keys()
        # What was taken can be shown when the runs are over.
        results = [CellResult(cell, {1: 0.5, 2: 1.5}, {3: "why"}, {1: 2.0}) for cell in cells]
        screen = io.StringIO()
        Console(width=1000, file=screen).print(rich_table(found, results))
        for value in (value for cell in cells for value in cell):
            assert value.name in screen.getvalue()
        write_report(found, results, Path(folder))
        assert str(grid["title"]) in (Path(folder) / "table.md").read_text(encoding="utf-8")


@examples(100)
@given(settings=settings_of("mlm"))
def test_further_arguments_are_the_recipe_s_or_refused(settings):
    """What the program does not know goes to every run, each field under its own name."""
    words = {name: as_words(value) for name, value in settings.items() if " " not in name}
    words = {name.replace("-", "_"): said for name, said in words.items() if said is not None}
    argv = [word for name, said in words.items() for word in (f"--{name}", *said)]
    with tempfile.TemporaryDirectory() as folder, same_environment(words):
        file = Path(folder) / "grid.yaml"
        file.write_text(yaml.safe_dump(GRID, allow_unicode=True), encoding="utf-8")
        try:
            plan = ABLATE.read_plan(["--config", str(file), *argv])
            cell = cells_of(plan.grid)[0]
            of_cell = run_settings(plan.grid, cell, plan.extra)
            ABLATE.check_settings(plan, cell, of_cell)
        except ValueError as error:
            said = (word for words_of in words.values() for word in words_of)
            return check_refusal(error, [*words, *said])
    assert plan.extra.keys() == words.keys() - {"output_dir"}
    assert plan.extra.keys() <= of_cell.keys()
