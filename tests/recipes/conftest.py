"""Recipes run in a folder of their own, on a small text."""

import pytest
import yaml

from hf_linear_attn.training.program import run_program
from tests.recipes.glue_recipe import SETTINGS as GLUE_SETTINGS
from tests.recipes.mlm_recipe import SETTINGS
from tests.training.glue.official import glue_folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Everything that is written goes under tmp_path, the cache of `datasets` too."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def settings(tmp_path):
    """A config file on a small text; returns the arguments that use it."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    text = "\n\n".join(
        " ".join(words[(i * 7 + j * (i % 3 + 1)) % 10] for j in range(12)) + "." for i in range(40)
    )
    (tmp_path / "text.txt").write_text(text)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SETTINGS | {"train_file": "text.txt"}))
    return ["--config", "config.yaml"]


@pytest.fixture
def fails_with(capsys):
    """Run a recipe's main, expect exit code 2 and one line on stderr, return the line."""

    def run(main, argv: list[str]) -> str:
        with pytest.raises(SystemExit) as stop:
            run_program(main, argv)
        assert stop.value.code == 2
        err = capsys.readouterr().err
        assert "Traceback" not in err
        (line,) = [line for line in err.splitlines() if line.startswith("error")]
        return line

    return run


@pytest.fixture
def glue_config(tmp_path):
    """The arguments of a small classification run on small official folders."""
    glue_folder(tmp_path / "glue")
    content = GLUE_SETTINGS | {"data_dir": "glue"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    return ["--config", "config.yaml"]
