"""Data sets are cached under the test's own folder."""

import pytest

from tests.training.glue.official import glue_folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def glue(tmp_path):
    return glue_folder(tmp_path / "glue")
