"""The ablation program: each run once, failures shown, the rest goes on."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from hf_linear_attn.training.ablation_grid import cells_of, read_grid, run_settings
from hf_linear_attn.training.causal_lm_arguments import CausalLMArguments
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.recipe_parser import RecipeParser
from tests.recipes.mlm_recipe import MLM, SETTINGS, load_recipe

ROOT = Path(__file__).parents[2]
GRIDS = sorted((ROOT / "recipes" / "configs" / "ablations").glob("*.yaml"))

# Stands for a recipe: quick, counts its calls, fails and refuses as a recipe does.
FAKE = """
import json, pathlib, sys, yaml
settings = yaml.safe_load(open(sys.argv[2]))
folder = pathlib.Path(settings["output_dir"])
with open("calls.txt", "a") as calls:
    calls.write(f"{folder.parent.name} {settings['seed']}\\n")
kept = folder / "kept.json"
if kept.exists() and json.loads(kept.read_text()) != settings["max_steps"]:
    print("noise"); print("error: belongs to another run", file=sys.stderr); sys.exit(2)
if settings.get("fails") and not pathlib.Path("mended").exists():
    sys.exit("error: it does not work")
folder.mkdir(parents=True, exist_ok=True)
kept.write_text(json.dumps(settings["max_steps"]))
loss = settings["x"] + settings["seed"] / 10
(folder / "all_results.json").write_text(json.dumps({"eval_loss": loss}))
"""


def load_program():
    sys.path.insert(0, str(ROOT / "scripts"))  # as it is when the program runs
    spec = importlib.util.spec_from_file_location("ablate", ROOT / "scripts" / "ablate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ABLATE = load_program()
CLM = load_recipe("clm")


@pytest.fixture
def grid(tmp_path, monkeypatch):
    """A grid of two cells of the fake recipe; returns the arguments that run it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ABLATE, "RECIPES", Path("recipes"))
    Path("recipes").mkdir()
    Path("recipes/fake.py").write_text(FAKE)
    Path("base.yaml").write_text("max_steps: 5\n")
    values = [{"name": name, "arguments": {"x": x}} for name, x in (("one", 1), ("two", 2))]
    write_grid(values)
    return ["--recipe", "fake", "--config", "grid.yaml", "--seeds", "1,3", "--output_dir", "out"]


def write_grid(values, key="eval_loss"):
    content = {
        "title": "T",
        "config": "base.yaml",
        "metric": {"key": key, "label": "loss"},
        "axes": [{"name": "x", "values": values}],
    }
    Path("grid.yaml").write_text(yaml.safe_dump(content))


def calls():
    return Path("calls.txt").read_text().split("\n")[:-1]


def test_each_cell_is_run_with_each_seed_and_never_again(grid, capsys):
    ABLATE.main(grid)
    assert calls() == ["one 1", "two 1", "one 3", "two 3"]
    assert "1.2000 ± 0.1414" in capsys.readouterr().out
    table = Path("out/table.md").read_text()
    ABLATE.main(grid)
    assert len(calls()) == 4
    assert Path("out/table.md").read_text() == table
    ABLATE.main([*grid[:5], "1,3,2", *grid[6:]])
    assert calls()[4:] == ["one 2", "two 2"]


def test_a_failed_run_is_shown_the_rest_goes_on_and_it_is_tried_again(grid, capsys):
    values = [
        {"name": "bad", "arguments": {"x": 0, "fails": True}},
        {"name": "good", "arguments": {"x": 1}},
    ]
    write_grid(values)
    with pytest.raises(SystemExit) as left:
        ABLATE.main(grid)
    assert left.value.code == 1
    assert len(calls()) == 4
    out = capsys.readouterr().out
    assert "x bad, seed 1 failed: exit code 1: error: it does not work" in out
    assert "out/bad/seed-1.log" in out
    assert "1.2000 ± 0.1414" in out
    assert "| bad | – | – | 1, 3 |" in Path("out/table.md").read_text()
    Path("mended").touch()
    ABLATE.main(grid)
    assert calls()[4:] == ["bad 1", "bad 3"]


def test_two_starts_do_not_run_the_same_grid(grid):
    with (
        ABLATE.alone_in(Path("out")),
        pytest.raises(ValueError, match="another start is at work in out"),
    ):
        ABLATE.main(grid)
    assert not Path("calls.txt").exists()


