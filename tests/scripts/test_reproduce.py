"""The program of results: every run once, steps of equal time, verdicts, and the page."""

import dataclasses
import hashlib
import importlib
import json
import math
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from hf_linear_attn.integrations.model_card import write_model_card
from hf_linear_attn.training.ablation_grid import cells_of, read_grid, run_settings
from hf_linear_attn.training.hardware import device_name
from hf_linear_attn.training.published import printable_cell
from tests.training.test_run_card import masked_lm_facts

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import ablate  # noqa: E402
import reproduce  # noqa: E402
from reproduction.experiments import EXPERIMENTS, Ordering  # noqa: E402
from reproduction.figures import (  # noqa: E402
    ExperimentFigures,
    Figures,
    RunFigures,
    read_figures,
)
from reproduction.page import page  # noqa: E402
from reproduction.run_folder import conditions, data_lines, run_figures  # noqa: E402
from reproduction.same_time import step_seconds, steps_in_the_same_time  # noqa: E402
from reproduction.texts import TEXTS  # noqa: E402

page_module = importlib.import_module("reproduction.page")
texts_module = importlib.import_module("reproduction.texts")
ORDERINGS = [o for e in EXPERIMENTS.values() for s in e.sections for o in s.orderings]

# As the recipes write it (see test_the_card_of_a_run_says_what_the_page_needs).
CARD = """
- train: 5 documents became 10 blocks
- validation: 1 document became 2 blocks

Evaluation on 1,234 predicted tokens, the same ones before and after training.

| device | Abacus, 1 thread |
| torch | 2.0 |
| transformers | 5.0 |
| hf_linear_attn | 0.1 |
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Texts, and runs that are quick; returns the arguments."""
    monkeypatch.chdir(tmp_path)
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4)}, "model.safetensors")
    Path("card.md").write_text(CARD)
    monkeypatch.setattr(ablate, "launch", train)
    # Settings are checked by the real recipes in a test of their own.
    monkeypatch.setattr(ablate, "check_settings", lambda *_: None)
    monkeypatch.setattr(ablate, "RECIPES", tmp_path / "recipes")
    monkeypatch.setattr(reproduce, "step_seconds", measured)
    monkeypatch.setattr(reproduce, "DOCS", tmp_path / "docs")
    for text in TEXTS:
        file = tmp_path / "texts" / text.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("text")
    digest = hashlib.sha256(b"text").hexdigest()
    short = [dataclasses.replace(text, sha256=digest, size=4) for text in TEXTS]
    monkeypatch.setattr(texts_module, "TEXTS", short)
    (tmp_path / "docs").mkdir()
    # The grids start from the recipes' own files, which are named from the repository's folder.
    for kind in ("clm", "mlm"):
        target = tmp_path / "recipes" / "configs" / kind / "tiny-cpu.yaml"
        target.parent.mkdir(parents=True)
        target.write_text((ROOT / "recipes" / "configs" / kind / "tiny-cpu.yaml").read_text())
    return ["--data_dir", "texts", "--seeds", "1,2,4"]


def train(command, environment, log, seconds):
    """Stands for a recipe: cosFormer does better than the others, worse again without weights."""
    settings = yaml.safe_load(Path(command[-1]).read_text())
    folder = Path(settings["output_dir"])
    with open("calls.txt", "a") as opened:
        threads = environment["OMP_NUM_THREADS"]
        words = (folder.parent.name, settings["seed"], settings["max_steps"], threads)
        opened.write(" ".join(map(str, words)) + "\n")
    if Path("broken").exists() and settings["block_size"] == 4096:
        log.write_text("error: no such thing")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy("model.safetensors", folder)
    shutil.copy("card.md", folder / "README.md")
    loss = 1.0 + settings["seed"] / 10 + (settings["attention"] != "cosformer")
    loss += "cos_reweighting=false" in settings.get("config_overrides", "")
    results = {"eval_loss": loss, "eval_perplexity": math.exp(loss), "eval_unigram_perplexity": 20}
    (folder / "all_results.json").write_text(json.dumps(results))
    seconds.write_text("90.0\n")
    return 0


STEP_SECONDS = {"TransNormer T2": 0.5, "cosFormer": 0.4, "softmax": 1.6}


