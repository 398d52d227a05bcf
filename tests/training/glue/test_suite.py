"""The table over several runs shows which rows were evaluated, and what a figure stands beside."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from hf_linear_attn.training.glue.arguments import GlueArguments
from hf_linear_attn.training.glue.suite import (
    Cell,
    check_settings,
    plan,
    settings_of,
)
from hf_linear_attn.training.glue.suite_report import (
    Line,
    draw_results,
    published,
    read_lines,
    suite_table,
    task_scores,
    write_results,
)
from hf_linear_attn.training.recipe_parser import RecipeParser

PARSER = RecipeParser(tuple(GlueArguments.__annotations__.values()))


def parse(*argv: str, **layers) -> GlueArguments:
    return GlueArguments(*PARSER.parse_recipe(["--output_dir", "suite", *argv], **layers))


def cell(task: str, seed: int = 1, **results) -> Cell:
    folder = Path("suite") / task / f"seed-{seed}"
    folder.mkdir(parents=True)
    (folder / "all_results.json").write_text(json.dumps({"positive_class": None, **results}))
    own = ["--text_column", "text", "--label_column", "label", "--train_file", "a.csv"]
    return Cell(task, seed, folder, parse("--task", task, *(own if task == "custom" else [])))


def measured(prefix: str, split: str, value: float, is_sample=False, metric="accuracy"):
    return {
        f"{prefix}_{metric}": value,
        f"{prefix}_baseline_{metric}": 0.5,
        f"{prefix}_split": split,
        f"{prefix}_rows": 1000,
        f"{prefix}_is_sample": is_sample,
    }


def shown(table) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    return console.file.getvalue()


def test_lines_name_the_rows_that_were_evaluated():
    cells = [
        cell("imdb", **measured("eval", "validation", 0.9), **measured("test", "test", 0.7)),
        cell("amazon", **measured("eval", "test", 0.6)),
    ]
    lines = read_lines(cells)
    assert [(li.task, li.split, li.values) for li in lines] == [
        ("imdb", "validation", (0.9,)), ("imdb", "test", (0.7,)), ("amazon", "test", (0.6,)),
    ]  # fmt: skip
    # By custom, results of these tasks are those of the test rows.
    assert task_scores(lines) == {"imdb": [0.7], "amazon": [0.6]}
    text = shown(suite_table(lines, [1]))
    assert "imdb (test)" in text
    assert "amazon (test)" in text
    with open(write_results(Path("suite"), lines, [1]), newline="") as file:
        rows = [(row["task"], row["split"], row["rows"]) for row in csv.DictReader(file)]
    assert rows == [
        ("imdb", "validation", "1000"), ("imdb", "test", "1000"), ("amazon", "test", "1000"),
    ]  # fmt: skip


def test_test_rows_of_other_tasks_are_shown_and_do_not_count():
    lines = read_lines(
        [cell("rte", **measured("eval", "validation", 0.9), **measured("test", "test", 0.7))]
    )
    assert [line.split for line in lines] == ["validation", "test"]
    assert task_scores(lines) == {"rte": [0.9]}


def test_rows_are_counted_and_samples_are_marked():
    lines = read_lines([cell("qnli", **measured("eval", "validation", 0.9, is_sample=True))])
    text = shown(suite_table(lines, [1]))
    assert "1,000*" in text
    assert "* a sample of the rows" in " ".join(text.split())
    whole = [replace(line, is_sample=False) for line in lines]
    assert "*" not in shown(suite_table(whole, [1]))


def test_the_class_of_f1_is_named():
    line = Line("custom", "validation", "f1", (0.5,), (0.1,), 10, positive="spam")
    assert "f1 (of spam)" in shown(suite_table([line], [1]))


def lines_of(**splits: str) -> list[Line]:
    return [Line(task, split, "accuracy", (0.5,), (0.5,), 10) for task, split in splits.items()]


def columns(attention: str, lines: list[Line]) -> list[str] | None:
    found = published(attention, lines)
    return None if found is None else [str(column.header) for column in found[0].columns][1:]


def test_published_results_stand_beside_the_same_rows_only():
    held_out = lines_of(sst2="validation", imdb="validation")
    assert columns("cosformer", held_out) == ["sst2"]
    assert columns("cosformer", [*held_out, *lines_of(imdb="test")]) == ["sst2", "imdb"]
    assert columns("cosformer", lines_of(amazon="validation")) is None
    assert columns("cosformer", lines_of(sst2="test")) is None
    mnli = [*lines_of(mnli="validation"), *lines_of(mnli="validation_mismatched")]
    assert columns("nystrom", mnli[:1]) == ["mnli"]
    assert columns("nystrom", mnli) == ["mnli", "mnli_mm"]


def test_a_published_average_stands_beside_all_its_tasks_only():
    three = lines_of(qqp="validation", sst2="validation", mnli="validation")
    assert columns("cosformer", three) == ["qqp", "sst2", "mnli"]
    both = lines_of(imdb="test", amazon="test")
    assert columns("cosformer", [*three, *both])[-1] == "average"


def test_a_finished_run_without_its_results_is_one_line():
    found = cell("rte", **measured("eval", "validation", 0.9))
    (found.folder / "all_results.json").unlink()
    with pytest.raises(ValueError, match=r"seed-1/all_results\.json is missing; put .* or delete"):
        read_lines([found])
    (found.folder / "all_results.json").write_text('{"eval_accuracy": 0.5}')
    with pytest.raises(ValueError, match=r"seed-1/all_results\.json has no 'eval_split'; put the"):
        read_lines([found])


NOTHING = object()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("eval_accuracy", NOTHING, "has no 'eval_accuracy'"),
        ("eval_accuracy", None, "eval_accuracy is None, expected a number"),
        ("eval_accuracy", "x", "eval_accuracy is 'x', expected a number"),
        ("eval_accuracy", True, "eval_accuracy is True, expected a number"),
        ("eval_accuracy", 10**400, r"eval_accuracy is 1000\S+, expected a number"),
        ("eval_rows", NOTHING, "has no 'eval_rows'"),
        ("eval_rows", "x", "eval_rows is 'x', expected a whole number"),
        ("eval_rows", 2.5, "eval_rows is 2.5, expected a whole number"),
        ("eval_split", ["a"], r"eval_split is \['a'\], expected text"),
        ("eval_baseline_accuracy", None, "eval_baseline_accuracy is None, expected a number"),
        ("eval_is_sample", "no", "eval_is_sample is 'no', expected true or false"),
        ("positive_class", 3, "positive_class is 3, expected text"),
    ],
)
def test_a_value_of_another_kind_is_named_with_its_file(name, value, message):
    sound = measured("eval", "validation", 0.9)
    changed = {k: v for k, v in {**sound, name: value}.items() if v is not NOTHING}
    cells = [cell("rte", **changed)]
    with pytest.raises(ValueError, match=rf"seed-1/all_results\.json:? {message}; put .* again$"):
        read_lines(cells)


@pytest.mark.parametrize("content", ["[1]", "null", "3", '"a"', "{", "", "[" * 100_000, "\0"])
def test_results_that_are_no_mapping_are_named(content):
    found = cell("rte")
    (found.folder / "all_results.json").write_text(content)
    with pytest.raises(ValueError, match=r"seed-1/all_results\.json is .*; put .* delete the fol"):
        read_lines([found])


def test_results_of_ones_own_task_name_a_metric():
    with pytest.raises(ValueError, match=r"all_results\.json names no metric; put the file"):
        read_lines([cell("custom", eval_split="validation")])


def test_a_seed_that_has_diverged_stands_in_the_table_beside_the_others():
    cells = [
        *(cell("stsb", s, **both(v)) for s, v in ((1, math.nan), (2, 0.5))),
        *(cell("rte", s, **measured("eval", "validation", v)) for s, v in ((1, 0.9), (2, 0.7))),
    ]
    lines = read_lines(cells)
    rows = [
        [c.strip() for c in row.split("│")[1:-1]]
        for row in shown(suite_table(lines, [1, 2])).splitlines()
    ]
    assert ["stsb", "pearson", "1,000", "nan", "50.00"] in rows
    assert ["rte", "accuracy", "1,000", "80.00 ± 14.14", "50.00"] in rows
    with open(write_results(Path("suite"), lines, [1, 2]), newline="") as file:
        found = {row["metric"]: row for row in csv.DictReader(file)}
    assert (found["pearson"]["mean"], found["pearson"]["deviation"]) == ("nan", "")
    assert (found["pearson"]["seed 1"], found["pearson"]["seed 2"]) == ("nan", "0.5")
    assert draw_results(Path("suite"), lines).read_bytes().startswith(b"\x89PNG")


def both(value: float) -> dict:
    """The two metrics of a regression."""
    metrics = ("pearson", "spearmanr")
    return {
        k: v for m in metrics for k, v in measured("eval", "validation", value, metric=m).items()
    }


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("{colla: {seed: 1}}", "unknown task 'colla'.*'cola'"),
        ("{cola: {max_stepz: 2}}", "tasks: cola: unknown key 'max_stepz'.*'max_steps'"),
        ("{cola: {max_steps: many}}", "tasks: cola: max_steps: got 'many'"),
        ("{cola: 3}", "expected `field: value` lines"),
        ("{cola: {output_dir: x}}", "cannot be set"),
    ],
)
def test_settings_of_tasks_that_are_not_run_are_looked_at_too(tasks, message):
    with pytest.raises(ValueError, match=message):
        check_settings(parse("--task", "rte", "--tasks", tasks), PARSER.check)


def test_settings_of_a_task_go_over_the_fields_of_any_file():
    Path("first.yaml").write_text("tasks: {rte: {num_train_epochs: 10}}")
    Path("second.yaml").write_text("num_train_epochs: 2")
    files = ["--config", "first.yaml", "second.yaml", "--task", "rte"]
    args = parse(*files)
    check_settings(args, PARSER.check)
    assert parse(*files, under=settings_of(args, "rte")).training.num_train_epochs == 10
    over = [*files, "--num_train_epochs", "3"]
    assert parse(*over, under=settings_of(args, "rte")).training.num_train_epochs == 3


@pytest.mark.parametrize("name", ["results.csv", "results.png"])
def test_tables_and_plots_of_a_person_are_not_replaced(name):
    args = parse("--task", "rte", "--seeds", "1,2")
    (file := Path("suite", name)).parent.mkdir()
    file.write_text("mine")
    with pytest.raises(ValueError, match=rf"output_dir suite holds {name}, and no run of this"):
        plan(args, lambda under, over: args)
    (folder := Path("suite/rte/seed-1")).mkdir(parents=True)
    with pytest.raises(ValueError, match="nothing was changed"):
        plan(args, lambda under, over: args)
    (folder / "run.yaml").touch()  # an earlier start of the suite
    assert len(plan(args, lambda under, over: args)) == 2


def test_a_missing_mnli_checkpoint_is_called_so():
    args = parse("--task", "rte", "--mnli_checkpoint", "nowhere/model")
    with pytest.raises(ValueError, match=r"^mnli_checkpoint nowhere/model") as error:
        plan(args, lambda under, over: args)
    assert "model_name_or_path" not in str(error.value)
