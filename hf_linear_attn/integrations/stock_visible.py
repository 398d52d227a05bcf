"""What can be seen of a model, before it runs, that linear attention cannot do.

The attention function refuses the same by the keywords it is handed. But that is at the first
batch; a model that is built from a config says some of it at once.
"""

from typing import Any

from torch import nn

from hf_linear_attn.integrations.stock_checks import cannot_honour
from hf_linear_attn.integrations.stock_modules import mentions


def refuse_visible(name: str, module: nn.Module) -> None:
    """Refuse an attention module that will ask for what `name` cannot do.

    Args:
        name: of the mechanism.
        module: one that calls the attention function.

    Raises:
        ValueError: names the first such thing.
    """
    config = getattr(module, "config", None)
    asked = {
        "sliding_window": _window(module, config) or None,
        "softcap": _either(module, config, "attn_logit_softcapping"),
        "sinks": getattr(module, "sinks", None),
        "alibi": _either(module, config, "alibi") or None,
        "position_bias": _position_bias(module, config),
        # Modules that choose pairs (Doge, sparse attention) fill a mask of theirs before the call.
        "attention_mask": mentions(module, "masked_fill")
        or mentions(module, "masked_fill_")
        or None,
    }
    for keyword, value in asked.items():
        if value is not None:
            raise cannot_honour(name, module, keyword)


def _either(module: nn.Module, config: Any, field: str) -> Any:
    own = getattr(module, field, None)
    return getattr(config, field, None) if own is None else own


def _window(module: nn.Module, config: Any) -> Any:
    """A layer's own window, or the config's where the layer reads it there."""
    if hasattr(module, "sliding_window"):
        return module.sliding_window
    if mentions(module, "sliding_window"):
        return getattr(config, "sliding_window", None)
    return None


def _position_bias(module: nn.Module, config: Any) -> Any:
    """A table of relative positions: Swin's, BEiT's (its own or all layers'), T5's."""
    for field in ("relative_position_bias", "relative_attention_bias"):
        found = getattr(module, field, None)
        if found is not None:
            return found
    fields = ("use_relative_position_bias", "use_shared_relative_position_bias")
    return any(getattr(config, field, False) for field in fields) or None
