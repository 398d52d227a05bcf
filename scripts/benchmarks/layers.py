"""Layers and one-layer models of RoBERTa-base's shape, ours and stock, without dropout."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PretrainedConfig, RobertaConfig

from benchmarks.bench import Settings
from hf_linear_attn.models import CONFIG_CLASSES, LinearAttnConfig
from hf_linear_attn.models.layers import LinearAttnBlock

WITHOUT_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def shape(settings: Settings, layers: int) -> dict[str, Any]:
    """Config fields that all these models share."""
    return {
        "hidden_size": settings.hidden,
        "num_attention_heads": settings.heads,
        "intermediate_size": 4 * settings.hidden,
        "num_hidden_layers": layers,
    }


def roberta_config(settings: Settings, length: int, layers: int, **fields: Any) -> RobertaConfig:
    """RoBERTa for `length` tokens; its table of positions has two more rows."""
    return RobertaConfig(
        **shape(settings, layers), **WITHOUT_DROPOUT, max_position_embeddings=length + 2,
        type_vocab_size=1, **fields,
    )  # fmt: skip


def own_config(
    attention: str, settings: Settings, length: int, layers: int, **fields: Any
) -> LinearAttnConfig:
    """A config of ours, of RoBERTa's shape."""
    return CONFIG_CLASSES[attention](
        **shape(settings, layers), **WITHOUT_DROPOUT, max_position_embeddings=length,
        type_vocab_size=1, **fields,
    )  # fmt: skip


def placed(module: nn.Module, settings: Settings) -> nn.Module:
    """On the device, in the dtype of the run, in training mode."""
    return module.to(settings.device, settings.dtype).train()


def stock_model(config: PretrainedConfig, settings: Settings, **keywords: Any) -> Any:
    """A model of the config's class with random weights."""
    return placed(AutoModel.from_config(config, **keywords), settings)


def roberta_layer(settings: Settings, length: int) -> nn.Module:
    """A stock RoBERTa layer that attends by SDPA."""
    config = roberta_config(settings, length, layers=1, vocab_size=8)
    return stock_model(config, settings, attn_implementation="sdpa").encoder.layer[0]


def own_layer(attention: str, settings: Settings, length: int) -> nn.Module:
    """A layer of ours; called as layer(x, {}): one document, no padding."""
    config = own_config(attention, settings, length, layers=1).settle(is_decoder=False)
    return placed(LinearAttnBlock(config, 0), settings)


def forward_backward(
    module: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor
) -> Callable[[], object]:
    """A call that computes the output and the gradients of input and weights.

    Args:
        module: whose weights.
        forward: of x, through the module.
        x: (batch, seq, hidden).
        grad: of the output.
    """
    # What a call has no use for (an embedding, where embeddings are the input) has no gradient.
    leaves = [x, *module.parameters()]
    return lambda: torch.autograd.grad(forward(x), leaves, grad, allow_unused=True)


def hidden_states(settings: Settings, length: int) -> tuple[Tensor, Tensor]:
    """Input (batch, seq, hidden) that takes a gradient, and the gradient of the output."""
    generator = torch.Generator(settings.device).manual_seed(settings.seed)
    size = (settings.batch, length, settings.hidden)
    x, grad = (
        torch.randn(size, generator=generator, device=settings.device, dtype=settings.dtype)
        for _ in range(2)
    )
    return x.requires_grad_(), grad
