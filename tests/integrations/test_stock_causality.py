"""Who says whether a layer is causal: Transformers' mask, then the call, then the module's flag."""

import pytest
import torch
import transformers as hf
from transformers.models.phi4_multimodal import modeling_phi4_multimodal as phi4

from hf_linear_attn.integrations.attention_interface import stock_attention
from hf_linear_attn.integrations.stock_masks import stock_mask
from tests.integrations.stock_models import (
    GROUPED,
    NO_DROPOUT,
    SIZES,
    padded,
    stock_model,
    tokens,
)

# Blocks as long as the input: softmax attention proper, so that Transformers' own is the reference.
WHOLE = {"transnormer_diag": {"block_size": 64}}


def scaled_up(model):
    generator = torch.Generator().manual_seed(3)
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.3, generator=generator)
    return model.eval()


def alike(make, run):
    """Do eager attention and transnormer_diag in one block give the same?"""
    with torch.no_grad():
        eager, ours = (run(scaled_up(make(name))) for name in ("eager", "transnormer_diag"))
    torch.testing.assert_close(ours, eager, atol=1e-4, rtol=1e-4)
    return ours


def moved(run, ids):
    """How far the last token moves what comes before it."""
    changed = ids.clone()
    changed[:, -1] = 5
    with torch.no_grad():
        return (run(ids) - run(changed))[:, :-1].abs().max().item()


def test_a_causal_mask_where_the_module_says_otherwise():
    """Gemma inside PaliGemma: use_bidirectional_attention sets the flag, and not the mask."""
    config = hf.GemmaConfig(**SIZES | GROUPED)
    config.use_bidirectional_attention, config.attention_kwargs = True, WHOLE

    def make(name):
        model = hf.GemmaModel._from_config(config, attn_implementation=name)
        assert not model.layers[0].self_attn.is_causal
        return model

    ids, mask, _ = padded(tokens(2, 9), 3, 0)
    for given in ({}, {"attention_mask": mask}):
        alike(make, lambda m: m(ids, **given).last_hidden_state[:, 3:])  # noqa: B023
    model = scaled_up(make("transnormer_diag"))
    assert moved(lambda x: model(x).last_hidden_state, ids) == 0


def test_a_mask_of_both_sides_where_the_module_says_that_it_is_causal():
    """Phi-4's vision tower."""
    config = phi4.Phi4MultimodalVisionConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
        image_size=16, crop_size=16, patch_size=4,
    )  # fmt: skip
    config.attention_kwargs = WHOLE
    image = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))

    def make(name):
        model = phi4.Phi4MultimodalVisionModel._from_config(config, attn_implementation=name)
        assert model.encoder.layers[0].self_attn.is_causal
        return model

    for holes in (0, 1):
        seen = torch.ones(1, 4, 4, dtype=torch.bool)
        seen[:, :, 4 - holes :] = False
        alike(
            make,
            lambda m: m(image, patch_attention_mask=seen).last_hidden_state[seen.flatten(1)],  # noqa: B023
        )


@pytest.mark.parametrize(
    ("config_class", "model_class"),
    [(hf.LayoutLMConfig, hf.LayoutLMModel), (hf.SplinterConfig, hf.SplinterModel)],
)
def test_modules_without_a_flag_follow_their_mask(config_class, model_class):
    config = config_class(**SIZES, **NO_DROPOUT)
    config.attention_kwargs = WHOLE
    ids, mask, _ = padded(tokens(2, 9), 0, 3)
    for given in ({}, {"attention_mask": mask}):
        alike(
            lambda name: model_class._from_config(config, attn_implementation=name),
            lambda m: m(ids, **given).last_hidden_state[:, :9],  # noqa: B023
        )


def test_the_calls_keyword_goes_before_the_flag():
    """CLIP's text model has is_causal = False in its modules, and calls them with True."""
    config = hf.CLIPTextConfig(**SIZES | {"eos_token_id": 3})
    model = hf.CLIPTextModel._from_config(config, attn_implementation="cosformer").eval()
    assert moved(lambda x: model(x).last_hidden_state, tokens(2, 9)) == 0
    # Without a mask the keyword alone decides.
    module = model.encoder.layers[0].self_attn
    heads = torch.randn(1, 2, 6, 16, generator=torch.Generator().manual_seed(1))
    later = heads.clone()
    later[:, :, 5] += 1
    for causal in (True, False):
        first, second = (
            stock_attention("cosformer", module, x, x, x, None, is_causal=causal)[0]
            for x in (heads, later)
        )
        change = (first - second)[:, :5].abs().max()
        assert (change == 0) if causal else (change > 1e-3)


