"""Attention mechanisms: one a file, all behind the promise of `Attention`."""

from hf_linear_attn.attention.base import Attention
from hf_linear_attn.attention.cosformer import CosformerAttention
from hf_linear_attn.attention.kernelized import KernelizedAttention
from hf_linear_attn.attention.linear_transformer import LinearTransformerAttention
from hf_linear_attn.attention.nystrom import NystromAttention
from hf_linear_attn.attention.registry import (
    ATTENTION,
    build_attention,
    get_attention,
    register_attention,
)
from hf_linear_attn.attention.softmax import SoftmaxAttention
from hf_linear_attn.attention.transnormer import (
    TransNormerDiagAttention,
    TransNormerNormAttention,
)

__all__ = [
    "ATTENTION",
    "Attention",
    "CosformerAttention",
    "KernelizedAttention",
    "LinearTransformerAttention",
    "NystromAttention",
    "SoftmaxAttention",
    "TransNormerDiagAttention",
    "TransNormerNormAttention",
    "build_attention",
    "get_attention",
    "register_attention",
]
