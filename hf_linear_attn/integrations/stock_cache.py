"""A cache of constant size for stock decoders.

Where a model hands the keywords of its attention call to `cache.update` as well, a cache layer can
put itself among them. It returns the new keys and values alone, and the attention function, which
finds the layer, attends to what came before through the layer's state.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import Cache

from hf_linear_attn.attention.base import Attention
from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.integrations.stock_fields import STOCK_NAMES, given_fields, stock_mechanism
from hf_linear_attn.integrations.stock_positions import note_queries
from hf_linear_attn.models.cache import StateLayer
from hf_linear_attn.models.cache_step import count_on
from hf_linear_attn.models.token_layout import token_keywords

HANDED = "linear_attn_layer"
"""The keyword under which a layer reaches the attention function."""

_SHAPE = (
    "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
    "head_dim",
)  # fmt: skip


def _signature(config: Any) -> dict[str, Any]:
    """What two configs must share for a cache of one to fit a model of the other."""
    signature = {name: getattr(config, name, None) for name in _SHAPE}
    name = config._attn_implementation
    signature |= {"attn_implementation": name, "attention": given_fields(name, config)}
    return signature


class StockStateLayer(StateLayer):
    """State of one layer of a stock model; see `StateLayer`.

    Args:
        config: of the model.
    """

    _layer_type = "linear_attn_stock_state"

    def __init__(self, config: Any):
        super().__init__()
        self.config = config
        self.signature = _signature(config)
        self.handed_over = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "StockStateLayer":
        # A copy belongs to the same model, whose config may yet change.
        memo[id(self.config)] = self.config
        return cast(StockStateLayer, super().__deepcopy__(memo))

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """The new keys and values as they are; the layer goes with the call's keywords.

        Args:
            key_states, value_states: (batch, kv_heads, new tokens, head_dim).
            args: not read.
            kwargs: "kwargs", the dict of keywords that the attention function will get.

        Raises:
            ValueError: the model does not pass it, or did not call one of our functions with it.
        """
        keywords = kwargs.get("kwargs")
        if not isinstance(keywords, dict):
            raise ValueError(
                "LinearStateCache cannot be used with this model: its attention does not hand its "
                "keywords to cache.update (kwargs=kwargs). Leave the cache out: the ordinary one "
                "(DynamicCache) gives the same results and grows with the text."
            )
        if self.handed_over or self.config._attn_implementation not in STOCK_NAMES:
            raise self.not_taken()
        self.handed_over = True
        keywords[HANDED] = self
        return key_states, value_states

    def not_taken(self) -> ValueError:
        """The refusal of a model that would leave what the layer holds aside."""
        return ValueError(
            "LinearStateCache was filled, but no attention of this package took its state: the "
            "model runs another attn_implementation, or a call broke off. Load it with "
            f"attn_implementation={self.signature['attn_implementation']!r} and begin with a "
            "new cache."
        )

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.handed_over = False

    def attend(
        self, mechanism: Attention, module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
        mask: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Causal attention of the new tokens to themselves and to all before.

        Args:
            mechanism: of the layer.
            module: the attention module.
            query, key, value: of the new tokens, (batch, heads or kv_heads, new, head_dim).
            mask: bool (batch, past + new), True = real token, or None.

        Raises:
            ValueError: the cache is another model's, its tokens are not the mask's, or the keys
                were attended to already.
        """
        if not self.handed_over:
            raise ValueError(
                f"LinearStateCache cannot be used with this model: {type(module).__name__} calls "
                "attention more than once for the keys of one update of the cache. Leave the cache "
                "out: the ordinary one (DynamicCache) gives the same results and grows with the "
                "text."
            )
        self._check_model(module)
        batch, new = query.shape[0], query.shape[2]
        if self.seen is not None and self.seen.real_tokens.shape[0] != batch:
            raise ValueError(
                f"the cache holds {self.seen.real_tokens.shape[0]} rows, the input has {batch}."
            )
        real = self._new_tokens(mask)
        first = None if self.seen is None else self.seen.next_position
        tokens = token_keywords(real, None, None, (batch, new), query.device, first=first)
        positions = tokens["query_positions"]
        assert positions is not None
        positions = positions.expand(batch, -1)
        if mechanism.uses_positions:
            note_queries(module.config, positions)
        out, state = mechanism(
            query, key, value, causal=True, key_mask=real, query_positions=positions,
            state=self.state,
        )  # fmt: skip
        assert state is not None
        self.advance(state, count_on(self.seen, real, positions), new)
        self.handed_over = False
        return out

    def _check_model(self, module: nn.Module) -> None:
        found = _signature(module.config)
        for name, value in self.signature.items():
            if found[name] != value:
                raise ValueError(
                    f"LinearStateCache was made for another model: {name} is {value!r} there and "
                    f"{found[name]!r} here. Use LinearStateCache(model.config)."
                )

    def _new_tokens(self, mask: Tensor | None) -> Tensor | None:
        """Which new tokens are real; the old ones must be those the state was made of."""
        if mask is None:
            return None
        past = self.seq_length
        message = "attention_mask is not that of the tokens in the cache"
        if self.seen is not None and any_wrong(
            mask[:, :past].sum(1) != self.seen.real_tokens, message
        ):
            raise ValueError(
                f"{message}: it has {mask[:, :past].sum(1).tolist()} real tokens where the cache "
                f"was filled with {self.seen.real_tokens.tolist()}. Pass the mask with the first "
                "call and with every later one."
            )
        new = mask[:, past:]
        return None if not torch.compiler.is_compiling() and bool(new.all()) else new


