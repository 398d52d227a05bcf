"""The README's table of recipes is generated, and everything it names exists."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import yaml

from hf_linear_attn.training.published import footnotes, printable_rows, published_table

ROOT = Path(__file__).parents[2]


def load_program():
    path = ROOT / "scripts" / "recipe_table.py"
    spec = importlib.util.spec_from_file_location("recipe_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = load_program()
TINY = {"task": "a trial", "recipe": "recipes/mlm.py", "hardware": "CPU"}


def rendered(tmp_path, **entry):
    file = tmp_path / "recipes.yaml"
    file.write_text(yaml.safe_dump({"one": {**TINY, **entry}}))
    return TABLE.render(TABLE.read_entries(file))


def test_the_readme_has_the_generated_table():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = TABLE.render(TABLE.read_entries(TABLE.DATA))
    assert readme == TABLE.with_table(readme, table), "python scripts/recipe_table.py --write"


def test_every_line_has_a_command_whose_files_exist():
    entries = TABLE.read_entries(TABLE.DATA)
    assert len({entry.command for entry in entries}) == len(entries)
    for entry in entries:
        words = shlex.split(entry.command)
        files = [word for word in words if re.match(r"(recipes|scripts)/", word)]
        assert files
        assert all((ROOT / file).is_file() for file in files)


def test_every_recipe_and_every_setting_of_a_paper_has_a_line():
    entries = TABLE.read_entries(TABLE.DATA)
    named = {entry.recipe for entry in entries} | {entry.config for entry in entries}
    for file in (ROOT / "recipes").glob("*.py"):
        assert f"recipes/{file.name}" in named
    for pattern in ("clm/*_wt103.yaml", "mlm/[!s]*-base.yaml", "ablations/*.yaml"):
        files = list((ROOT / "recipes" / "configs").glob(pattern))
        assert files
        for file in files:
            if not file.name.startswith("linear_transformer"):  # no paper has that one
                assert file.relative_to(ROOT).as_posix() in named
    with_figures = {entry.config for entry in entries if entry.published is not None}
    assert {f"recipes/configs/clm/{name}_alm_wt103.yaml" for name in ("transnormer", "tnn")} <= (
        with_figures
    )
    published = {entry.published.table for entry in entries if entry.published is not None}
    assert {"lra_official", "lra_nystromformer", "glue_cosformer"} <= published


def test_notes_with_one_sign_in_two_tables_get_two(tmp_path):
    file = tmp_path / "recipes.yaml"
    figures = {
        "one": {"table": "wikitext103_cosformer", "row": "cosFormer", "column": "test"},
        "two": {"table": "lra_official", "row": "cosFormer", "column": "average"},
    }
    lines = {
        name: {**TINY, "arguments": name, "published": figure} for name, figure in figures.items()
    }
    file.write_text(yaml.safe_dump(lines))
    text = TABLE.render(TABLE.read_entries(file))
    first, second = (line for line in text.splitlines() if line.startswith("| a trial"))
    notes = [line for line in text.splitlines() if line[:1] in TABLE._SIGNS and line]
    assert len({note[0] for note in notes}) == len(notes) == 3
    misprint = next(note[0] for note in notes if "misprint" in note)
    assert f"23.1{misprint} " in first
    assert misprint not in second


def test_a_line_shows_what_was_measured(tmp_path):
    text = rendered(
        tmp_path, config="recipes/configs/mlm/tiny-cpu.yaml", arguments="--seed 1",
        time="74 s", result="2.5 | nats",
    )  # fmt: skip
    assert text.splitlines()[-1] == (
        "| a trial | `accelerate launch recipes/mlm.py --config recipes/configs/mlm/tiny-cpu.yaml "
        "--seed 1` | CPU | 74 s | 2.5 \\| nats | – |"
    )


def test_what_was_not_run_says_so(tmp_path):
    assert rendered(tmp_path).splitlines()[-1].endswith("| CPU | not run here | not run here | – |")


def published(table, row, column):
    return {"published": {"table": table, "row": row, "column": column}}


def test_published_figures_obey_the_printing_rule(tmp_path):
    plain = rendered(tmp_path, **published("wikitext103_tnl", "cosFormer", "validation"))
    assert "| 26.53 validation perplexity, cosFormer (WikiText-103, GPT-2's BPE" in plain
    assert "†" not in plain
    marked = rendered(tmp_path, **published("lra_official", "cosFormer", "average"))
    assert "| 55.23†‡ mean accuracy (%), cosFormer (Long Range Arena, official (JAX)" in marked
    notes = footnotes(printable_rows(published_table("lra_official")))
    own = [note for note in notes if note.startswith("‡") or "cosFormer's own" in note]
    assert len(own) == 2
    assert marked.split("\n\n")[1:] == ["†" + own[0][1:], "‡" + own[1][1:] + "\n"]
    never = rendered(tmp_path, **published("wikitext103_cosformer", "Performer", "test"))
    assert "26.8" not in never
    assert never.splitlines()[-1].endswith("| – |")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"config": "recipes/configs/mlm/none.yaml"}, "none.yaml does not exist"),
        ({"recipe": "recipes/none.py"}, "none.py does not exist"),
        ({"a_result": "1"}, "one: unknown field 'a_result'; did you mean 'result'"),
        (published("lra_official", "cosformer", "text"), "got column 'text' and row 'cosformer'"),
        (published("lra_official", "cosFormer", "path"), "got column 'path'"),
        ({"published": {"table": "lra_official"}}, "one: published: .*missing"),
    ],
)
def test_mistakes_in_the_data_are_named(tmp_path, entry, message):
    with pytest.raises(ValueError, match=message):
        rendered(tmp_path, **entry)


def test_the_table_is_written_between_the_markers(tmp_path, monkeypatch):
    readme = tmp_path / "README.md"
    readme.write_text(f"above\n{TABLE.BEGIN}\nold\n{TABLE.END}\nbelow\n")
    monkeypatch.setattr(TABLE, "README", readme)
    TABLE.main(["--write"])
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"above\n{TABLE.BEGIN}\n| task | command |")
    assert text.endswith(f"\n{TABLE.END}\nbelow\n")
    assert "old" not in text
    TABLE.main(["--write"])
    assert readme.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("text", ["", "begin only {0}", "{1} wrong {0}", "{0} {0} {1}"])
def test_a_readme_without_the_markers_is_an_error(text):
    with pytest.raises(ValueError, match="once, in this order"):
        TABLE.with_table(text.format(TABLE.BEGIN, TABLE.END), "table\n")


def test_the_only_argument_is_write(capsys):
    with pytest.raises(SystemExit) as stop:
        TABLE.main(["--read"])
    assert stop.value.code == 2
    capsys.readouterr()
    TABLE.main([])
    assert capsys.readouterr().out.startswith("| task |")
