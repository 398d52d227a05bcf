"""The README's Python runs as printed."""

import re
from pathlib import Path

import pytest

import hf_linear_attn as hla
from hf_linear_attn.attention import ATTENTION

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize(
    "block",
    [b for b in BLOCKS if "from_pretrained" not in b],
    ids=["generation", "own_model", "own_attention"],
)
def test_python_of_the_readme(block):
    before = dict(ATTENTION)
    try:
        exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    finally:
        ATTENTION.clear()
        ATTENTION.update(before)


def test_every_public_mechanism_stands_in_the_table():
    text = README.read_text(encoding="utf-8")
    public = {n: m for n, m in ATTENTION.items() if m.__name__ in hla.__all__}
    assert len(public) >= 6
    for name, mechanism in public.items():
        assert f"| `{name}` |" in text
        path = mechanism.__module__.replace(".", "/") + ".py"
        assert f"]({path})" in text


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