def measured(settings, on_round):
    with open("measured.txt", "a") as opened:
        opened.write(f"{settings['softmax']['block_size']}\n")
    return STEP_SECONDS


def calls():
    return Path("calls.txt").read_text().split("\n")[:-1]


def test_every_run_is_made_once_and_the_page_says_what_came_out(program, capsys):
    reproduce.main([*program, "--write"])
    models = sum(len(cells_of(read_grid(ROOT / e.grid))) for e in EXPERIMENTS.values())
    assert len(calls()) == 3 * models
    assert {call.split()[3] for call in calls()} == {"1"}
    steps = {call.split()[0]: int(call.split()[2]) for call in calls()[-9:]}
    assert steps["softmax"] == round(steps["transnormer-t2"] * 0.5 / 1.6)
    text = Path("docs/results.md").read_text()
    assert text == Path("runs/results/results.md").read_text()
    assert text == page(read_figures(Path("docs/results.json")))
    # exp(1.1), exp(1.2) and exp(1.4), and their sample deviation.
    assert "| cosFormer | 10 |" in text
    assert "| **3.46 ± 0.54** |" in text
    assert "| softmax | cosFormer |" in text
    assert "in all; Abacus, 1 thread, torch 2.0, transformers 5.0, hf_linear_attn 0.1. " in text
    assert "asks for 1,234 tokens" in text
    assert f"made this page: {3 * models * 1.5 / 60:.1f} hours of CPU time in all" in text
    assert "TransNormer T2 500 ms, cosFormer 400 ms, softmax 1,600 ms" in text
    assert "2,048 tokens a step" in text
    assert "| 20.0 | 1, 2, 4 | 1.5 |" in text
    assert "- train: 5 documents became 10 blocks\n- validation: 1 doc" in text
    assert Path("docs/images/results-long.png").read_bytes().startswith(b"\x89PNG")
    reproduce.main([*program, "--write"])
    assert len(calls()) == 3 * models
    assert Path("docs/results.md").read_text() == text
    assert len(Path("measured.txt").read_text().split()) == 1


def test_another_text_under_the_same_name_is_refused(program):
    Path("texts/wikitext-2/test.txt").write_text("Text")
    with pytest.raises(ValueError, match=r"test\.txt is not the text that the results are of"):
        reproduce.main(program)
    assert not Path("calls.txt").exists()
    reproduce.main([*program, "--only", "long"])


def test_texts_are_collected_by_their_content(program, monkeypatch, capsys):
    shutil.rmtree("texts")
    contents = [f"text {i}" for i in range(len(TEXTS))]
    digests = [hashlib.sha256(content.encode()).hexdigest() for content in contents]
    known = [dataclasses.replace(t, sha256=d, size=6) for t, d in zip(TEXTS, digests, strict=True)]
    monkeypatch.setattr(texts_module, "TEXTS", known)
    for i, content in enumerate([*contents, "another text"]):
        Path(f"clones/{i}").mkdir(parents=True)
        Path(f"clones/{i}/some.txt").write_text(content)
    Path("clones/0/some.txt").rename("kept.txt")
    with pytest.raises(ValueError, match=rf"has no {TEXTS[0].file}: it is in https://github.com/"):
        reproduce.main(["--collect", "clones", "--data_dir", "texts"])
    Path("kept.txt").rename("clones/0/some.txt")
    reproduce.main(["--collect", "clones", "--data_dir", "texts"])
    assert "All texts are in texts" in capsys.readouterr().out
    assert [Path("texts", text.file).read_text() for text in TEXTS] == contents
    Path("texts", TEXTS[1].file).write_text("mine")
    with pytest.raises(ValueError, match="is not the text that the results are of"):
        reproduce.main(["--collect", "clones", "--data_dir", "texts"])
    assert Path("texts", TEXTS[1].file).read_text() == "mine"
    assert not Path("calls.txt").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--data_dir", "texts", "--write"], "--write is about what is run"),
        (["--data_dir", "texts", "--only", "long"], "--only is about what is run"),
        ([], "--collect needs --data_dir"),
    ],
)
def test_collecting_runs_nothing(program, more, said):
    Path("clones").mkdir()
    with pytest.raises(ValueError, match=said):
        reproduce.main(["--collect", "clones", *more])


