"""Tensors in, tensors out: attention primitives in PyTorch, with explicit gradients."""

from hf_linear_attn.ops.feature_maps import FEATURE_MAPS
from hf_linear_attn.ops.linear_attention import linear_attention

__all__ = ["FEATURE_MAPS", "linear_attention"]