@pytest.mark.parametrize("name", ["table.md", "table.csv", "plot.png"])
def test_tables_and_plots_of_a_person_are_not_replaced(grid, name):
    file = Path("out", name)
    file.parent.mkdir()
    file.write_text("mine")
    with pytest.raises(ValueError, match=rf"output_dir out holds {name}, and no run .*nothing was"):
        ABLATE.main(grid)
    assert [path.name for path in Path("out").iterdir()] == [name]
    assert file.read_text() == "mine"
    assert not Path("calls.txt").exists()
    file.rename("out/mine")
    ABLATE.main(grid)
    file.write_text("")  # now it is the program's own
    ABLATE.main(grid)
    assert file.read_bytes()


def test_a_run_that_refuses_other_settings_does_not_count_as_finished(grid, capsys):
    ABLATE.main(grid)
    for _ in range(2):
        with pytest.raises(SystemExit):
            ABLATE.main([*grid, "--max_steps", "6"])
        assert "exit code 2: error: belongs to another run" in capsys.readouterr().out
    ABLATE.main(grid)


def test_a_result_that_is_not_there_is_a_failure(grid, capsys):
    write_grid([{"name": "one", "arguments": {"x": 1}}], key="eval_los")
    with pytest.raises(SystemExit):
        ABLATE.main(grid)
    assert "has no number 'eval_los'; did you mean 'eval_loss'?" in capsys.readouterr().out


def test_a_result_that_is_no_finite_number_is_a_failure(grid, capsys):
    write_grid([{"name": "one", "arguments": {"x": float("nan")}}])
    with pytest.raises(SystemExit):
        ABLATE.main(grid)
    assert "eval_loss is nan" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1]", "is damaged: it holds no mapping; put the file back"),
        ("null", "is damaged: it holds no mapping; put the file back"),
        ("[" * 100_000, "is not readable JSON; put the file back"),
        ('{"eval_loss": 1' + "0" * 400 + "}", ": eval_loss is 1000"),
        ('{"eval_loss": true}', ": eval_loss is True, expected a number; put the file back"),
        ('{"eval_loss": null}', ": eval_loss is None, expected a number; put the file back"),
    ],
    ids=["list", "null", "deep", "huge", "true", "nothing"],
)
def test_a_damaged_result_is_a_failure_that_names_its_file(grid, capsys, content, words):
    ABLATE.main(grid)
    Path("out/one/seed-1/all_results.json").write_text(content)
    with pytest.raises(SystemExit) as left:
        ABLATE.main(grid)
    assert left.value.code == 1
    out = capsys.readouterr().out
    assert "x one, seed 1 failed: out/one/seed-1/all_results.json" in out
    assert words in out
    assert "delete the folder out/one/seed-1 to run this again" in out
    assert len(calls()) == 4
    shutil.rmtree("out/one/seed-1")
    ABLATE.main(grid)
    assert calls()[4:] == ["one 1"]


def test_a_mark_of_a_finished_run_that_is_damaged_is_none(grid):
    ABLATE.main(grid)
    mark = Path("out/one/seed-1.finished.yaml")
    sound = mark.read_bytes()
    mark.write_bytes(b"\xff\xfe")
    ABLATE.main(grid)
    assert calls()[4:] == ["one 1"]
    assert mark.read_bytes() == sound


def test_a_baseline_stands_beside_each_figure(grid, capsys):
    content = yaml.safe_load(Path("grid.yaml").read_text())
    content["metric"] |= {"baseline": "twice", "baseline_label": "twice as much"}
    Path("grid.yaml").write_text(yaml.safe_dump(content))
    Path("recipes/fake.py").write_text(
        FAKE.replace('{"eval_loss": loss}', '{"eval_loss": loss, "twice": 2 * loss}')
    )
    ABLATE.main(grid)
    heading, _, one, two = Path("out/table.md").read_text().splitlines()[2:6]
    assert heading == "| x | loss | twice as much | seeds | failed |"
    assert one == "| one | **1.2000 ± 0.1414** | 2.4000 ± 0.2828 | 1, 3 | – |"
    assert "4.4000" in two
    Path("recipes/fake.py").write_text(FAKE)
    with pytest.raises(SystemExit):
        ABLATE.main([*grid[:-1], "out2"])
    assert "has no number 'twice'" in capsys.readouterr().out


