"""`output_attentions=True`: the explicit weights of every layer, for looking at."""

import inspect

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn.ops.nystrom_attention import _convolve
from tests.conftest import TINY
from tests.errors import relative_error
from tests.models.task_models import HEADS, batch, build


def values_of(layer, x):
    v = layer.self_attn.v_proj(x).unflatten(-1, (-1, layer.self_attn.head_dim))
    return v.transpose(1, 2)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_weights_are_those_of_the_layer(make_model, side):
    """Weights times values, and what a mechanism does behind them, are the first layer's output."""
    model = make_model(norm_position="post", num_key_value_heads=1)
    ids = torch.randint(3, 100, (2, 12))
    mask = torch.ones_like(ids)
    mask[0, slice(0, 3) if side == "left" else slice(-3, None)] = 0
    kept = {}
    layer = model.model.layers[0]
    layer.self_attn.o_proj.register_forward_pre_hook(lambda m, a: kept.update(mixed=a[0]))
    out = model(
        input_ids=ids, attention_mask=mask, output_attentions=True, output_hidden_states=True
    )
    assert [w.shape for w in out.attentions] == [(2, 2, 12, 12)] * 2
    mixed = out.attentions[0] @ values_of(layer, out.hidden_states[0])
    mechanism = layer.self_attn.mechanism
    if getattr(mechanism, "conv", None) is not None:
        v = values_of(layer, out.hidden_states[0])
        v = v.repeat_interleave(2, dim=1)
        mixed = mixed + _convolve(v * mask[:, None, :, None], mechanism.conv.weight, mask.bool())
    if getattr(mechanism, "norm", None) is not None:
        mixed = mechanism.norm(mixed)
    real = mask.bool()
    found = mixed.transpose(1, 2).flatten(2)[real]
    assert relative_error(found, kept["mixed"][real]) <= 1e-5
    # Looking changes nothing, and nobody looks unasked.
    plain = model(input_ids=ids, attention_mask=mask)
    assert plain.attentions is None
    assert relative_error(plain.logits[real], out.logits[real]) <= 1e-6


def test_gradients_reach_what_is_recorded(make_model):
    """Hidden states; the weights stand beside the output, and no gradient passes through them."""
    model = make_model()
    ids = torch.randint(3, 100, (2, 12))
    out = model(input_ids=ids, output_hidden_states=True, output_attentions=True)
    for states in out.hidden_states:
        states.retain_grad()
    out.logits[0, 0, 0].backward()
    assert all(states.grad[0].abs().sum() > 0 for states in out.hidden_states)


def test_weights_of_a_decoder_are_causal(make_decoder):
    model = make_decoder()
    out = model(input_ids=torch.randint(3, 100, (2, 12)), output_attentions=True)
    assert all(w.triu(1).abs().max() == 0 for w in out.attentions)


def test_generation_without_a_cache_returns_weights(make_decoder):
    model = make_decoder()
    out = model.generate(
        torch.randint(3, 100, (1, 5)), max_new_tokens=3, min_new_tokens=3, do_sample=False,
        use_cache=False, output_attentions=True, return_dict_in_generate=True,
    )  # fmt: skip
    assert [step[0].shape[-1] for step in out.attentions] == [5, 6, 7]


def test_weights_to_tokens_in_a_cache_are_refused(make_decoder):
    model = make_decoder()
    cache = model(input_ids=torch.randint(3, 100, (1, 5)), use_cache=True).cache
    with pytest.raises(ValueError, match="the cache holds tokens already"):
        model(input_ids=torch.tensor([[5]]), cache=cache, output_attentions=True)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_hands_them_on(variant, head):
    model = build(variant, head)
    inputs = batch(head)
    out = model(**inputs, output_attentions=True)
    rows = inputs["input_ids"].flatten(0, -2).shape[0]
    assert [w.shape for w in out.attentions] == [(rows, 2, 12, 12)] * 2


@pytest.mark.parametrize(
    "name", ["Model", "ForMaskedLM", "ForCausalLM", *(f"For{head}" for head in HEADS)]
)
def test_every_class_says_that_it_takes_the_question(name):
    """Transformers looks for the keyword in the types of `forward`."""
    forward = getattr(hla, f"Cosformer{name}").forward
    (known,) = inspect.signature(forward).parameters["kwargs"].annotation.__args__
    assert {"output_attentions", "output_hidden_states"} <= known.__annotations__.keys()


def test_softmax_weights_are_transformers_own():
    config = hla.SoftmaxConfig(**TINY)
    model = hla.SoftmaxModel._from_config(config, attn_implementation="eager").eval()
    seen = []
    from hf_linear_attn.attention import softmax

    eager = softmax._FUNCTIONS["eager"]
    softmax._FUNCTIONS["eager"] = lambda *a, **k: (seen.append(eager(*a, **k)), seen[-1])[1]
    try:
        out = model(input_ids=torch.randint(3, 100, (2, 9)), output_attentions=True)
    finally:
        softmax._FUNCTIONS["eager"] = eager
    for (_, wanted), found in zip(seen, out.attentions, strict=True):
        assert relative_error(found, wanted) <= 1e-6


def test_a_config_that_always_asks_is_refused():
    with pytest.raises(ValueError, match="pass output_attentions=True to the calls"):
        hla.CosformerConfig(**TINY, output_attentions=True)
