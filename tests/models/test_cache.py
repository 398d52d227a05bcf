"""What a decoder remembers: split anywhere, the sequence is the same; nothing else changes."""

import copy
import io
import pickle

import pytest
import torch
from transformers import DynamicCache, StaticCache

import hf_linear_attn as hla
from hf_linear_attn.models.cache import KeysLayer, StateLayer, WindowLayer
from tests.conftest import TINY
from tests.errors import relative_error

ROTATIONS = ["rope", "lrpe"]


def tokens(batch=2, length=33):
    return torch.randint(3, 100, (batch, length))


def in_pieces(model, ids, pieces, **keywords):
    """Logits of a sequence fed piece by piece, and the cache after it."""
    cache, logits, start = None, [], 0
    for length in pieces:
        out = model(
            input_ids=ids[:, start : start + length], cache=cache, use_cache=True, **keywords
        )
        cache, start = out.cache, start + length
        logits.append(out.logits)
    return torch.cat(logits, dim=1), cache


def held(cache):
    """Every tensor of a cache, by name."""
    found = {}
    for i, layer in enumerate(cache.layers):
        for name, value in vars(layer).items():
            for j, x in enumerate(value if isinstance(value, tuple) else (value,)):
                if isinstance(x, torch.Tensor):
                    found[i, name, j] = x
    return found


@torch.no_grad()
def filled(model, batch=3, length=7):
    ids = tokens(batch, length)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    mask[2, 5:] = 0
    return model(input_ids=ids, attention_mask=mask).cache


def test_the_model_s_config_builds_the_layers(make_decoder):
    model = make_decoder()
    kinds = {"recurrent state": StateLayer, "block window": WindowLayer, "full keys": KeysLayer}
    wanted = [kinds[layer.self_attn.mechanism.cache_kind] for layer in model.model.layers]
    # The config a user wrote, before a model settles it, says the same.
    written = copy.deepcopy(model.config)
    written.is_decoder = None
    for config in (model.config, model.model.config, written):
        assert [type(layer) for layer in DynamicCache(config=config).layers] == wanted
    if KeysLayer not in wanted:
        static = StaticCache(config=model.config, max_cache_len=5)
        assert [type(layer) for layer in static.layers] == wanted
    assert model(input_ids=tokens(2, 9)).cache.get_seq_length() == 9


def test_layer_types_are_derived_and_never_stored(make_decoder, tmp_path):
    model = make_decoder()
    assert len(model.config.layer_types) == 2
    model.save_pretrained(tmp_path)
    assert "layer_types" not in (tmp_path / "config.json").read_text()
    with pytest.raises(ValueError, match="no field 'layer_types'"):
        type(model.config)(**TINY, layer_types=["full_attention"] * 2)
    with pytest.raises(AttributeError):
        model.config.layer_types = ["full_attention"] * 2
    assert type(model.config)(**TINY).settle(is_decoder=False).layer_types is None


@torch.no_grad()
def test_b19_every_split_equals_the_whole(make_decoder):
    model = make_decoder(max_position_embeddings=40)
    ids = tokens()
    whole = model(input_ids=ids)
    for pieces in [(k, 33 - k) for k in range(1, 33)] + [(1,) * 33, (5, 1, 9, 18)]:
        logits, cache = in_pieces(model, ids, pieces)
        assert relative_error(logits, whole.logits) <= 1e-5, pieces
        assert cache.get_seq_length() == 33
        for name, x in held(cache).items():
            assert relative_error(x, held(whole.cache)[name]) <= 1e-4, (pieces, name)


@torch.no_grad()
@pytest.mark.parametrize("position_embedding_type", [*ROTATIONS, "sinusoidal", "none"])
def test_b19_splits_with_other_positions(make_decoder, position_embedding_type):
    model = make_decoder(
        max_position_embeddings=40, position_embedding_type=position_embedding_type,
        num_attention_heads=4, num_key_value_heads=2, qk_norm=True,
    )  # fmt: skip
    ids = tokens()
    whole = model(input_ids=ids).logits
    for pieces in ((1, 32), (16, 17), (20, 13), (30, 1, 1, 1)):
        assert relative_error(in_pieces(model, ids, pieces)[0], whole) <= 1e-5


