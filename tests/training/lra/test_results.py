"""Tables: chance level always, published rows of the same protocol only."""

import dataclasses
import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from hf_linear_attn.training.lra import suite
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.results import (
    LraResults,
    notes,
    own_rows,
    published_cells,
    published_of,
    read_results,
    results_table,
)
from hf_linear_attn.training.published import published_table


def result(task, preset="official", **changed):
    values = {
        "task": task, "preset": preset, "attention": "cosformer", "test_accuracy": 0.5,
        "best_validation_accuracy": 0.6, "best_step": 10, "chance_level": 0.25,
        "test_examples": 1234, "test_examples_there": 1234, "over_long_train": 0,
        "over_long_validation": 0,
        "over_long_test": 0, "over_long_rule": "refuse", "parameters": 7, "steps": 20,
        "data": "Bytes, read from the folder x.", "differences": [],
    }  # fmt: skip
    return LraResults(**{**values, **changed})


def printed(results):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(results_table(results))
    return console.export_text()


FIVE = ("listops", "text", "retrieval", "image", "pathfinder")


def test_every_table_has_the_chance_level_and_the_average_only_of_all_five():
    some = {task: result(task) for task in ("listops", "image")}
    assert own_rows(some) == [
        ["cosformer (here)", "50.00", "50.00"], ["chance level (here)", "25.00", "25.00"]
    ]  # fmt: skip
    assert "Avg" not in printed(some)
    accuracies = (0.1, 0.2, 0.3, 0.4, 0.5)
    every = {t: result(t, test_accuracy=a) for t, a in zip(FIVE, accuracies, strict=True)}
    every["pathx"] = result("pathx", test_accuracy=1.0)
    assert own_rows(every)[0][-2:] == ["100.00", "30.00"]
    assert "chance level" in printed(every)


@pytest.mark.parametrize("preset", PRESETS)
def test_published_rows_are_those_of_the_same_harness_alone(preset):
    table = published_table(f"lra_{preset}")
    assert published_of(PRESETS[preset]) == [table]
    text = printed({"text": result("text", preset)})
    own = {row.values["text"] for row in table.rows}
    other = "nystromformer" if preset == "official" else "official"
    foreign = {row.values["text"] for row in published_table(f"lra_{other}").rows} - own
    assert all(f"{value:.2f}" in text for value in own)
    assert not any(f"{value:.2f}" in text for value in foreign)


def test_two_presets_are_never_in_one_table():
    mixed = {"text": result("text"), "image": result("image", "nystromformer")}
    with pytest.raises(ValueError, match="presets nystromformer and official are not compared"):
        results_table(mixed)


def test_path_x_stands_beside_no_published_figure():
    assert published_cells(PRESETS["official"], ["pathx"]) == []
    cells = dict(published_cells(PRESETS["official"], ["listops", "pathx"]))
    assert cells["Transformer"] == ["36.37", "–"]


def test_recalled_figures_carry_their_footnote():
    lines = notes({"listops": result("listops")})
    assert any(line.startswith("‡ recalled") for line in lines)
    assert "37.90‡" in printed({"listops": result("listops")})


def test_what_was_cut_and_what_is_not_at_scale_stands_below():
    changed = result(
        "text", over_long_train=1000, over_long_test=2, over_long_rule="cut",
        differences=["optimiser steps 10 instead of 20,000", "weight_decay 0 instead of 0.1"],
    )  # fmt: skip
    lines = notes({"text": changed})
    assert "Text: 1,002 over-long examples were cut" in lines
    differs = "optimiser steps 10 instead of 20,000; weight_decay 0 instead of 0.1"
    assert f"Text is not as published: {differs}" in lines
    assert any("Text on all 1,234 test examples" in line for line in lines)


def test_a_test_on_some_of_the_examples_says_so():
    lines = notes({"text": result("text"), "image": result("image", test_examples=20)})
    said = "tested once: Text on all 1,234 test examples, Image on 20 of 1,234 test examples"
    assert any(said in line for line in lines)


def test_the_chance_level_is_named_as_what_it_is():
    chance = "chance level: the training split's most frequent label on the test split"
    assert any(line.startswith(chance) for line in notes({"text": result("text")}))


def test_results_are_read_back_from_a_finished_run(tmp_path):
    stored = dataclasses.asdict(result("text"))
    (tmp_path / "all_results.json").write_text(json.dumps({**stored, "eval_loss": 1.0}))
    assert read_results(tmp_path) == result("text")
    with pytest.raises(ValueError, match=r"nothing/all_results\.json is missing; put .* delete"):
        read_results(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("test_accuracy", None, "test_accuracy is None, expected a number"),
        ("test_accuracy", "x", "test_accuracy is 'x', expected a number"),
        ("preset", "nope", "preset is 'nope', expected one of official, nystromformer"),
        ("preset", ["official"], r"preset is \['official'\], expected text"),
        ("differences", 3, "differences is 3, expected a list"),
        ("differences", ["a", None], r"differences is \['a', None\], expected a list of texts"),
        ("over_long_train", None, "over_long_train is None, expected a whole number"),
        ("test_examples", 1.5, "test_examples is 1.5, expected a whole number"),
        ("data", {}, r"data is \{\}, expected text"),
    ],
)
def test_a_value_of_another_kind_is_named_with_its_file(tmp_path, name, value, message):
    stored = {**dataclasses.asdict(result("text")), name: value}
    (tmp_path / "all_results.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=rf"all_results\.json: {message}; put the file back"):
        read_results(tmp_path)


@pytest.mark.parametrize("content", ["[1]", "null", "3", "{}", "{", "", "[" * 100_000])
def test_results_that_are_none_are_named(tmp_path, content):
    (tmp_path / "all_results.json").write_text(content)
    with pytest.raises(ValueError, match=r"all_results\.json (is|has) .*; put the file back"):
        read_results(tmp_path)


def test_damaged_results_of_one_task_show_before_another_is_trained(tmp_path, monkeypatch):
    def run(folder, *_):
        training = SimpleNamespace(process_index=0)
        return SimpleNamespace(training=training, output_dir=folder, check=lambda: None)

    trained = []
    monkeypatch.setattr(suite, "LraRun", run)
    monkeypatch.setattr(suite, "_is_finished", lambda run: run.output_dir.name == "text")
    monkeypatch.setattr(suite, "carry_out", lambda run, *_, **__: trained.append(run))
    folders = [tmp_path / "listops", tmp_path / "text"]
    folders[1].mkdir()
    (folders[1] / "all_results.json").write_text("{}")
    with pytest.raises(ValueError, match=r"text/all_results\.json has no 'task'"):
        suite.carry_out_all(folders, tmp_path, "lra.py", tmp_path)
    assert trained == []
