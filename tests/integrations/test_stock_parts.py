"""Names of attention by part, and what a refusal leaves behind: nothing."""

import functools

import pytest
import transformers as hf

from hf_linear_attn.integrations import stock_models
from tests.integrations.stock_models import SIZES, tokens

PLAIN = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1,
         "intermediate_size": 40, "vocab_size": 60}  # fmt: skip


def bert(**fields):
    return hf.BertConfig(**SIZES | {"num_hidden_layers": 1}, **fields)


def both(encoder=None):
    decoder = bert(is_decoder=True, add_cross_attention=True)
    return hf.EncoderDecoderConfig.from_encoder_decoder_configs(encoder or bert(), decoder)


def names(config):
    return [part._attn_implementation for part in (config, config.encoder, config.decoder)]


@pytest.mark.parametrize("auto", [False, True])
def test_a_config_is_as_it_was_after_a_refusal(auto):
    build = hf.AutoModelForCausalLM.from_config if auto else hf.LlamaForCausalLM._from_config
    for before in (None, "eager"):
        config = hf.LlamaConfig(**PLAIN)
        config._attn_implementation = before
        with pytest.raises(ValueError, match="RoPE"):
            build(config, attn_implementation="cosformer")
        assert config._attn_implementation == before
        assert build(config).config._attn_implementation == (before or "sdpa")
    config = both(hf.DebertaV2Config(**PLAIN))
    for asked in ("cosformer", {"encoder": "cosformer"}, {"": "cosformer", "decoder": "nystrom"}):
        with pytest.raises(ValueError, match=r"cannot run with|no causal form"):
            hf.EncoderDecoderModel._from_config(config, attn_implementation=asked)
        assert names(config) == [None] * 3


def test_a_change_that_breaks_off_changes_nothing():
    model = hf.EncoderDecoderModel(both())
    before = names(model.config)
    for asked, said in (
        ({"": "cosformer", "encoder": "cosformer", "decoder": "cosfromer"}, "Did you mean"),
        ({"encoder": "cosformer", "decoder": "nystrom"}, "no causal form"),
    ):
        with pytest.raises(ValueError, match=said):
            model.set_attn_implementation(asked)
        assert names(model.config) == before
    model.set_attn_implementation({"encoder": "cosformer", "decoder": "transnormer_diag"})
    assert names(model.config)[1:] == ["cosformer", "transnormer_diag"]


def test_parts_that_have_no_model_are_set_back_too():
    sizes = {k: v for k, v in PLAIN.items() if k != "vocab_size"}
    images = sizes | {"image_size": 16, "patch_size": 4}
    config = hf.CLIPConfig(text_config=PLAIN | {"eos_token_id": 3}, vision_config=images)
    model = hf.CLIPModel(config)
    parts = (config, config.text_config, config.vision_config)
    before = [part._attn_implementation for part in parts]
    with pytest.raises(ValueError, match="CLIPVisionConfig has no max_position_embeddings"):
        model.set_attn_implementation("cosformer")
    assert [part._attn_implementation for part in parts] == before


def test_a_part_that_does_not_exist(tmp_path):
    asked, said = {"text_config": "cosformer"}, r"a part 'text_config' .*its parts: none"
    model = hf.BertModel(bert())
    with pytest.raises(ValueError, match=said):
        model.set_attn_implementation(asked)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=said):
        hf.BertModel.from_pretrained(tmp_path, attn_implementation=asked)
    with pytest.raises(ValueError, match=said):
        hf.AutoModel.from_config(bert(), attn_implementation=asked)
    with pytest.raises(ValueError, match=r"its parts: (encoder, decoder|decoder, encoder)"):
        hf.EncoderDecoderModel(both()).set_attn_implementation({"text_config": "cosformer"})
    with pytest.raises(ValueError, match="a part 'inner' that BertConfig does not have"):
        hf.EncoderDecoderModel(both()).set_attn_implementation({"encoder": {"inner": "nystrom"}})
    # Names of others are Transformers' business.
    model.set_attn_implementation({"text_config": "sdpa"})


def test_a_part_that_never_looks_the_name_up():
    config = both(hf.DebertaV2Config(**PLAIN))
    model = hf.EncoderDecoderModel(config)
    before = names(model.config)
    with pytest.raises(ValueError, match="DebertaV2Model cannot run with") as caught:
        model.set_attn_implementation({"encoder": "cosformer"})
    assert "parts" not in str(caught.value)
    assert names(model.config) == before
    model.set_attn_implementation({"decoder": "cosformer"})
    with pytest.raises(ValueError, match="DebertaV2Model cannot run with"):
        hf.EncoderDecoderModel._from_config(config, attn_implementation={"encoder": "cosformer"})


def test_a_part_without_a_model_of_its_own():
    """Its config is set, but nothing in the model reads it."""

    class Config(hf.BertConfig):
        sub_configs = {"side_config": hf.BertConfig}  # noqa: RUF012

    config = Config(**SIZES)
    config.side_config = bert()
    with pytest.raises(ValueError, match="was set for BertConfig, but no attention of BertModel"):
        hf.BertModel._from_config(config, attn_implementation={"side_config": "cosformer"})
    assert config.side_config._attn_implementation is None
    hf.BertModel._from_config(config, attn_implementation={"": "cosformer"})
    config.side_config = None
    with pytest.raises(ValueError, match=r"a part 'side_config' .*its parts: none"):
        hf.BertModel._from_config(config, attn_implementation={"side_config": "cosformer"})


def test_parts_there_are_are_named_where_the_whole_never_looks():
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(
        hf.DebertaV2Config(**PLAIN), hf.DebertaV2Config(**PLAIN)
    )
    model = hf.EncoderDecoderModel.__new__(hf.EncoderDecoderModel)
    model.config = config
    said = stock_models.never_called(model, "cosformer")
    assert "parts: encoder, decoder" in said or "parts: decoder, encoder" in said
    assert "text_config" not in said


def test_what_is_wrapped_is_wrapped_once_and_looks_the_same():
    watched = ("post_init", "set_attn_implementation", "get_correct_attn_implementation")
    before = [getattr(hf.PreTrainedModel, name) for name in watched]
    build = hf.PreTrainedModel._from_config.__func__
    setter = hf.PreTrainedConfig._attn_implementation.fset
    stock_models.watch_models()
    assert [getattr(hf.PreTrainedModel, name) for name in watched] == before
    assert hf.PreTrainedModel._from_config.__func__ is build
    assert hf.PreTrainedConfig._attn_implementation.fset is setter
    for name, function in zip(watched, before, strict=True):
        assert function.__qualname__ == f"PreTrainedModel.{name}"
        assert function.__module__ == "transformers.modeling_utils"


def test_a_wrapper_of_others_around_ours_is_no_reason_to_wrap_again(monkeypatch):
    ours = hf.PreTrainedModel.post_init

    @functools.wraps(ours)
    def post_init(self):
        return ours(self)

    monkeypatch.setattr(hf.PreTrainedModel, "post_init", post_init)
    stock_models.watch_models()
    assert hf.PreTrainedModel.post_init is post_init
    hf.BertModel._from_config(bert(), attn_implementation="cosformer")(tokens(1, 5))
