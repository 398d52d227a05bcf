"""The card: valid metadata, every fact, code that runs, no licence chosen for the author."""

import re

import pytest
from huggingface_hub import ModelCard

from hf_linear_attn.integrations.model_card import CardFacts, write_model_card

FACTS = CardFacts(
    name="tiny",
    path='runs/ti"ny',
    model_type="cosformer",
    parameters=1_234_567,
    model_facts={"layer_attention": "cosformer", "hidden_size": 128},
    data="Text files: a.txt.\n\n- train: 5 documents",
    masked_tokens=9299,
    results=[["evaluation loss (nats)", "5.50", "2.90", "3.30"], ["perplexity", "1", "2", "3"]],
    summary="60 optimiser steps.",
    hyper_parameters={"learning_rate": "0.001", "lr_scheduler_kwargs": "a|b\nc"},
    example="The 'quoted' <mask>\n\\ of \"it\".",
)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "README.md").write_text("an old card")
    assert write_model_card(tmp_path, FACTS) == tmp_path / "README.md"
    return (tmp_path / "README.md").read_text(encoding="utf-8")


def test_the_header_is_valid_metadata_without_a_licence(text):
    data = ModelCard(text).data
    assert data.library_name == "transformers"
    assert data.pipeline_tag == "fill-mask"
    assert {"cosformer", "linear-attention", "masked-lm"} <= set(data.tags)
    assert data.license is None
    assert "add `license: …`" in text


def test_every_fact_is_on_the_card(text):
    for part in (
        "# tiny",
        "1,234,567 parameters",
        "| layer_attention | cosformer |",
        "| hidden_size | 128 |",
        "- train: 5 documents",
        "9,299 masked tokens",
        "| evaluation loss (nats) | 5.50 | 2.90 | 3.30 |",
        "60 optimiser steps.",
        "| learning_rate | 0.001 |",
        r"| lr_scheduler_kwargs | a\|b c |",
    ):
        assert part in text


def test_tables_are_unbroken(text):
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        rows = block.strip().split("\n")
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(cells) == 1
        assert len(rows) >= 4
    assert text.count("\n| learning_rate") == 1
    assert "unigram model |\n|---" in text


def test_the_code_on_the_card_is_python_and_says_what_to_load(text):
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    compile(code, "card", "exec")
    assert code.startswith("import hf_linear_attn")
    calls = {}
    rest = code.split("from transformers import pipeline", 1)[1]

    def pipeline(task, model):
        calls["task"], calls["model"] = task, model
        return lambda sentence: calls.update(sentence=sentence)

    exec(rest, {"pipeline": pipeline})
    assert calls == {"task": "fill-mask", "model": FACTS.path, "sentence": FACTS.example}
