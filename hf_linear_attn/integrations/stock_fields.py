"""From the config of a stock model to the mechanism that runs in it.

A stock config has no fields of ours. What a mechanism takes is read from two places: `cos_horizon`
(cosFormer's M) and `attention_kwargs`, {name: {field: value}} with the words and the refusals of
our own configs. Mechanisms have no parameters here, so one object serves every layer and model
with the same values.
"""

from typing import Any

import torch
from transformers.utils import logging

from hf_linear_attn.attention.base import Attention
from hf_linear_attn.attention.cosformer import CosformerAttention
from hf_linear_attn.attention.registry import build_attention, check_fields, get_attention
from hf_linear_attn.models.config_checks import check_mechanism_types

logger = logging.get_logger(__name__)

STOCK_NAMES = (
    "cosformer",
    "linear_transformer",
    "transnormer_norm",
    "transnormer_diag",
    "nystrom",
)
"""Values of `attn_implementation` that this package adds."""

LONG_HORIZON = 4096
"""An inherited horizon from which on short inputs are warned about. Position tables of up to 2,048
tokens are commonly filled; longer ones belong to models that are mostly run on less."""

_BUILT: dict[tuple[Any, ...], Attention] = {}


def stock_mechanism(name: str, config: Any, dropout: float = 0.0) -> Attention:
    """The mechanism of that name with the fields a stock config gives it.

    Args:
        name: one of `STOCK_NAMES`.
        config: config of the model, or of its part, that the attention module belongs to.
        dropout: probability for attention weights, 0 outside training; read by mechanisms that
            have weights.

    Raises:
        ValueError: a field that is unknown, of another type, refused, or that needs parameters; no
            horizon.
    """
    given = given_fields(name, config)
    key = (name, dropout, *sorted(given.items()))
    try:
        found = _BUILT.get(key)
    except TypeError:
        raise ValueError(
            f"attention_kwargs[{name!r}] holds numbers and words; got {given}."
        ) from None
    if found is None:
        found = _BUILT[key] = _build(name, given, dropout)
    return found


def given_fields(name: str, config: Any) -> dict[str, Any]:
    """What a stock config says of a mechanism; what it leaves open keeps the mechanism's default.

    Raises:
        ValueError: attention_kwargs of another form or for another name, or no horizon.
    """
    kwargs = getattr(config, "attention_kwargs", None) or {}
    if not isinstance(kwargs, dict) or not all(isinstance(x, dict) for x in kwargs.values()):
        raise ValueError(
            "config.attention_kwargs is {attention name: {field: value}}; got " + repr(kwargs)
        )
    given = dict(kwargs.get(name, {}))
    for other in kwargs:
        if other not in STOCK_NAMES:
            get_attention(other)
            raise ValueError(
                f"config.attention_kwargs has settings for {other!r}, which no stock model runs; "
                f"known: {', '.join(STOCK_NAMES)}."
            )
    if name == "cosformer" and given.get("cos_reweighting", True):
        given["cos_horizon"] = _horizon(config, given)
    return given


def _horizon(config: Any, given: dict[str, Any]) -> Any:
    """M: config.cos_horizon, else the number of positions the model was made for."""
    own, inner = getattr(config, "cos_horizon", None), given.get("cos_horizon")
    if None not in (own, inner) and own != inner:
        raise ValueError(
            f"config.cos_horizon is {own!r}, attention_kwargs['cosformer'] has {inner!r}; give "
            "one of them."
        )
    chosen = inner if own is None else own
    if chosen is None:
        chosen = given.get("max_position_embeddings", inherited_horizon(config))
    if chosen is None:
        raise ValueError(
            f"cosformer needs a horizon: {type(config).__name__} has no max_position_embeddings. "
            "Choose N, at least the number of tokens of the longest input (or 'length', each "
            "row's own, in an encoder):\n"
            "    config = AutoConfig.from_pretrained(path)\n"
            "    config.cos_horizon = N\n"
            "    model = AutoModel.from_pretrained(path, config=config, "
            "attn_implementation='cosformer')"
        )
    return chosen


def inherited_horizon(config: Any) -> int | None:
    """What M is where nobody chose it."""
    return getattr(config, "max_position_embeddings", None)


def _build(name: str, given: dict[str, Any], dropout: float) -> Attention:
    check_fields(name, given)
    if "attention_probs_dropout_prob" in given:
        raise ValueError(
            f"attention_kwargs[{name!r}] sets attention_probs_dropout_prob, but a stock model "
            "brings its own attention dropout; change it in the model's config."
        )
    check_mechanism_types(name, given)
    fields = dict(given)
    if get_attention(name).supports_dropout:
        fields["attention_probs_dropout_prob"] = dropout
    mechanism = build_attention(name, fields)
    if mechanism.has_parameters:
        raise ValueError(
            f"attention_kwargs[{name!r}] asks for parameters ({', '.join(sorted(given))}), and "
            "stock models have no place for them: leave conv_kernel_size out, or use NystromConfig."
        )
    return mechanism.train(dropout > 0)


def warn_of_flat_weights(mechanism: Attention, config: Any, length: int) -> None:
    """Say once that a horizon nobody chose makes cosFormer nearly plain ReLU attention.

    With no distance above a quarter of M every weight is above cos(π/8) = 0.92.
    """
    if not isinstance(mechanism, CosformerAttention) or not mechanism.cos_reweighting:
        return
    horizon = mechanism.cos_horizon
    chosen = getattr(config, "cos_horizon", None) is not None or horizon != inherited_horizon(
        config
    )
    if torch.compiler.is_compiling():  # a graph cannot speak
        return
    if chosen or not isinstance(horizon, int) or horizon < LONG_HORIZON or length > horizon // 4:
        return
    logger.warning_once(
        f"cosFormer's horizon is max_position_embeddings = {horizon}, the input has {length} "
        "tokens: every weight lies above 0.92, so distance hardly counts. Set config.cos_horizon "
        "to about the length of the inputs."
    )