class LinearStateCache(Cache):
    """Constant-size decoding for stock models: `generate(cache=LinearStateCache(model.config))`.

    What it holds of a layer does not grow with the text: a recurrent state, or for
    transnormer_diag the current block. The model must be a decoder that runs with one of our
    causal `attn_implementation`s and hands its keywords to the cache (GPT-2, Llama, OPT, … do).

    Args:
        config: the model's.

    Raises:
        ValueError: the config's attention has no state, or the model is an encoder-decoder.
    """

    def __init__(self, config: Any):
        config = config.get_text_config(decoder=True)
        name = config._attn_implementation
        if name not in STOCK_NAMES:
            raise ValueError(
                f"LinearStateCache is for attn_implementation of this package "
                f"({', '.join(STOCK_NAMES)}); the config has {name!r}. Pass model.config of the "
                "loaded model, or use DynamicCache."
            )
        if config.is_encoder_decoder:
            raise ValueError(
                f"LinearStateCache is for decoders alone; {type(config).__name__} belongs to an "
                "encoder-decoder model, whose cross-attention keeps keys. Leave the cache out."
            )
        mechanism = stock_mechanism(name, config)
        if not mechanism.supports_causal:
            raise ValueError(mechanism.no_causal_form())
        other = set(getattr(config, "layer_types", None) or []) - {"full_attention"}
        if other:
            raise ValueError(
                f"LinearStateCache is for models whose layers all attend to the whole text; "
                f"{type(config).__name__} has layers of another kind ({', '.join(sorted(other))}), "
                "with states of their own. Leave the cache out."
            )
        layers: list[Any] = [StockStateLayer(config) for _ in range(config.num_hidden_layers)]
        super().__init__(layers=layers)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """See `StockStateLayer.update`.

        Raises:
            ValueError: an earlier call broke off between the layers, there are too few, or the
                layer before was handed to a model whose attention did not take it.
        """
        layers = cast(list[StockStateLayer], self.layers)
        if layer_idx >= len(layers):
            raise ValueError(
                f"LinearStateCache was made for a model of {len(layers)} layers. Use "
                "LinearStateCache(model.config)."
            )
        before = next((x for i, x in enumerate(layers) if x.handed_over and i != layer_idx), None)
        if before is not None:
            raise before.not_taken()
        lengths = {layer.get_seq_length() for layer in layers}
        if layer_idx == 0 and len(lengths) > 1:
            raise ValueError(
                f"the layers of the cache hold different numbers of tokens ({sorted(lengths)}): a "
                "call broke off between them. Begin with a new cache, or an earlier copy."
            )
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)
