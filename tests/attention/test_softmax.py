"""Softmax attention through Transformers' functions."""

import sys
from types import SimpleNamespace

import pytest
import torch

from hf_linear_attn import SoftmaxAttention

# The package exports a class of a neighbouring name, so the module is taken from sys.modules.
softmax = sys.modules["hf_linear_attn.attention.softmax"]


def draw(length, keys=None, dtype=torch.float32):
    shapes = ((6, length), (3, keys or length), (3, keys or length))
    return [torch.randn(2, h, n, 16, dtype=dtype) for h, n in shapes]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_eager_equals_sdpa(padded, packed, causal):
    tokens = {}
    if padded:
        tokens["key_mask"] = torch.arange(20) >= torch.tensor([[4], [20]])  # one row all pads
    if packed:
        tokens["query_segments"] = (torch.arange(20) // 6).expand(2, -1)
    tensors = draw(20)
    eager, _ = SoftmaxAttention(attn_implementation="eager")(*tensors, causal=causal, **tokens)
    sdpa, _ = SoftmaxAttention(attn_implementation="sdpa")(*tensors, causal=causal, **tokens)
    assert torch.allclose(eager, sdpa, atol=1e-6)


def test_cross_attention_over_packed_documents():
    q, k, v = draw(6, keys=9)
    queries = torch.tensor([0, 0, 1, 1, 1, 2]).expand(2, -1)
    keys = torch.tensor([0, 1, 1, 1, 1, 2, 2, 2, 2]).expand(2, -1)
    out, _ = SoftmaxAttention()(q, k, v, causal=False, query_segments=queries, key_segments=keys)
    alone, _ = SoftmaxAttention()(q[:, :, 2:5], k[:, :, 1:5], v[:, :, 1:5], causal=False)
    assert torch.allclose(out[:, :, 2:5], alone, atol=1e-6)


def test_dropout_acts_in_training_only():
    tensors = draw(12)
    attention = SoftmaxAttention(attention_probs_dropout_prob=0.5)
    attention.train()
    assert not torch.equal(
        attention(*tensors, causal=False)[0], attention(*tensors, causal=False)[0]
    )
    attention.eval()
    plain, _ = SoftmaxAttention()(*tensors, causal=False)
    assert torch.equal(attention(*tensors, causal=False)[0], plain)


def test_flash_attention_that_is_not_installed_names_the_extra(monkeypatch):
    monkeypatch.setattr(softmax, "is_flash_attn_2_available", lambda: False)
    with pytest.raises(ValueError, match=r"hf-linear-attn\[flash\]"):
        SoftmaxAttention(attn_implementation="flash_attention_2")


@pytest.mark.parametrize("name", ["flash_attention_3", "cosformer", "sdpaa"])
def test_an_unknown_implementation_is_refused(name):
    with pytest.raises(ValueError, match="attn_implementation"):
        SoftmaxAttention(attn_implementation=name)


def test_a_state_is_refused():
    with pytest.raises(ValueError, match="carries no state"):
        SoftmaxAttention()(*draw(4), causal=True, state=torch.zeros(1))


class TestFlash:
    """What reaches FlashAttention; the kernel itself needs a GPU."""

    @pytest.fixture
    def calls(self, monkeypatch):
        calls = []

        def stand_in(module, query, key, value, mask, **keywords):
            calls.append(SimpleNamespace(module=module, mask=mask, **keywords))
            return value.new_zeros(query.shape[0], query.shape[2], query.shape[1], 16), None

        monkeypatch.setattr(softmax, "is_flash_attn_2_available", lambda: True)
        monkeypatch.setattr(softmax, "flash_attention_forward", stand_in)
        return calls

    def test_padding_is_a_2d_mask(self, calls):
        mask = torch.arange(8) < torch.tensor([[5], [8]])
        attention = SoftmaxAttention(attn_implementation="flash_attention_2")
        attention(*draw(8, dtype=torch.bfloat16), causal=True, key_mask=mask)
        assert calls[0].mask is mask
        assert calls[0].is_causal
        assert calls[0].module.config._attn_implementation == "flash_attention_2"

    def test_documents_are_cumulative_lengths_and_pads_a_document_of_their_own(self, calls):
        segments = torch.tensor([[0, 0, 0, 1, 1, 1], [4, 4, 4, 4, 4, 4]])
        mask = torch.tensor([[True] * 5 + [False], [True] * 6])
        attention = SoftmaxAttention(attn_implementation="flash_attention_2")
        attention(
            *draw(6, dtype=torch.bfloat16), causal=False, key_mask=mask, query_segments=segments
        )
        assert calls[0].mask is None
        assert calls[0].cu_seq_lens_q.tolist() == [0, 3, 5, 6, 12]
        assert calls[0].max_length_q == 6

    def test_fp32_is_refused(self, calls):
        attention = SoftmaxAttention(attn_implementation="flash_attention_2")
        with pytest.raises(ValueError, match="float16 or bfloat16"):
            attention(*draw(6), causal=False)
        assert not calls

    def test_a_pad_inside_a_document_is_refused(self, calls):
        attention = SoftmaxAttention(attn_implementation="flash_attention_2")
        mask = torch.tensor([[True, True, False, True, True]] * 2)
        segments = torch.zeros(2, 5, dtype=torch.long)
        tensors = draw(5, dtype=torch.bfloat16)
        with pytest.raises(ValueError, match="without padding inside"):
            attention(*tensors, causal=False, key_mask=mask, query_segments=segments)
