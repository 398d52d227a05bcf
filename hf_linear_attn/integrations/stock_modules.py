"""What an attention module of a stock model does, seen in its code.

Transformers has no flag for either question: does the module call the function that
`attn_implementation` names (some models accept any name and never look at it), and does it rotate
queries and keys before (RoPE)? The code objects of a class answer both; nothing is run or parsed.
"""

import inspect
import re
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from torch import nn
from transformers import AttentionInterface, PreTrainedModel

# Not the rope in "property".
_ROTATION = re.compile(r"(?i:rotary|rotate)|(?:^|_|m|M)rope|Rope|RoPE|ROPE")
_CALLS: dict[type, bool] = {}
_NAMES: dict[type, tuple[str, ...]] = {}
_WORDS: dict[type, frozenset[str]] = {}


def calls_interface(module: nn.Module) -> bool:
    """Does the module's own code look an attention function up by name?"""
    cls = type(module)
    if cls not in _CALLS:
        # A model's own methods handle names, too; attention is in its parts.
        _CALLS[cls] = not issubclass(cls, PreTrainedModel) and any(
            isinstance(function.__globals__.get(name), AttentionInterface)
            for function in _functions(cls)
            for name in _names(function.__code__)
        )
    return _CALLS[cls]


def rotates(module: nn.Module) -> bool:
    """Are queries and keys rotated by their positions before the attention function is called?

    Seen in the config (`rope_parameters`, `rope_theta`) or in the module's code. A rotation that
    the code can leave out layer by layer counts as one. A module that names another kind of
    positions does not rotate, whatever else its code holds, and a part that is None does not.
    """
    config = getattr(module, "config", None)
    if getattr(config, "rope_parameters", None):
        return True
    cls, kind = type(module), getattr(module, "position_embedding_type", None)
    if isinstance(kind, str) and not _ROTATION.search(kind):
        return False
    if getattr(config, "rope_theta", None):
        return True
    if cls not in _NAMES:
        found = {
            name
            for function in _functions(cls)
            for name in _names(function.__code__)
            if _ROTATION.search(name)
        }
        _NAMES[cls] = tuple(sorted(found))
    return any(getattr(module, name, cls) is not None for name in _NAMES[cls])


def is_named_cross(module: nn.Module) -> bool | None:
    """Does the module name itself cross-attention: its flag (GPT-2), or its class (BERT)?

    None = it says nothing.
    """
    flag: Any = getattr(module, "is_cross_attention", None)
    if flag is not None:
        return bool(flag)
    return True if "CrossAttention" in type(module).__name__ else None


def attends_to_others(module: nn.Module) -> bool:
    """Is this cross-attention, as far as one can know without its mask?

    By its name, or as the attention of a decoder that is not causal (BART). Some decoders (NLLB's
    mixture of experts) leave that flag of their self-attention unset; their mask says it then.
    """
    named = is_named_cross(module)
    if named is not None:
        return named
    return bool(getattr(module, "is_decoder", False)) and not getattr(module, "is_causal", True)


def mentions(module: nn.Module, word: str) -> bool:
    """Does the module's own code hold that very word: a name, or a string (in a getattr)?"""
    cls = type(module)
    if cls not in _WORDS:
        codes = [function.__code__ for function in _functions(cls)]
        strings = {x for code in codes for x in code.co_consts if isinstance(x, str)}
        _WORDS[cls] = frozenset(strings.union(*map(_names, codes)))
    return word in _WORDS[cls]


def _functions(cls: type) -> Iterator[FunctionType]:
    """What runs in a call: the functions of a class and its bases, without decorators."""
    for base in cls.__mro__:
        if base in (nn.Module, object):
            continue
        for name, member in vars(base).items():
            function = inspect.unwrap(member) if callable(member) else None
            if isinstance(function, FunctionType) and name != "__init__":
                yield function


def _names(code: CodeType) -> Iterator[str]:
    """Globals and attributes a piece of code mentions, inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