def test_the_page_in_docs_is_made_of_the_figures_beside_it():
    figures = read_figures(ROOT / "docs" / "results.json")
    assert (ROOT / "docs" / "results.md").read_text() == page(figures)
    for experiment in EXPERIMENTS.values():
        found = figures.experiments[experiment.name]
        for cell in cells_of(read_grid(experiment.grid)):
            assert len(found.of(cell[0].name)) >= 3
        plot = ROOT / "docs" / "images" / f"results-{experiment.name}.png"
        assert plot.read_bytes().startswith(b"\x89PNG")


def test_an_experiment_that_is_left_out_stays_on_the_page(program):
    reproduce.main([*program, "--only", "long"])
    reproduce.main([*program, "--only", "masked"])
    kept = json.loads(Path("runs/results/results.json").read_text())["experiments"]
    assert list(kept) == ["masked", "long"]


@pytest.mark.parametrize(
    "name", ["results.md", "results.json", "images/results-causal.png", "long/table.csv"]
)
def test_files_of_a_person_are_not_replaced(program, name):
    file = Path("runs/results", name)
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(ValueError, match=rf"holds {Path(name).name}|holds {name}, and no run of"):
        reproduce.main([*program, "--only", "long"])
    assert [path for path in Path("runs").rglob("*") if path.is_file()] == [file]
    assert not Path("calls.txt").exists()
    assert not Path("measured.txt").exists()


@pytest.mark.parametrize(
    "content",
    [
        "[]", "null", "3", "{", "", "{}", '{"experiments": 3}', '{"experiments": {"long": []}}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_figures_that_are_damaged_are_named_before_anything_is_run(program, content):
    reproduce.main([*program, "--only", "long"])
    Path("calls.txt").unlink()
    Path("runs/results/results.json").write_text(content)
    with pytest.raises(ValueError, match=r"results\.json does not hold the figures .*or delete it"):
        reproduce.main([*program, "--only", "masked"])
    assert not Path("calls.txt").exists()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("loss", "x", "TypeError: loss is 'x'"),
        ("loss", True, "TypeError: loss is True"),
        ("conditions", {"torch": 2}, "TypeError: conditions is {'torch': 2}"),
        ("cpu_minutes", {"softmax": None}, "TypeError: cpu_minutes is {'softmax': None}"),
        ("data", [3], r"TypeError: data is \[3\]"),
        ("speed", 1, "TypeError: .*'speed'"),
    ],
)
def test_a_figure_of_another_kind_is_named(tmp_path, name, value, words):
    run = RunFigures("softmax", 1, 20.0, 3, 25.0, 9, 10, 4, {"torch": "2.0"})
    figures = Figures({"long": ExperimentFigures([run], 2048, {"softmax": 1.5}, {"softmax": 2})})
    file = tmp_path / "results.json"
    file.write_text(figures.as_json())
    assert read_figures(file) == figures
    content = json.loads(file.read_text())
    experiment = content["experiments"]["long"]
    (experiment if name in ("cpu_minutes", "data") else experiment["runs"][0])[name] = value
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"results\.json does not hold the figures .*{words}"):
        read_figures(file)


@pytest.mark.parametrize(
    "content",
    [
        "[]", "null", "{", "{}", '{"seconds": {"a": 1}}', '{"seconds": {"a": 1}, "settings": {}}',
        '{"seconds": {"a": "x"}, "settings": {"a": {}}}', '{"seconds": 3, "settings": {"a": {}}}',
        '{"seconds": {"a": 0}, "settings": {"a": {}}}', '{"mine": 1}', "[" * 100_000,
        '{"seconds": {"a": NaN}, "settings": {"a": {}}}',
        '{"seconds": {"a": true}, "settings": {"a": {}}}',
    ],
)  # fmt: skip
def test_times_of_a_step_that_are_damaged_are_named(program, content):
    file = Path("runs/results/long/step_seconds.json")
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(ValueError, match=r"long/step_seconds\.json .*; put back .* or delete it"):
        reproduce.main([*program, "--only", "long"])
    assert file.read_text() == content
    assert not Path("calls.txt").exists()