def test_a_keyword_against_the_mask_is_refused():
    for mask in (None, torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1]])):
        with pytest.raises(ValueError, match=r"is_causal=True, but the mask .* is not causal"):
            stock_model("bert", "cosformer")(tokens(1, 9), attention_mask=mask, is_causal=True)
    module = stock_model("gpt2", "cosformer").transformer.h[0].attn
    x = torch.randn(1, 2, 5, 16)
    for given in ({"device": "cpu"}, {"attention_mask": torch.tensor([[False] + [True] * 4])}):
        mask = stock_mask(batch_size=1, q_length=5, kv_length=5, **given)
        with pytest.raises(ValueError, match=r"is_causal=False, but the mask .* is causal"):
            stock_attention("cosformer", module, x, x, x, mask, is_causal=False)


def test_a_decoder_called_to_see_both_sides():
    """Transformers makes its mask by the keyword, too."""
    config = hf.LlamaConfig(**SIZES | GROUPED)
    config.attention_kwargs = WHOLE
    ids, mask, _ = padded(tokens(2, 9), 3, 0)
    for given in ({}, {"attention_mask": mask}):
        alike(
            lambda name: hf.LlamaModel._from_config(config, attn_implementation=name),
            lambda m: m(ids, is_causal=False, **given).last_hidden_state[:, 3:],  # noqa: B023
        )


def test_a_decoder_whose_config_makes_it_see_both_sides():
    config = hf.LlamaConfig(**SIZES | GROUPED)
    config.is_causal, config.attention_kwargs = False, WHOLE

    def make(name):
        return hf.LlamaModel._from_config(config, attn_implementation=name)

    ids = tokens(2, 9)
    alike(make, lambda m: m(ids).last_hidden_state)
    model = scaled_up(make("transnormer_diag"))
    assert moved(lambda x: model(x).last_hidden_state, ids) > 1e-2
    # And where no mask says it.
    heads = torch.randn(1, 4, 6, 8)
    later = heads.clone()
    later[:, :, 5] += 1
    first, second = (
        stock_attention("transnormer_diag", model.layers[0].self_attn, x, x, x, None)[0]
        for x in (heads, later)
    )
    assert (first - second)[:, :5].abs().max() > 1e-3


def test_a_causality_that_nobody_tells_or_that_makes_no_sense():
    model = stock_model("gpt2", "cosformer", add_cross_attention=True)
    memory, ids = torch.randn(1, 4, 32), tokens(1, 5)
    cross = model.transformer.h[0].crossattention
    given = {"encoder_hidden_states": memory, "use_cache": False}
    expected = model(ids, **given).logits
    # Whatever the flag says, the mask of the memory is of both sides.
    for flag in (True, None):
        cross.is_causal = flag
        torch.testing.assert_close(model(ids, **given).logits, expected, atol=0, rtol=0)
    x = torch.randn(1, 2, 5, 16)
    with pytest.raises(ValueError, match="nor a mask says whether it is causal"):
        stock_attention("cosformer", cross, x, x, x, None)
    cross.is_causal = True
    with pytest.raises(ValueError, match="is cross-attention and is to be causal"):
        stock_attention("cosformer", cross, x, x, x, None)


@pytest.mark.slow
def test_a_graph_follows_the_mask_too():
    config = hf.GemmaConfig(**SIZES | GROUPED)
    config.use_bidirectional_attention, config.attention_kwargs = True, WHOLE
    model = scaled_up(hf.GemmaModel._from_config(config, attn_implementation="transnormer_diag"))
    torch._dynamo.reset()
    graph = torch.compile(model, backend="eager", fullgraph=True)
    ids, mask, _ = padded(tokens(2, 9), 3, 0)
    with torch.no_grad():
        for given in ({}, {"attention_mask": mask}):
            expected = model(ids, **given).last_hidden_state[:, 3:]
            found = graph(ids, **given).last_hidden_state[:, 3:]
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
