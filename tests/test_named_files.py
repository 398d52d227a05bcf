"""Files that docstrings, comments and pages name exist: a reader copies them first."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("hf_linear_attn", "recipes", "scripts", "docs", "model_cards")
TEXTS = [
    *ROOT.glob("*.md"),
    *(
        file
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".yaml", ".md", ".sh", ".json")
    ),
]
NAMED = re.compile(r"(?<![\w./-])(?:recipes|scripts|docs|model_cards)/[\w./-]*\.[a-z]+")


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_file_that_is_named_exists(file):
    missing = {
        name
        for name in NAMED.findall(file.read_text(encoding="utf-8"))
        if not (ROOT / name.rstrip(".")).exists()
    }
    assert not missing


def test_names_are_found_at_all():
    found = NAMED.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "recipes/mlm.py" in found
    assert "recipes/configs/mlm/cosformer-base.yaml" in found
