"""Where models are looked through that ask for one of our names.

Transformers keeps the value of `attn_implementation` whether or not a model ever looks at it. So a
model is looked through when it is built, before weights are loaded, and when its
implementation is changed: the end of `PreTrainedModel.__init__` (`post_init`) and
`set_attn_implementation` are the two places. `get_correct_attn_implementation`, at the beginning of
`__init__`, says which of our names a misspelt one is near to, and stops models that would break on
a name before they are built. `_from_config` takes a config of the user's and writes the name into
it: a refusal takes it out again. And where a config is told the names of its parts, a part that it
does not have is refused. None does anything new unless one of our names is asked for.
"""

import functools
from typing import Any

from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel

from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.integrations.stock_fields import STOCK_NAMES
from hf_linear_attn.integrations.stock_model_checks import (
    check_model,
    check_taken,
    config_tree,
    configs_of,
    names_ours,
    never_called,
    refuse_unknown_parts,
)

_MARK = "_hf_linear_attn_looks"


def watch_models() -> None:
    """Have models looked through when they are built or changed; called on import, once."""
    for name, wrap in (
        ("post_init", _checked_post_init),
        ("set_attn_implementation", _checked_change),
        ("get_correct_attn_implementation", _hinting),
    ):
        original = getattr(PreTrainedModel, name)
        if not hasattr(original, _MARK):
            setattr(PreTrainedModel, name, _marked(wrap(original)))
    models: Any = PreTrainedModel
    build = models._from_config.__func__
    if not hasattr(build, _MARK):
        models._from_config = classmethod(_marked(_restoring(build)))
    configs: Any = PreTrainedConfig
    named = configs._attn_implementation
    if not hasattr(named.fset, _MARK):
        configs._attn_implementation = property(named.fget, _marked(_checked_parts(named.fset)))


def _marked(function: Any) -> Any:
    setattr(function, _MARK, True)
    return function


def _checked_post_init(original: Any) -> Any:
    @functools.wraps(original)
    def post_init(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        check_model(self)
        return original(self, *args, **kwargs)

    return post_init


def _checked_change(original: Any) -> Any:
    @functools.wraps(original)
    def set_attn_implementation(
        self: PreTrainedModel, attn_implementation: Any, *args: Any, **kwargs: Any
    ) -> Any:
        before = [(config, config._attn_implementation) for config in configs_of(self)]
        try:
            refuse_unknown_parts(self.config, attn_implementation, made=True)
            result = original(self, attn_implementation, *args, **kwargs)
            check_taken(self, attn_implementation)
            check_model(self)
        except Exception:
            _restore(before)
            raise
        return result

    return set_attn_implementation


def _restoring(original: Any) -> Any:
    @functools.wraps(original)
    def _from_config(cls: type[PreTrainedModel], config: Any, *args: Any, **kwargs: Any) -> Any:
        asked = kwargs.get("attn_implementation")
        if not names_ours(asked):
            return original(cls, config, *args, **kwargs)
        before = [(part, part._attn_implementation) for part in config_tree(config)]
        try:
            refuse_unknown_parts(config, asked, made=True)
            return original(cls, config, *args, **kwargs)
        except Exception:
            _restore(before)
            raise

    return _from_config


def _checked_parts(original: Any) -> Any:
    @functools.wraps(original)
    def _attn_implementation(self: PreTrainedConfig, value: Any) -> None:
        refuse_unknown_parts(self, value)
        original(self, value)

    return _attn_implementation


def _restore(before: list[tuple[Any, str | None]]) -> None:
    for config, name in before:
        config._attn_implementation_internal = name


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
            raise ValueError(never_called(self, str(requested_attention)))
        return original(self, requested_attention, *args, **kwargs)

    return get_correct_attn_implementation


def _picks_classes(cls: type[PreTrainedModel]) -> bool:
    """Does Transformers know of one of its own models that it never calls the function?"""
    own = cls.__module__.startswith("transformers.")
    return own and not cls._can_set_attn_implementation()
