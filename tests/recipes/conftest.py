"""Recipes run in a folder of their own, on a small text."""

import pytest
import yaml

from tests.recipes.mlm_recipe import SETTINGS, write_text


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Everything that is written goes under tmp_path, the cache of `datasets` too."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def settings(tmp_path):
    """A config file on a small text; returns the arguments that use it."""
    write_text(tmp_path / "text.txt")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SETTINGS | {"train_file": "text.txt"}))
    return ["--config", "config.yaml"]
