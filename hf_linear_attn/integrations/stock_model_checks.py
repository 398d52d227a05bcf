"""Models that would accept one of our names and not, or not rightly, compute with it."""

import sys
from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.utils import logging

from hf_linear_attn.attention.kernelized import KernelizedAttention
from hf_linear_attn.integrations.stock_checks import (
    is_flagged_causal,
    no_cross_attention,
    refuse_rotated,
)
from hf_linear_attn.integrations.stock_fields import STOCK_NAMES, stock_mechanism
from hf_linear_attn.integrations.stock_modules import attends_to_others, calls_interface
from hf_linear_attn.integrations.stock_visible import refuse_visible

logger = logging.get_logger(__name__)


def config_tree(config: Any) -> Iterator[Any]:
    """A config and those of its parts, and of theirs."""
    yield config
    for key in _parts(config):
        yield from config_tree(getattr(config, key))


def _parts(config: Any) -> list[str]:
    return [key for key in config.sub_configs if getattr(config, key, None) is not None]


def configs_of(model: PreTrainedModel) -> Iterator[Any]:
    """Every config of a model, once."""
    parts = (m.config for m in model.modules() if isinstance(m, PreTrainedModel))
    yield from {id(c): c for config in parts for c in config_tree(config)}.values()


def names_ours(asked: Any) -> bool:
    """Is one of our names in a value of `attn_implementation`, a word or words by part?"""
    if isinstance(asked, dict):
        return any(names_ours(value) for value in asked.values())
    return asked in STOCK_NAMES


def refuse_unknown_parts(config: Any, asked: Any, *, made: bool = False) -> None:
    """Refuse one of our names for a part that the config does not have.

    Args:
        config: that is told.
        asked: the value of `attn_implementation`.
        made: the config is complete; a part that is None is none.

    Raises:
        ValueError: names the parts there are.
    """
    if not isinstance(asked, dict):
        return
    known = _parts(config) if made else list(config.sub_configs)
    for key, value in asked.items():
        if key == "" or not names_ours(value):
            continue
        if key not in known:
            raise ValueError(
                f"attn_implementation names a part {key!r} that {type(config).__name__} does not "
                f"have; its parts: {', '.join(known) or 'none'}. ('' stands for the model itself.)"
            )
        if getattr(config, key, None) is not None:
            refuse_unknown_parts(getattr(config, key), value, made=made)


def check_taken(model: PreTrainedModel, asked: Any) -> None:
    """Transformers only logs that a model cannot change its implementation.

    Raises:
        ValueError: a part that was asked for does not have the name now.
    """
    if isinstance(asked, dict):
        _check_parts_taken(model, model.config, asked)
    elif asked in STOCK_NAMES:
        for part in model.modules():
            if isinstance(part, PreTrainedModel) and part.config._attn_implementation != asked:
                raise ValueError(never_called(part, asked))


def _check_parts_taken(model: PreTrainedModel, config: Any, asked: Any) -> None:
    name = asked.get("") if isinstance(asked, dict) else asked
    if name in STOCK_NAMES and config._attn_implementation != name:
        owners = (m for m in model.modules() if isinstance(m, PreTrainedModel))
        owner = next((m for m in owners if m.config is config), model)
        raise ValueError(never_called(owner, name))
    for key, value in asked.items() if isinstance(asked, dict) else ():
        if key and names_ours(value):
            _check_parts_taken(model, getattr(config, key), value)


def check_model(model: PreTrainedModel) -> None:
    """Refuse a model that asks for one of our names and cannot run with it.

    Raises:
        ValueError: it, or a part that asks, never calls the function of that name, rotates what a
            mechanism maps, is causal where the mechanism is not, has something no mechanism can
            do, or its config has fields that are refused.
    """
    if not any(config._attn_implementation in STOCK_NAMES for config in configs_of(model)):
        return
    callers = [module for module in model.modules() if calls_interface(module)]
    _check_asked(model, callers)
    for module in callers:
        own = getattr(getattr(module, "config", None), "_attn_implementation", None)
        if own in STOCK_NAMES:
            _check_module(own, module)
    name = model.config._attn_implementation
    if name in STOCK_NAMES:
        _warn_of_others(model, name)


def _check_asked(model: PreTrainedModel, callers: list[nn.Module]) -> None:
    """Every part that has one of our names must have someone who looks it up."""
    parts = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    for part in parts:
        name = part.config._attn_implementation
        if name in STOCK_NAMES and not any(map(calls_interface, part.modules())):
            raise ValueError(never_called(part, name))
    served = {id(part.config) for part in parts} | {id(module.config) for module in callers}
    for config in config_tree(model.config):
        name = config._attn_implementation
        # The same name as the model's came with it, and says nothing of a part without attention.
        apart = name in STOCK_NAMES and name != model.config._attn_implementation
        if apart and id(config) not in served:
            raise ValueError(
                f"attn_implementation={name!r} was set for {type(config).__name__}, but no "
                f"attention of {type(model).__name__} looks it up there; leave this part out."
            )


def never_called(model: PreTrainedModel, name: str) -> str:
    """The message for a model, or a part of one, that does not look the name up."""
    parts, way = _parts(model.config), "Leave it out"
    if parts:
        way += (
            f"; for one part of the model name it (parts: {', '.join(parts)}): "
            f"attn_implementation={{{parts[0]!r}: {name!r}}}"
        )
    reason = "it has attention of its own, or none"
    code = vars(sys.modules.get(type(model).__module__, sys))
    if any("alibi" in word for word in code) and getattr(model.config, "alibi", True):
        reason = "it has attention of its own with ALiBi, a bias for every pair"
    return (
        f"{type(model).__name__} cannot run with attn_implementation={name!r}: its code never "
        f"looks the name up ({reason}), so the name would change nothing. {way}."
    )


def _check_module(name: str, module: nn.Module) -> None:
    mechanism = stock_mechanism(name, module.config)
    refuse_rotated(name, mechanism, module)
    if is_flagged_causal(module) and not mechanism.supports_causal:
        raise ValueError(
            f"attn_implementation={name!r} in {type(module).__name__}: {mechanism.no_causal_form()}"
        )
    # Decoders alone may have such modules, too, and never call them.
    crossed = getattr(module.config, "is_encoder_decoder", False) and attends_to_others(module)
    if crossed and not isinstance(mechanism, KernelizedAttention):
        raise no_cross_attention(f"attn_implementation={name!r}", module)
    refuse_visible(name, module)


def _warn_of_others(model: PreTrainedModel, name: str) -> None:
    """Say once which attention of a model stays what it is.

    The words are the same for a model and for one around it, so that they are said once.
    """
    others = set()
    for parent in model.modules():
        for module in parent.children():
            inside = any(map(calls_interface, module.modules()))
            if type(module).__name__.endswith("Attention") and not inside:
                others.add(f"{type(module).__name__} in {type(parent).__name__}")
    if others:
        logger.warning_once(
            f"attn_implementation={name!r} does not reach {', '.join(sorted(others))}: these "
            "compute attention of their own."
        )
