"""Name → mechanism: the words of a config's `layer_attention`."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from hf_linear_attn.attention.base import Attention
from hf_linear_attn.attention.cosformer import CosformerAttention
from hf_linear_attn.attention.linear_transformer import LinearTransformerAttention
from hf_linear_attn.attention.nystrom import NystromAttention
from hf_linear_attn.attention.softmax import SoftmaxAttention
from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.attention.transnormer import (
    TransNormerDiagAttention,
    TransNormerNormAttention,
)

ATTENTION: dict[str, type[Attention]] = {
    "softmax": SoftmaxAttention,
    "linear_transformer": LinearTransformerAttention,
    "cosformer": CosformerAttention,
    "transnormer_norm": TransNormerNormAttention,
    "transnormer_diag": TransNormerDiagAttention,
    "nystrom": NystromAttention,
}


def register_attention(name: str, mechanism: type[Attention]) -> None:
    """Make a mechanism of your own available under a name in `layer_attention`.

    Args:
        name: lower-case identifier, not yet taken.
        mechanism: subclass of `Attention`; its constructor's keywords are config fields.

    Raises:
        ValueError: the name is taken or no identifier, or the class is no `Attention`.
    """
    if not (name.isidentifier() and name.islower()):
        raise ValueError(f"attention name {name!r} must be a lower-case identifier.")
    if ATTENTION.get(name, mechanism) is not mechanism:
        raise ValueError(
            f"attention name {name!r} is taken by {ATTENTION[name].__name__}; choose another."
        )
    if not (inspect.isclass(mechanism) and issubclass(mechanism, Attention)):
        raise ValueError(f"{mechanism!r} is not a subclass of hf_linear_attn.attention.Attention.")
    ATTENTION[name] = mechanism


def get_attention(name: str) -> type[Attention]:
    """The mechanism of that name.

    Raises:
        ValueError: no such name; the nearest one is proposed.
    """
    if name in ATTENTION:
        return ATTENTION[name]
    hint = did_you_mean(name, ATTENTION)
    raise ValueError(f"unknown attention {name!r}; known: {', '.join(sorted(ATTENTION))}.{hint}")


def attention_fields(name: str) -> set[str]:
    """The config fields a mechanism reads: the keywords of its constructor."""
    keywords = inspect.signature(get_attention(name)).parameters
    return set(keywords) - {"config", "rotary", "check_inputs", "attn_implementation"}


def check_fields(name: str, given: Iterable[str]) -> None:
    """Refuse fields that the mechanism of that name does not read.

    Raises:
        ValueError: names the first such field and the nearest known one.
    """
    known = attention_fields(name)
    for field in given:
        if field not in known:
            hint = did_you_mean(field, known)
            raise ValueError(
                f"attention {name!r} has no field {field!r}; known: "
                f"{', '.join(sorted(known))}.{hint}"
            )


def build_attention(
    name: str,
    fields: Mapping[str, Any],
    *,
    config: Any = None,
    rotary: nn.Module | None = None,
    check_inputs: bool = True,
) -> Attention:
    """A mechanism from its registry name and its fields.

    Args:
        name: registry name.
        fields: constructor keywords; one that is missing keeps its default.
        config: handed on to a mechanism that asks for it (softmax reads its attn_implementation).
        rotary, check_inputs: see `Attention`.

    Raises:
        ValueError: an unknown name or field, or a value the mechanism refuses.
    """
    check_fields(name, fields)
    mechanism, extra = get_attention(name), {}
    if "config" in inspect.signature(mechanism).parameters:
        extra["config"] = config
    return mechanism(rotary=rotary, check_inputs=check_inputs, **extra, **fields)
