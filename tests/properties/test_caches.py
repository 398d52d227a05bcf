"""Random decoders fed piece by piece are the whole: logits, and gradients through the cache.

Between two pieces the rows of the cache are reordered, chosen, repeated or copied, as beams do.
"""

import copy
import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import relative_error
from tests.properties.examples import examples
from tests.properties.model_cases import models, rows

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}


def change(cache, word, here, seed):
    """The cache after a change of its rows, and what row each of them was before."""
    drawn = torch.Generator().manual_seed(seed)
    count = len(here)
    if word == "copy":
        return copy.deepcopy(cache), here
    if word == "repeat":
        cache.batch_repeat_interleave(2)
        return cache, here.repeat_interleave(2)
    if word == "reorder":
        beams = torch.randint(count, (count,), generator=drawn)
        cache.reorder_cache(beams)
        return cache, here[beams]
    if word == "select":
        kept = torch.randperm(count, generator=drawn)[: 1 + seed % count]
        cache.batch_select_indices(kept)
        return cache, here[kept]
    return cache, here


def check_pieces(case, batch, cuts, changes, given_positions, seed, dtype=torch.float64):
    model, mask = case.build(dtype), batch.mask()
    ids = batch.ids(mask, model.config)
    embeds = model.model.embed_tokens(ids).detach().requires_grad_()
    extra = {}
    if model.config.type_vocab_size:
        extra["token_type_ids"] = batch.ids(mask, model.config, types=True)
    whole = model(inputs_embeds=embeds, attention_mask=mask.long(), **extra).logits
    positions = (mask.long().cumsum(1) - 1).clamp_min(0)
    if given_positions:
        extra["position_ids"] = positions
    edges = [0, *sorted({c for c in cuts if c < mask.shape[1]}), mask.shape[1]]
    here, cache = torch.arange(len(mask)), None
    loss_pieces = loss_whole = torch.zeros((), dtype=torch.float64)
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        if i:
            cache, here = change(cache, changes[i % len(changes)], here, seed + i)
        real = mask[here][:, start:stop]
        # Without a new pad the mask may be left out; those in the cache are known.
        seen = None if i and bool(real.all()) and seed % 2 else mask[here][:, :stop].long()
        piece = {name: x[here][:, start:stop] for name, x in extra.items()}
        out = model(
            inputs_embeds=embeds[here][:, start:stop], attention_mask=seen, cache=cache,
            use_cache=True, **piece,
        )  # fmt: skip
        cache = out.cache
        expected = whole[here][:, start:stop]
        assert out.logits.dtype == dtype
        assert relative_error(out.logits[real], expected[real], scale=1e-3) <= TOLERANCE[dtype]
        upstream = torch.randn_like(expected) * real[..., None]
        loss_pieces = loss_pieces + (out.logits * upstream).sum()
        loss_whole = loss_whole + (expected * upstream).sum()
    leaves = [embeds, *(p for n, p in model.named_parameters() if "embed_tokens" not in n)]
    found, wanted = (
        torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        for loss in (loss_pieces, loss_whole)
    )
    scale = 0.05 * torch.stack([x.norm() for x in wanted]).norm().clamp_min(1e-3)
    for a, b in zip(found, wanted, strict=True):
        assert relative_error(a, b, scale) <= TOLERANCE[dtype]


PIECES = {
    "batch": rows(),
    "cuts": st.lists(st.integers(1, 20), max_size=5),
    "changes": st.lists(
        st.sampled_from(["nothing", "copy", "repeat", "reorder", "select"]), min_size=1, max_size=3
    ),
    "given_positions": st.booleans(),
    "seed": st.integers(0, 2**16),
}


@examples(200)
@given(case=models(["ForCausalLM"]), **PIECES)
def test_a_decoder_in_pieces_is_the_whole(**drawn):
    check_pieces(**drawn)


@examples(150)
@given(case=models(["ForCausalLM"], least=4), **PIECES)
def test_a_decoder_in_fp32_in_pieces_is_the_whole(**drawn):
    check_pieces(**drawn, dtype=torch.float32)