def test_runs_under_other_conditions_are_told_apart(program):
    reproduce.main([*program, "--only", "long"])
    Path("card.md").write_text(CARD.replace("| torch | 2.0 |", "| torch | 2.1 |"))
    reproduce.main([*program[:-1], "1,2,4,5", "--only", "long"])
    text = Path("runs/results/results.md").read_text()
    assert "9 runs: Abacus, 1 thread, torch 2.0, transformers 5.0, hf_linear_attn 0.1" in text
    assert "; 3 runs: Abacus, 1 thread, torch 2.1," in text


def test_the_time_of_a_step_is_measured_again_for_other_settings(program, tmp_path):
    reproduce.main([*program, "--only", "long"])
    texts = tmp_path / "texts"
    texts.rename(tmp_path / "elsewhere")
    reproduce.main(["--data_dir", "elsewhere", "--seeds", "1", "--only", "long"])
    assert len(Path("measured.txt").read_text().split()) == 2


def test_the_minutes_of_a_run_that_was_killed_with_the_program_are_not_made_up(program):
    reproduce.main([*program, "--only", "long"])
    folder = Path("runs/results/long/cosformer")
    for seed in (1, 2, 4):
        seconds = folder / f"seed-{seed}.cpu_seconds"
        seconds.write_text("unknown\n" + seconds.read_text())
    reproduce.main([*program, "--only", "long"])
    [row] = [
        line
        for line in Path("runs/results/results.md").read_text().split("\n")
        if line.startswith("| cosFormer |")
    ]
    assert row.endswith("| 1, 2, 4 | – |")
    # The other two models' runs of 1.5 minutes.
    words = "at least 0.1 hours of CPU time in all, without 3 runs whose time is not known; Abacus"
    assert words in Path("runs/results/results.md").read_text()


def test_a_run_that_fails_is_shown_and_tried_again(program, capsys):
    Path("broken").touch()
    with pytest.raises(SystemExit) as left:
        reproduce.main([*program, "--only", "long"])
    assert left.value.code == 1
    assert "cosFormer, seed 1 failed" in " ".join(capsys.readouterr().out.split())
    assert "| cosFormer | – |" in Path("runs/results/results.md").read_text()
    with pytest.raises(SystemExit):
        reproduce.main([*program, "--write"])
    assert not list(Path("docs").iterdir())
    Path("broken").unlink()
    before = len(calls())
    reproduce.main([*program, "--only", "long"])
    assert len(calls()) == before + 9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data_dir", "nowhere"], "nowhere is not a folder"),
        (["--data_dir", "recipes"], "recipes has no wikipedia_extract.txt"),
        (["--data_dir", "texts", "--only", "causl"], "did you mean 'causal'"),
        (["--data_dir", "texts", "--only", "long", "--write"], "leave --only out"),
        (["--data_dir", "texts", "--seeds", "1,x"], "seeds: got '1,x'"),
        (["--data_dir", "texts", "--seeds", "1,2", "--write"], "give 3 --seeds or more"),
        ([], "give --data_dir"),
    ],
)
def test_mistakes(program, arguments, words, monkeypatch):
    monkeypatch.delenv("HF_LINEAR_ATTN_DATA", raising=False)
    with pytest.raises(ValueError, match=words):
        reproduce.main(arguments)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda e: e.name)
def test_the_recipes_take_every_setting(experiment, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    grid = read_grid(experiment.grid)
    extra = {"train_file": ["a.txt"], "validation_file": ["b.txt"]}
    recipe = ROOT / "recipes" / f"{experiment.recipe}.py"
    plan = ablate.Plan(recipe, grid, [1], extra, tmp_path, [])
    for cell in cells_of(grid):
        ablate.check_settings(plan, cell, run_settings(grid, cell, extra))


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda e: e.name)
def test_the_page_speaks_of_models_that_are_run(experiment):
    models = {cell[0].name for cell in cells_of(read_grid(experiment.grid))}
    shown = [model for section in experiment.sections for model in section.rows]
    assert set(shown) == models
    for section in experiment.sections:
        for each in section.orderings:
            assert {each.better, each.worse} <= set(section.rows)


def test_an_ordering_without_figures_is_of_curves():
    """What a paper has in numbers is printed by the rule for numbers, or not at all."""
    assert all("Figure" in each.said_by for each in ORDERINGS if not each.table)


