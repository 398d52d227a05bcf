"""Models that would accept one of our names and not, or not rightly, compute with it.

Transformers keeps the value of `attn_implementation` whether or not a model ever looks at it. So a
model is looked through when it is built, before weights are loaded, and when its
implementation is changed: the end of `PreTrainedModel.__init__` (`post_init`) and
`set_attn_implementation` are the two places, and neither does anything new unless one of our names
is asked for. A third, `get_correct_attn_implementation`, stands at the beginning of `__init__`: it
says which of our names a misspelt one is near to, and stops models that would break on a name
before they are built.
"""

import functools
from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.utils import logging

from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.integrations.stock_checks import refuse_rotated
from hf_linear_attn.integrations.stock_fields import STOCK_NAMES, stock_mechanism
from hf_linear_attn.integrations.stock_modules import calls_interface

logger = logging.get_logger(__name__)


def watch_models() -> None:
    """Have models looked through when they are built or changed; called on import, once."""
    if PreTrainedModel.post_init.__module__ == __name__:
        return
    PreTrainedModel.post_init = _checked_post_init(PreTrainedModel.post_init)
    PreTrainedModel.set_attn_implementation = _checked_change(
        PreTrainedModel.set_attn_implementation
    )
    PreTrainedModel.get_correct_attn_implementation = _hinting(
        PreTrainedModel.get_correct_attn_implementation
    )


def _checked_post_init(original: Any) -> Any:
    @functools.wraps(original, assigned=("__name__", "__doc__"))
    def post_init(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        check_model(self)
        return original(self, *args, **kwargs)

    return post_init


def _checked_change(original: Any) -> Any:
    @functools.wraps(original)
    def set_attn_implementation(
        self: PreTrainedModel, attn_implementation: Any, *args: Any, **kwargs: Any
    ) -> Any:
        before = [(config, config._attn_implementation) for config in _configs(self)]
        result = original(self, attn_implementation, *args, **kwargs)
        try:
            _check_taken(self, attn_implementation)
            check_model(self)
        except ValueError:
            for config, name in before:
                config._attn_implementation_internal = name
            raise
        return result

    return set_attn_implementation


def _hinting(original: Any) -> Any:
    @functools.wraps(original)
    def get_correct_attn_implementation(
        self: PreTrainedModel, requested_attention: str | None, *args: Any, **kwargs: Any
    ) -> Any:
        known = requested_attention is None or requested_attention in AttentionInterface()
        hint = "" if known else did_you_mean(requested_attention, STOCK_NAMES)
        if hint:
            raise ValueError(
                f"unknown attn_implementation {requested_attention!r}; this package adds "
                f"{', '.join(STOCK_NAMES)}.{hint}"
            )
        if requested_attention in STOCK_NAMES and _picks_classes(type(self)):
            raise ValueError(_never_called(self, str(requested_attention)))
        return original(self, requested_attention, *args, **kwargs)

    return get_correct_attn_implementation


def _picks_classes(cls: type[PreTrainedModel]) -> bool:
    """Does Transformers know of one of its own models that it never calls the function?"""
    own = cls.__module__.startswith("transformers.")
    return own and not cls._can_set_attn_implementation()


def _configs(model: PreTrainedModel) -> Iterator[Any]:
    found = {id(m.config): m.config for m in model.modules() if isinstance(m, PreTrainedModel)}
    yield from found.values()


def _check_taken(model: PreTrainedModel, asked: Any) -> None:
    """Transformers only logs that a model cannot change its implementation."""
    name = asked.get("", None) if isinstance(asked, dict) else asked
    if name not in STOCK_NAMES:
        return
    parts = [model] if isinstance(asked, dict) else model.modules()
    for part in parts:
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation != name:
            raise ValueError(_never_called(part, name))


def check_model(model: PreTrainedModel) -> None:
    """Refuse a model that asks for one of our names and cannot run with it.

    Raises:
        ValueError: it never calls the function of that name, rotates what a mechanism maps, is
            causal where the mechanism is not, or its config has fields that are refused.
    """
    if not any(config._attn_implementation in STOCK_NAMES for config in _configs(model)):
        return
    callers = [module for module in model.modules() if calls_interface(module)]
    name = model.config._attn_implementation
    if name in STOCK_NAMES and not callers:
        raise ValueError(_never_called(model, name))
    for module in callers:
        own = getattr(getattr(module, "config", None), "_attn_implementation", None)
        if own in STOCK_NAMES:
            _check_module(own, module)
    if name in STOCK_NAMES:
        _warn_of_others(model, name)


def _never_called(model: PreTrainedModel, name: str) -> str:
    return (
        f"{type(model).__name__} cannot run with attn_implementation={name!r}: its code never "
        "looks the name up (it has attention of its own, or none), so the name would change "
        "nothing. Leave it out; for one part of a composite model name the parts: "
        f"attn_implementation={{'text_config': {name!r}}}."
    )


def _check_module(name: str, module: nn.Module) -> None:
    mechanism = stock_mechanism(name, module.config)
    refuse_rotated(name, mechanism, module)
    causal = getattr(module, "is_causal", False) and getattr(module.config, "is_causal", True)
    if causal and not mechanism.supports_causal:
        raise ValueError(
            f"attn_implementation={name!r} in {type(module).__name__}: {mechanism.no_causal_form()}"
        )


def _warn_of_others(model: PreTrainedModel, name: str) -> None:
    """Say once which attention of a model stays what it is."""
    others = set()
    for module in model.modules():
        kind = type(module).__name__
        inside = any(calls_interface(part) for part in module.modules())
        if kind.endswith("Attention") and not inside:
            others.add(kind)
    if others:
        logger.warning_once(
            f"attn_implementation={name!r} does not reach {', '.join(sorted(others))} in "
            f"{type(model).__name__}: these compute attention of their own."
        )