def test_further_arguments_are_the_recipes(grid):
    plan = ABLATE.read_plan([
        *grid, "--max-steps", "7", "--bf16", "--train_file", "a.txt", "b.txt", "--lr=1e-3",
        "--config_overrides", "hidden_size=32",
    ])  # fmt: skip
    assert plan.extra == {
        "max_steps": 7,
        "bf16": True,
        "train_file": ["a.txt", "b.txt"],
        "lr": 1e-3,
        "config_overrides": "hidden_size=32",
    }
    assert plan.seeds == [1, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--recipe", "fakee"], "recipe: got 'fakee', expected one of fake; did you mean"),
        (["--seeds", "1,x"], "seeds: got '1,x', expected numbers"),
        (["--seeds", "1,1"], "a seed is given twice"),
        (["--seed", "3"], "use --seeds"),
        (["--max_steps", "3", "--max_steps", "4"], "--max_steps is given twice"),
        (["--accelerate_config", "none.yaml"], "'none.yaml' does not exist"),
        (["--config", "none.yaml"], "'none.yaml' does not exist"),
    ],
)
def test_mistakes_are_named_before_anything_runs(grid, changes, message):
    with pytest.raises(ValueError, match=message):
        ABLATE.main([*grid, *changes])
    assert not Path("calls.txt").exists()
    assert not Path("out").exists()


def test_a_run_that_is_gone_is_made_again(grid):
    ABLATE.main(grid)
    shutil.rmtree("out/one/seed-1")
    ABLATE.main(grid)
    assert calls()[4:] == ["one 1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": 3}, "config: expected a file or a list of files; got 3"),
        ({"metric": {"key": "a", "label": "b", "pattern": "{:.4f"}}, "does not format a number"),
        ({"arguments": {"lerning_rate": 1}}, "x one: .*did you mean 'learning_rate'"),
        ({"arguments": {"max_steps": "many"}}, "x one: .*max_steps"),
    ],
)
def test_mistakes_in_a_grid_are_named_before_anything_runs(grid, change, message, monkeypatch):
    values = [{"name": "one", "arguments": {"learning_rate": 1}}]
    write_grid(values)
    content = yaml.safe_load(Path("grid.yaml").read_text()) | change
    Path("grid.yaml").write_text(yaml.safe_dump(content))
    Path("recipes/mlm.py").write_text(FAKE)
    with pytest.raises(ValueError, match=message):
        ABLATE.main(["--recipe", "mlm", *grid[2:]])
    assert not Path("calls.txt").exists()


def test_a_grid_is_required():
    with pytest.raises(ValueError, match="--config"):
        ABLATE.main([])


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_every_cell_of_the_grids_that_come_along_is_a_run_of_the_recipe(
    path, monkeypatch, tmp_path
):
    """Parsed and checked as the recipe does, on the CPU."""
    monkeypatch.chdir(ROOT)
    grid = read_grid(path)
    kind = CausalLMArguments if path.stem.endswith("-clm") else MaskedLMArguments
    build = CLM.CausalLMRun if path.stem.endswith("-clm") else MLM.MaskedLMRun
    parser = RecipeParser(tuple(kind.__annotations__.values()))
    configs = []
    for cell in cells_of(grid):
        settings = run_settings(grid, cell, {"output_dir": str(tmp_path / "run")})
        (tmp_path / "cell.yaml").write_text(yaml.safe_dump(settings))
        args = parser.parse_recipe(["--config", str(tmp_path / "cell.yaml")])
        run = build(kind(*args))
        run.check()
        assert run.training.use_cpu
        configs.append((settings["attention"], settings.get("config_overrides")))
    assert len(set(configs)) == len(configs) >= 4


@pytest.mark.slow
def test_a_grid_of_real_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(f"word {i} and {i * i}." for i in range(60)))
    base = {**SETTINGS, "train_file": "text.txt", "max_steps": 2, "save_steps": 2}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    values = [
        {"name": name, "arguments": {"config_overrides": f"feature_map={name}"}}
        for name in ("relu", "elu_plus_one")
    ]
    write_grid(values)
    monkeypatch.setattr(ABLATE, "RECIPES", ROOT / "recipes")
    ABLATE.main(["--config", "grid.yaml", "--seeds", "3", "--output_dir", "out"])
    for name in ("relu", "elu-plus-one"):
        file = Path("out") / name / "seed-3" / "all_results.json"
        assert json.loads(file.read_text())["eval_loss"] > 0
    assert Path("out/plot.png").is_file()
