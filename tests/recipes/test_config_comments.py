"""Every field of a shipped config says above it what it is."""

import re

import pytest

from tests.recipes.mlm_recipe import ROOT

FILES = [
    file
    for recipe in ("mlm", "clm", "glue")
    for file in sorted((ROOT / "recipes" / "configs" / recipe).glob("*.yaml"))
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_field_has_a_comment_above_it(file):
    lines = file.read_text().splitlines()
    fields = [i for i, line in enumerate(lines) if re.match(r" *\w+:", line)]
    assert len(fields) > 20
    for i in fields:
        assert re.match(r" *# [^-]", lines[i - 1]), lines[i]
