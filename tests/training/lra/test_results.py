"""Tables: chance level always, published rows of the same protocol only."""

import dataclasses
import io

import pytest
from rich.console import Console

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
    import json

    stored = dataclasses.asdict(result("text"))
    (tmp_path / "all_results.json").write_text(json.dumps({**stored, "eval_loss": 1.0}))
    assert read_results(tmp_path) == result("text")
    with pytest.raises(ValueError, match="holds no results of a Long Range Arena run"):
        read_results(tmp_path / "nothing")