@torch.no_grad()
def test_b19_splits_in_half_precision(make_decoder):
    model = make_decoder(max_position_embeddings=40).bfloat16()
    ids = tokens()
    whole = model(input_ids=ids)
    for pieces in ((1, 32), (16, 17), (20, 13), (1,) * 33):
        logits, cache = in_pieces(model, ids, pieces)
        assert relative_error(logits, whole.logits) <= 2e-2
        for name, x in held(cache).items():
            assert relative_error(x, held(whole.cache)[name]) <= 2e-2, (pieces, name)
        for layer in cache.layers:
            assert isinstance(layer, KeysLayer) or layer.state.dtype == torch.float32


def test_b19_the_exact_weights_of_cosformer_do_not_move_with_the_length():
    """q = k = 1, v = 0, 1, M = 4: 0, 0.519783, whether or not more tokens follow."""
    mechanism = hla.CosformerAttention(cos_horizon=4)
    one = torch.ones(1, 1, 1, 1)
    found, state = [], None
    for p, v in enumerate((0.0, 1.0, 5.0)):
        out, state = mechanism(
            one, one, one * v, causal=True, state=state, query_positions=torch.tensor([[p]])
        )
        found.append(out.item())
    assert found[:2] == pytest.approx([0, 0.519783], abs=1e-6)


@torch.no_grad()
def test_a_state_has_one_size(make_decoder):
    model = make_decoder(max_position_embeddings=1024)
    sizes = {}
    for length in (10, 1000):
        cache = model(input_ids=tokens(1, length)).cache
        for i, layer in enumerate(cache.layers):
            if not isinstance(layer, KeysLayer):
                sizes.setdefault(i, []).append(
                    sum(x.nbytes for (j, *_), x in held(cache).items() if i == j)
                )
    assert all(first == second for first, second in sizes.values())
    softmax = [name == "softmax" for name in model.config.attention_names]
    assert len(sizes) == 2 - sum(softmax)


def test_every_layer_counts_its_own_tokens(make_decoder):
    """No layer sees a length that is a step ahead of it."""
    model = make_decoder()
    cache = DynamicCache(config=model.config)
    lengths = []
    for layer in model.model.layers:
        layer.register_forward_pre_hook(
            lambda *a: lengths.append([x.get_seq_length() for x in cache.layers])
        )
    model(input_ids=tokens(2, 5), cache=cache)
    model(input_ids=tokens(2, 1), cache=cache)
    assert lengths == [[0, 0], [5, 0], [5, 5], [6, 5]]
    assert cache.get_seq_length() == 6
    assert cache.get_mask_sizes(3, 0) == cache.get_mask_sizes(3, 1) == (9, 0)


def test_b20_every_tensor_follows_the_batch(make_decoder):
    cache = filled(make_decoder())
    before = {name: x.clone() for name, x in held(cache).items()}
    assert {x.shape[0] for x in before.values()} == {3}
    index = torch.tensor([2, 0, 0])
    changes = {
        "reorder_cache": (index, index),
        "batch_select_indices": (index[:2], index[:2]),
        "batch_repeat_interleave": (2, torch.tensor([0, 0, 1, 1, 2, 2])),
    }
    for method, (argument, rows) in changes.items():
        other = copy.deepcopy(cache)
        getattr(other, method)(argument)
        for name, x in held(other).items():
            assert torch.equal(x, before[name][rows]), (method, name)
        assert other.get_seq_length() == 7


@torch.no_grad()
def test_a_reset_cache_is_a_new_one(make_decoder):
    model = make_decoder()
    ids = tokens(3, 9)
    cache = filled(model)
    cache.reset()
    assert cache.get_seq_length() == 0
    assert torch.equal(model(input_ids=ids, cache=cache).logits, model(input_ids=ids).logits)