@pytest.mark.parametrize("each", [o for o in ORDERINGS if o.table], ids=lambda o: o.better)
def test_what_is_said_to_be_published_may_be_printed_and_is_so(each):
    cells = [
        printable_cell(each.table, row, each.column)
        for row in (each.published_better, each.published_worse)
    ]
    # Losses and perplexities: lower is better.
    better, worse = (float(cell.rstrip("†‡")) for cell in cells)
    assert better < worse


def run(model, seed, loss):
    where = conditions(CARD)
    return RunFigures(model, seed, 2.7**loss, loss, 9.0, 5, 10, predicted=7, conditions=where)


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([(1.0, 1.1), (1.2, 1.3)], "holds (2 of 2 seeds)"),
        ([(1.1, 1.0), (1.3, 1.2)], "**does not hold** (0 of 2 seeds)"),
        # The mean is lower, but not with every seed.
        ([(1.0, 2.0), (1.3, 1.2)], "undecided (1 of 2 seeds)"),
        ([], "not run"),
    ],
)
def test_a_verdict_is_taken_seed_by_seed(losses, words):
    found = ExperimentFigures()
    for seed, (a, b) in enumerate(losses):
        found.runs += [run("A", seed, a), run("B", seed, b)]
    assert page_module._verdict(Ordering("A", "B"), found) == words


def test_losses_are_compared_with_the_same_seed():
    losses = {"softmax": {1: 1.0, 2: 5.0}, "cosFormer": {2: 5.5, 1: 1.1}}
    runs = [run(m, s, x) for m, of in losses.items() for s, x in of.items()]
    found = ExperimentFigures(runs, 64, {}, {"softmax": 1.0, "cosFormer": 2.0}, [])
    text = page(Figures({"causal": found}))
    # 0.1 and 0.5; paired with the other's seed it would be 4.5 and -3.9.
    assert "| +0.300 ± 0.283 |" in text
    assert "| TransNormer T1 | – |" in text


@pytest.mark.parametrize("words", ["masked", "predicted"])
def test_the_card_of_a_run_says_what_the_page_needs(words, tmp_path):
    _, facts = masked_lm_facts(tmp_path / "run")
    folder = tmp_path / "run"
    folder.mkdir()
    facts = dataclasses.replace(facts, data=["train: 5 documents", "validation: 1 document"])
    card = write_model_card(folder, facts)
    card.write_text(card.read_text().replace("masked tokens", f"{words} tokens"))
    save_file({"a": torch.zeros(2, 3)}, folder / "model.safetensors")
    results = {"eval_loss": 1.0, "eval_perplexity": 2.0, "eval_unigram_perplexity": 3.0}
    (folder / "all_results.json").write_text(json.dumps(results))
    found = run_figures(folder, "A", seed=3, steps=12)
    assert found.predicted == 500
    assert found.parameters == 6
    assert found.conditions["torch"] == torch.__version__
    assert found.conditions["device"] == device_name(torch.device("cpu"))
    assert data_lines(folder) == ["train: 5 documents", "validation: 1 document"]
    card.write_text(card.read_text().replace("| torch |", "| Torch |"))
    with pytest.raises(ValueError, match="a card has 0 places"):
        run_figures(folder, "A", seed=3, steps=12)


def test_steps_of_the_same_time():
    assert steps_in_the_same_time(700, {"a": 2.0, "b": 7.0, "c": 1.0}) == {
        "a": 700, "b": 200, "c": 1400,
    }  # fmt: skip
    assert steps_in_the_same_time(1, {"a": 1.0, "b": 9.0}) == {"a": 1, "b": 1}


def test_the_time_of_a_step_is_that_of_the_grids_models(monkeypatch):
    monkeypatch.chdir(ROOT)
    grid = read_grid(EXPERIMENTS["long"].grid)
    small = {"block_size": 16, "per_device_train_batch_size": 1, "vocab_size": 300}
    settings = {c[0].name: run_settings(grid, c, small) for c in cells_of(grid)}
    rounds = []
    seconds = step_seconds(settings, rounds.append)
    assert list(seconds) == list(STEP_SECONDS)
    assert all(value > 0 for value in seconds.values())
    assert rounds == list(range(8))


def test_the_texts_are_those_of_the_experiments():
    used = {name for e in EXPERIMENTS.values() for name in (*e.train, *e.validation)}
    assert {text.file for text in TEXTS} == used
