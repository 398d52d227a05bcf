"""Tensors in, tensors out: attention primitives in PyTorch, with explicit gradients."""

from hf_linear_attn.ops.feature_maps import FEATURE_MAPS
from hf_linear_attn.ops.linear_attention import linear_attention
from hf_linear_attn.ops.recurrent_decoder import RecurrentDecoder

__all__ = ["FEATURE_MAPS", "RecurrentDecoder", "linear_attention"]