@torch.no_grad()
def test_tokens_come_out_of_keys_only(make_decoder):
    model = make_decoder()
    ids = tokens(3, 9)
    for crop in (0, -2):
        cache = model(input_ids=ids).cache
        states = [layer for layer in cache.layers if not isinstance(layer, KeysLayer)]
        cache.layers[0].crop(0)
        if crop and states:
            with pytest.raises(ValueError, match="cannot give 2 tokens back"):
                cache.crop(crop)
            continue
        cache.crop(crop)
        assert cache.get_seq_length() == 9 + crop
        rest = model(input_ids=ids[:, 9 + crop :] if crop else ids, cache=cache).logits
        if crop:
            assert relative_error(rest, model(input_ids=ids).logits[:, crop:]) <= 1e-5


def test_a_state_takes_no_keys():
    with pytest.raises(ValueError, match="keeps a recurrent state"):
        StateLayer().update(torch.ones(1), torch.ones(1))
    with pytest.raises(ValueError, match="keeps the current block"):
        WindowLayer().update(torch.ones(1), torch.ones(1))


def test_b23_copies_share_nothing_with_the_original(make_decoder):
    model = make_decoder()
    ids = tokens(3, 20)
    with torch.no_grad():
        cache = model(input_ids=ids[:, :7]).cache
        wanted = model(input_ids=ids).logits[:, 7:]
    before = {name: x.clone() for name, x in held(cache).items()}
    file = io.BytesIO()
    torch.save(cache, file)
    file.seek(0)
    copies = {
        "deepcopy": copy.deepcopy(cache),
        "pickle": pickle.loads(pickle.dumps(cache)),
        "torch.save": torch.load(file, weights_only=False),
    }
    for name, other in copies.items():
        storages = {x.data_ptr() for x in held(other).values()}
        assert not storages & {x.data_ptr() for x in held(cache).values()}, name
        with torch.no_grad():
            assert relative_error(model(input_ids=ids[:, 7:], cache=other).logits, wanted) <= 1e-5
        assert other.get_seq_length() == 20
        assert cache.get_seq_length() == 7
        assert all(torch.equal(x, before[key]) for key, x in held(cache).items())
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(input_ids=ids).logits, model(input_ids=ids).logits)


def test_b23_without_gradients_a_cache_holds_no_graph(make_decoder):
    cache = filled(make_decoder())
    assert all(x.grad_fn is None for x in held(cache).values())


@torch.no_grad()
def test_a_state_is_never_written_in_place(make_decoder):
    model = make_decoder()
    cache = filled(model)
    before = held(cache)
    kept = {name: x.clone() for name, x in before.items()}
    model(input_ids=tokens(3, 5), cache=cache)
    assert all(torch.equal(x, kept[name]) for name, x in before.items())


def test_gradients_flow_through_a_carried_state(make_decoder):
    model = make_decoder()
    embeds = model.model.embed_tokens(tokens(2, 20)).detach()
    grads = []
    for pieces in ((20,), (12, 8)):
        x = embeds.clone().requires_grad_()
        cache, start = None, 0
        for length in pieces:
            out = model(
                inputs_embeds=x[:, start : start + length], cache=cache, use_cache=True
            )  # fmt: skip
            cache, start = out.cache, start + length
        out.logits[:, -8:].square().sum().backward()
        grads.append(x.grad)
    assert grads[0][:, :12].norm() > 1e-3
    assert relative_error(grads[1], grads[0]) <= 1e-5


def test_states_move_with_their_layer(make_decoder):
    cache = filled(make_decoder())
    before = held(cache)
    for layer in cache.layers:
        layer.offload()
        layer.prefetch()
    assert all(torch.equal(x, before[name]) for name, x in held(cache).items())
    assert cache.get_seq_length() == 7
