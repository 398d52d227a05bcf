"""Which cards give way to newer ones, and what of them is kept."""

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.errors import EntryNotFoundError
from transformers.utils.hub import create_and_tag_model_card

import hf_linear_attn as hla
from hf_linear_attn.integrations.card_drafts import is_signed, is_unedited, merged, signed
from hf_linear_attn.integrations.config_card import config_card
from tests.conftest import TINY

CARD = "---\ntags:\n- cosformer\npipeline_tag: fill-mask\n---\n\n# Mine\n\nText.\n"


@pytest.fixture
def draft(monkeypatch):
    """What Transformers uploads where there is no card."""

    def missing(*args, **options):
        raise EntryNotFoundError("no card")

    monkeypatch.setattr(ModelCard, "load", missing)
    return str(create_and_tag_model_card("me/a", ["asked"]))


def test_the_empty_form_of_transformers_gives_way_until_somebody_writes_into_it(draft):
    assert is_unedited(draft)
    with_licence = draft.replace("tags:\n", "license: mit\ntags:\n", 1)
    assert is_unedited(with_licence)
    assert not is_unedited(draft.replace("[More Information Needed]", "Weeks on 8 GPUs.", 1))
    assert not is_unedited(draft + "\nMine.\n")
    found = ModelCard(merged(CARD, with_licence))
    assert found.data.license == "mit"
    assert found.data.tags == ["cosformer", "asked"]
    assert found.data.pipeline_tag == "fill-mask"
    assert found.text.strip() == "# Mine\n\nText."


def test_a_signed_card_gives_way_until_its_body_is_edited():
    card = signed(CARD)
    assert is_signed(card)
    assert is_signed(card.replace("\n", "\r\n"))
    assert is_signed(card.replace("pipeline_tag", "license: mit\npipeline_tag"))
    assert signed(card) == card
    for edited in (CARD, card.replace("Text", "My text"), card + "\nMine.\n"):
        assert not is_unedited(edited)
    newer = signed(CARD.replace("pipeline_tag: fill-mask\n", "").replace("Text", "New"))
    found = merged(newer, card.replace("pipeline_tag", "license: mit\npipeline_tag"))
    assert is_signed(found)
    assert "New" in found
    assert ModelCard(found).data.license == "mit"
    assert ModelCard(found).data.pipeline_tag is None


def test_a_card_from_the_config_is_signed_unless_it_knows_an_origin():
    model = hla.CosformerForMaskedLM(hla.CosformerConfig(**TINY))
    options = {"with_code": True, "has_tokenizer": True}
    card = config_card(model, "me/a", revision="v1", **options)
    assert is_signed(card)
    assert card.count('from_pretrained("me/a", revision="v1")') == 2
    assert card.count('from_pretrained("me/a", revision="v1", trust_remote_code=True)') == 2
    assert not is_unedited(config_card(model, "me/a", origin="org/roberta", **options))


class Louder(hla.CosformerForMaskedLM):
    """Somebody's own."""


class LouderStill(Louder):
    """A class behind another."""


def test_the_card_of_somebodys_own_class_says_what_it_loads():
    model = LouderStill(hla.CosformerConfig(**TINY))
    card = config_card(model, "me/a", with_code=False, has_tokenizer=False)
    assert "A `LouderStill`, which is built on `CosformerForMaskedLM` of `hf_linear_attn`" in card
    assert 'AutoModelForMaskedLM.from_pretrained("me/a")' in card
