"""Recipes run in a folder of their own, on a small text."""

import pytest
import yaml

from tests.recipes.mlm_recipe import SETTINGS


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
