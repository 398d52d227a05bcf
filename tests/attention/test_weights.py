"""The explicit matrix of every mechanism: what the values are summed with."""

import pytest
import torch

from hf_linear_attn.attention.rotary import RotaryEmbedding
from tests.attention.test_contract import (
    BATCH,
    GROUPS,
    HEADS,
    build,
    causal,
    form,
    inputs,
    name,
    packing,
    padding,
)
from tests.errors import relative_error

__all__ = ["causal", "form", "name"]


@pytest.mark.parametrize("kind", ["full", "padded", "packed"])
@pytest.mark.parametrize("rotated", [False, True], ids=["plain", "rope"])
def test_weights_times_values_are_the_output(name, causal, kind, rotated):
    tokens = {
        "key_mask": padding(70, "left") if kind == "padded" else None,
        "query_segments": packing(70) if kind == "packed" else None,
    }
    q, k, v = inputs(70)
    mechanism = build(name, 70)
    mechanism.rotary = RotaryEmbedding(24) if rotated else None
    W = mechanism.weights(q, k, causal=causal, **tokens)
    assert W.shape == (BATCH, HEADS, 70, 70)
    if causal:
        assert W.triu(1).abs().max() == 0
    summed = W @ v.repeat_interleave(HEADS // GROUPS, dim=1)
    norm = getattr(mechanism, "norm", None)
    summed = summed if norm is None else norm(summed)
    out, _ = mechanism(q, k, v, causal=causal, **tokens)
    rows = 1 if kind != "padded" else tokens["key_mask"][:, None, :, None]
    assert relative_error(summed * rows, out * rows) <= 1e-11


def test_rows_of_normalised_weights_sum_to_one():
    q, k, _ = inputs(70)
    for known in ("softmax", "linear_transformer", "cosformer", "transnormer_diag"):
        sums = build(known, 70).weights(q, k, causal=False).sum(-1)
        assert relative_error(sums, torch.ones_like(sums)) <= 1e-9
