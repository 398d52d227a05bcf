"""The README's Python runs as printed."""

import re
from pathlib import Path

import pytest
import torch
import transformers

import hf_linear_attn as hla
from hf_linear_attn.attention import ATTENTION

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n```\n(.*?)```)?", TEXT, flags=re.DOTALL)
DOORS = re.findall(
    r"```python\n(.*?)```", TEXT.split("## Three doors")[1].split("\n## ")[0], flags=re.DOTALL
)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Where the README's checkpoints lie, as deep as the real ones, with far fewer weights."""
    folder = tmp_path_factory.mktemp("checkpoints")
    roberta = transformers.RobertaConfig(
        vocab_size=50, max_position_embeddings=514, type_vocab_size=1, hidden_size=24,
        intermediate_size=24,
    )  # fmt: skip
    transformers.RobertaForMaskedLM(roberta).save_pretrained(folder / "FacebookAI/roberta-base")
    gpt2 = transformers.GPT2Config(vocab_size=4000, n_inner=8, eos_token_id=2, bos_token_id=2)
    transformers.GPT2LMHeadModel(gpt2).save_pretrained(folder / "openai-community/gpt2")
    return folder


@pytest.mark.parametrize(("block", "printed"), BLOCKS, ids=[str(i) for i in range(len(BLOCKS))])
def test_python_of_the_readme(block, printed, checkpoints, monkeypatch, capsys):
    monkeypatch.chdir(checkpoints)
    before = dict(ATTENTION)
    # Names of the blocks before stay known, as at a prompt.
    names = {"__name__": "readme", "torch": torch}
    try:
        exec(compile(block, str(README), "exec"), names)
    finally:
        ATTENTION.clear()
        ATTENTION.update(before)
    assert capsys.readouterr().out == printed


def test_each_of_the_three_doors_is_six_lines_at_most():
    assert len(DOORS) == 3
    for door in DOORS:
        assert len([line for line in door.splitlines() if line.strip()]) <= 6


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
