"""The card of a run, written over another one: nothing that a person wrote is lost."""

from pathlib import Path

import pytest
from huggingface_hub import ModelCard, ModelCardData

from hf_linear_attn.integrations.card_file import write_card

CARD = """---
library_name: transformers
tags:
- cosformer
metrics:
- perplexity
model-index:
- name: run
  results:
  - task:
      type: fill-mask
    dataset:
      type: text
      name: text
    metrics:
    - type: perplexity
      value: 20.0
---

# run

After 10 steps.
"""
LONGER = CARD.replace("10 steps", "20 steps").replace("20.0", "15.0")


@pytest.fixture
def card(tmp_path):
    return write_card(tmp_path / "README.md", CARD)


def header(card: Path) -> ModelCardData:
    data = ModelCard(card.read_text(encoding="utf-8")).data
    assert isinstance(data, ModelCardData)
    return data


def perplexity(card: Path) -> float:
    (result,) = header(card).eval_results or []
    return result.metric_value


def names(card: Path) -> list[str]:
    return sorted(path.name for path in card.parent.iterdir())


def test_a_longer_run_replaces_the_card_of_a_run(card):
    write_card(card, LONGER)
    text = card.read_text(encoding="utf-8")
    assert "After 20 steps." in text
    assert "After 10 steps." not in text
    assert perplexity(card) == 15.0
    assert text.count("written by a run of hf_linear_attn") == 1
    assert names(card) == ["README.md"]


def test_what_a_person_has_put_into_the_header_stands_in_the_new_one_and_the_old_one_is_kept(card):
    mine = card.read_text(encoding="utf-8").replace(
        "- cosformer\n",
        "- cosformer\n- mine\nlicense: mit\nlanguage: no\ninference: false\ndatasets: [mine]\n"
        "extra_gated_fields: {Name: text}\n",
    )
    card.write_text(mine)
    for _ in range(2):
        write_card(card, LONGER)
        assert header(card).license == "mit"
        words = header(card).to_dict()
        assert (words["language"], words["inference"]) == ("no", False)
        assert words["extra_gated_fields"] == {"Name": "text"}
        assert words["datasets"] == ["mine"]
        assert header(card).tags == ["cosformer", "mine"]
        assert perplexity(card) == 15.0
    assert names(card) == ["README.edited-1.md", "README.md"]
    assert (card.parent / "README.edited-1.md").read_text() == mine


@pytest.mark.parametrize("license", [None, "mit"])
def test_of_what_a_run_has_written_nothing_is_taken_over(card, license):
    if license:
        card.write_text("---\nlicense: mit" + card.read_text(encoding="utf-8")[3:])
    head, _, rest = LONGER.partition("metrics:")
    write_card(card, head + "---" + rest.rpartition("---")[2])
    mine = {"license": license} if license else {}
    found = header(card).to_dict()
    assert found == {"library_name": "transformers", "tags": ["cosformer"], **mine}


HEADERS = {
    "results": (
        b"    - type: perplexity",
        b"    - type: bleu\n      value: 1.0\n    - type: perplexity",
    ),
    "comment": (b"tags:", b"# mine\ntags:"),
    "no": (b"tags:", b"language: no\ntags:"),
    "date": (b"tags:", b"2024-01-01: x\ntags:"),
    "self": (b"tags:", b"self: true\ntags:"),
    "option": (b"tags:", b"ignore_metadata_errors: true\ntags:"),
    "deep": (b"tags:", b"x: " + b"[" * 1500 + b"]" * 1500 + b"\ntags:"),
    "broken": (b"tags:", b"x: [\ntags:"),
    "list": (b"library_name: transformers", b"- library_name"),
    "body": (b"After 10 steps.", b"After 10 steps, by me."),
    "end": (b" -->\n", b" -->\nBy me.\n"),
    "line end": (b"\n", b"\r\n"),
}


@pytest.mark.parametrize("change", HEADERS)
def test_a_card_that_a_person_has_changed_is_kept_to_the_byte(card, change, caplog):
    old, new = HEADERS[change]
    assert old in card.read_bytes()
    check_kept(card, card.read_bytes().replace(old, new), caplog)


@pytest.mark.parametrize("own", [b"# My own card\n", b"\xff\xfe", b""])
def test_a_card_that_no_run_has_written_is_kept(card, own, caplog):
    check_kept(card, own, caplog)


def check_kept(card, kept, caplog):
    card.write_bytes(kept)
    write_card(card, LONGER)
    assert "it is kept as README.edited-1.md" in caplog.text
    assert "After 20 steps." in card.read_text(encoding="utf-8")
    assert perplexity(card) == 15.0
    assert (card.parent / "README.edited-1.md").read_bytes() == kept
    card.write_bytes(kept)
    write_card(card, LONGER)
    assert names(card) == ["README.edited-1.md", "README.edited-2.md", "README.md"]


@pytest.mark.parametrize("edited", [False, True])
def test_a_card_is_whole_or_as_it_was(card, edited, monkeypatch):
    if edited:
        card.write_text("mine")
    before = card.read_bytes()

    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write_card(card, LONGER)
    assert card.read_bytes() == before
    assert names(card) == ["README.md"]
