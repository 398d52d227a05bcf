"""Mechanisms in which queries and keys must be the same tokens."""

import pytest
import torch

from hf_linear_attn.attention import build_attention
from hf_linear_attn.backend import use_backend

NAMES = ["transnormer_diag", "nystrom"]


@pytest.fixture(params=NAMES)
def layer(request):
    return build_attention(request.param, {})


def qkv(length=6):
    return [torch.randn(2, 2, length, 4) for _ in range(3)]


def test_documents_of_queries_and_keys_are_the_same(layer):
    segments = torch.tensor([[0, 0, 1, 1, 1, 1]] * 2)
    others = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    with pytest.raises(ValueError, match="query_segments and key_segments differ"):
        layer(
            *qkv(), causal=False, query_segments=others, key_segments=segments,
            query_positions=torch.arange(6)[None],
        )  # fmt: skip


def test_queries_that_are_other_tokens_are_refused(layer):
    """Positions for both sides say that the keys' pads are not the queries'."""
    positions = torch.arange(6)[None]
    mask = torch.arange(6).expand(2, -1) < 4
    with pytest.raises(ValueError, match="give positions once"):
        layer(
            *qkv(), causal=False, key_mask=mask, query_positions=positions,
            key_positions=positions.clone(),
        )  # fmt: skip


def test_a_backend_without_a_kernel_is_refused(layer):
    with (
        use_backend("triton"),
        pytest.raises(
            ValueError, match=r"no Triton kernel|not for the device|Triton is not installed"
        ),
    ):
        layer(*qkv(), causal=False)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    compiled(*qkv(), causal=False)
    with (
        use_backend("triton"),
        pytest.raises(
            ValueError, match=r"no Triton kernel|not for the device|Triton is not installed"
        ),
    ):
        compiled(*qkv(), causal=False)
