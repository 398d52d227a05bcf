"""Floating-point operations of a forward pass, by formula: matrix products only, 2 a multiply-add.

What is counted is what the model needs, as for "model FLOPs utilisation" (Chowdhery et al. 2022,
PaLM, appendix B): nothing that is computed twice, no padding, no elementwise work. Causal softmax
attention counts all pairs, as there. Nyström's landmarks are sums and count nothing. The heads of
tasks other than language modelling and sequence classification are left out; they are small.
"""

import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_linear_attn.attention.registry import get_attention
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.heads import LanguageModel, LinearAttnForCausalLM
from hf_linear_attn.models.lra import LraForSequenceClassification
from hf_linear_attn.models.lra_config import LraConfig
from hf_linear_attn.models.task_heads import LinearAttnForSequenceClassification

_BACKWARD = 2
"""the backward pass has two products for each of the forward pass"""


def has_formula(config: Any) -> bool:
    """Is every mechanism of this config one whose work is known here?"""
    known = isinstance(config, LinearAttnConfig | LraConfig)
    return known and set(config.attention_names) <= set(_MECHANISMS)


def training_flops(
    model: PreTrainedModel, lengths: Tensor, predicted: Tensor | None = None
) -> Tensor:
    """Work of one training step on these rows: forward and backward, fp64 scalar.

    Args:
        model: with a config for which `has_formula`.
        lengths: number of real tokens of each row, (rows,), or of each document of packed rows.
        predicted: number of tokens that a masked language model predicts, scalar; other heads do
            not need it.
    """
    config: Any = model.config
    n = lengths.to(torch.float64)
    if isinstance(config, LraConfig):
        # A CLS vector stands before every sequence.
        n = n + (n > 0) * (config.pooling == "cls")
        config = config.encoder
    forward = trunk_flops(config, n) + _head_flops(model, n, predicted)
    return (1 + _BACKWARD) * forward


def trunk_flops(config: LinearAttnConfig, lengths: Tensor) -> Tensor:
    """Forward work of the trunk without its head on rows of these lengths, scalar.

    Args:
        config: settled, as a built model has it.
        lengths: float (rows,).
    """
    h, D = config.hidden_size, cast(int, config.head_dim)
    H, G = config.num_attention_heads, cast(int, config.num_key_value_heads)
    products = 3 if config.mlp_type == "glu" else 2
    per_token = 2 * h * D * (2 * H + 2 * G) + 2 * h * config.intermediate_size * products
    total = config.num_hidden_layers * per_token * lengths.sum()
    for name in config.attention_names:
        settings = _settings(config, name)
        total = total + _MECHANISMS[name](settings, H, G, D, lengths).sum()
    return total


def _settings(config: LinearAttnConfig, name: str) -> dict[str, Any]:
    """The mechanism's fields with its own defaults, and what the trunk makes of it."""
    keywords = inspect.signature(get_attention(name)).parameters.values()
    return {
        **{k.name: k.default for k in keywords},
        **config.attention_settings(name),
        "causal": bool(config.is_decoder),
        "rotated": config.position_embedding_type in ("rope", "lrpe"),
    }


def _head_flops(model: PreTrainedModel, lengths: Tensor, predicted: Tensor | None) -> Tensor:
    zero = lengths.new_zeros(())
    if isinstance(model, LraForSequenceClassification):
        layers = [*model.head.hidden, model.head.out_proj]
        each = 2 * sum(
            cast(nn.Linear, a).in_features * cast(nn.Linear, a).out_features for a in layers
        )
        return zero + each * (lengths > 0).sum() / model.config.towers
    config = cast(LinearAttnConfig, model.config)
    h = config.hidden_size
    if isinstance(model, LanguageModel):
        each = 2 * h * config.vocab_size + (2 * h * h if config.lm_head_transform else 0)
        if isinstance(model, LinearAttnForCausalLM):
            return each * lengths.sum()
        return zero if predicted is None else each * predicted.to(torch.float64)
    if isinstance(model, LinearAttnForSequenceClassification):
        each = 2 * h * cast(int, config.num_labels) + (0 if config.is_decoder else 2 * h * h)
        return zero + each * (lengths > 0).sum()
    return zero


def _softmax(settings: dict[str, Any], H: int, G: int, D: int, n: Tensor) -> Tensor:
    """QKᵀ and AV."""
    return 4 * H * D * n * n


def _block(settings: dict[str, Any], H: int, G: int, D: int, n: Tensor) -> Tensor:
    """QKᵀ and AV inside blocks of w tokens."""
    return 4 * H * D * _pairs(n, settings["block_size"])


def _kernelized(
    settings: dict[str, Any], H: int, G: int, D: int, n: Tensor, *, normalize: bool, angles: bool
) -> Tensor:
    """φ(K)ᵀV and φ(Q)S; in a decoder the pairs inside chunks, too.

    With a rotation numerator and normaliser are two passes.
    """
    features = 2 * D if angles else D
    widths = [D, 1] if normalize and settings["rotated"] else [D + normalize]
    total = n * 0
    for width in widths:
        read, inside = n, 0
        if settings["causal"]:
            chunk = settings["chunk_size"]
            # Inside a chunk the normaliser is a sum and no product.
            values = width - (normalize and not settings["rotated"])
            inside = 2 * H * (D + values) * _pairs(n, chunk)
            read = n - n.clamp(max=chunk)  # the first chunk finds no state
        total = total + 2 * features * width * (G * n + H * read) + inside
    return total


def _cosformer(settings: dict[str, Any], H: int, G: int, D: int, n: Tensor) -> Tensor:
    angles = settings["cos_reweighting"]
    return _kernelized(settings, H, G, D, n, normalize=True, angles=angles)


def _linear_transformer(settings: dict[str, Any], H: int, G: int, D: int, n: Tensor) -> Tensor:
    return _kernelized(settings, H, G, D, n, normalize=True, angles=False)


def _norm_attention(settings: dict[str, Any], H: int, G: int, D: int, n: Tensor) -> Tensor:
    return _kernelized(settings, H, G, D, n, normalize=False, angles=False)


def _nystrom(settings: dict[str, Any], H: int, G: int, D: int, n: Tensor) -> Tensor:
    """F, A, B, the pseudo-inverse, F(Z(BV)) and the convolution; short rows are exact."""
    m, taps = settings["num_landmarks"], settings["conv_kernel_size"] or 0
    inverse = 8 * settings["pinv_iterations"] * m**3
    long = 8 * n * m * D + 4 * m * m * D + inverse
    return H * (torch.where(n > m, long, 4 * n * n * D) + 2 * n * taps * D)


def _pairs(n: Tensor, size: int) -> Tensor:
    """Number of pairs inside pieces of `size` tokens, the last piece shorter."""
    whole = torch.div(n, size, rounding_mode="floor")
    rest = n - whole * size
    return whole * size**2 + rest**2


_MECHANISMS: dict[str, Callable[[dict[str, Any], int, int, int, Tensor], Tensor]] = {
    "softmax": _softmax,
    "linear_transformer": _linear_transformer,
    "cosformer": _cosformer,
    "transnormer_norm": _norm_attention,
    "transnormer_diag": _block,
    "nystrom": _nystrom,
}
