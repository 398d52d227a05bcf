"""Settings of generation that are damaged are refused where Transformers would lose them."""

import pytest

import hf_linear_attn as hla
from hf_linear_attn.models.generation_settings import check_generation_settings
from tests.conftest import TINY

NAME = "generation_config.json"
DAMAGED = [
    pytest.param(b'{"temperature": 0.3, "do_sample": tr', "is not readable JSON", id="cut"),
    pytest.param(b"", "is not readable JSON", id="empty"),
    pytest.param(b"\xff\xfe", "is not readable JSON", id="binary"),
    pytest.param(b"[" * 100_000, "is not readable JSON", id="deep"),
    pytest.param(b"[1]", "is damaged: it holds no mapping", id="list"),
    pytest.param(b"null", "is damaged: it holds no mapping", id="null"),
    pytest.param(b'{"max_new_tokens": "few"}', r"cannot be used \('<=' not sup", id="type"),
    pytest.param(b'{"watermarking_config": 5}', "cannot be used", id="part"),
]


@pytest.mark.parametrize(("content", "message"), DAMAGED)
def test_damaged_settings_are_named_with_what_to_do(tmp_path, content, message):
    file = tmp_path / NAME
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file} {message}.*or delete it if nothing of it"):
        check_generation_settings(tmp_path)


@pytest.mark.parametrize("content", [None, "{}", '{"temperature": 0.3}', '{"mine": [1]}'])
def test_what_transformers_takes_passes(tmp_path, content):
    if content is not None:
        (tmp_path / NAME).write_text(content)
    check_generation_settings(tmp_path)


def test_a_place_that_is_not_reached_is_left_to_whoever_loads_the_model(tmp_path):
    check_generation_settings("nobody/nothing")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / NAME).write_text("{")
    check_generation_settings(tmp_path)
    with pytest.raises(ValueError, match=f"inner/{NAME} is not readable JSON"):
        check_generation_settings(tmp_path, {"subfolder": "inner", "dtype": "float32"})


def test_a_conversion_keeps_settings_or_refuses(tmp_path):
    hla.CosformerForCausalLM(hla.CosformerConfig(**TINY)).save_pretrained(tmp_path)
    (tmp_path / NAME).write_text('{"do_sample": true, "temperature": 0.3}')
    assert hla.convert(str(tmp_path), "softmax").generation_config.temperature == 0.3
    (tmp_path / NAME).write_text('{"do_sample": true, "temperature": 0.3')
    with pytest.raises(ValueError, match=f"{NAME} is not readable JSON"):
        hla.convert(str(tmp_path), "softmax")
    with pytest.raises(ValueError, match=f"{NAME} is not readable JSON"):
        hla.SoftmaxForCausalLM.from_pretrained(tmp_path)
