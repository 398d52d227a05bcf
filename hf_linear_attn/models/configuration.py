"""The config of the one trunk: its fields, what they may hold, and how open ones are settled."""

import copy
import dataclasses
from typing import Any, ClassVar, Literal, Self

from hf_linear_attn.attention.registry import attention_fields, get_attention
from hf_linear_attn.models.cache import LAYER_TYPES
from hf_linear_attn.models.config_checks import (
    check_config,
    check_first,
    check_keywords,
    check_types,
    refuse_unknown,
)
from hf_linear_attn.models.peft_defaults import tell_peft
from hf_linear_attn.models.with_code import ConfigWithCode


class LinearAttnConfig(ConfigWithCode):
    """Config of the trunk shared by all models; the variants add the fields of their mechanism.

    Defaults give an encoder of RoBERTa-base's shape or a decoder of GPT-2's smallest. A field left
    at None is settled when a model is built, in a copy of the config; the settled values are what
    is saved.

    Args:
        vocab_size: number of token ids.
        hidden_size: width of the trunk.
        num_hidden_layers: number of blocks.
        num_attention_heads: query heads.
        num_key_value_heads: key/value heads, a divisor of num_attention_heads; None = as many.
        head_dim: size of a head; None = hidden_size / num_attention_heads.
        intermediate_size: inner width of the MLP.
        hidden_act: activation of the MLP and of the output layer's transform (Transformers' name).
        mlp_type: "mlp" (up, activation, down) or "glu" (down(act(gate) · up)).
        glu_act: activation of the gate where it is not hidden_act; "glu" only.
        norm_type: "layernorm", "rmsnorm" or "srmsnorm" (RMS norm without weights).
        norm_position: "post" (after the residual, RoBERTa) or "pre" (GPT-2); None = "post" for
            encoders, "pre" for decoders.
        norm_eps: added to the variance or mean square inside the root.
        embedding_norm: norm after the embeddings; None = yes for encoders, no for decoders.
        final_norm: norm after the last block; None = with norm_position "pre" only.
        qk_norm: RMS norm of queries and keys over head_dim.
        position_embedding_type: "learned", "sinusoidal" (with token embeddings times √hidden_size),
            "rope", "lrpe" or "none".
        max_position_embeddings: usable tokens of a learned table; positions start at 0.
        rope_parameters: {"rope_type": "default", "rope_theta": float}; or rope_type "linear" or
            "llama3" with the fields these have in Transformers. "rope" only.
        type_vocab_size: number of token types; 0 = none.
        attention_bias: biases in the attention projections.
        mlp_bias: biases in the MLP.
        lm_head_transform: dense, activation and norm before the output layer (RoBERTa); None = yes
            for encoders, no for decoders.
        logit_scale: factor on the logits, or None.
        hidden_dropout_prob: dropout after embeddings, attention and MLP.
        attention_probs_dropout_prob: dropout on attention weights; layers with a softmax or with
            block attention only.
        pooling: real token that sequence classification and multiple choice read: "first", "last"
            or the "mean" of all; None = "first" for encoders, "last" for decoders.
        classifier_dropout: dropout in the heads of classification and multiple choice; None =
            hidden_dropout_prob.
        initializer_range: standard deviation of the initial weights.
        is_decoder: attention is causal; None = decided by the model class: yes for a causal LM, no
            for the others.
        use_cache: a decoder returns a cache outside training; an encoder has none.
        tie_word_embeddings: output layer and embeddings share their weight.
        layer_attention: a registry name, or one per layer; None = the variant's mechanism.
        attention_kwargs: {registry name: {field: value}} for other mechanisms of a hybrid.
        chunk_size: tokens handled at once in causal and packed linear attention.
        attention_eps: lower bound of the normaliser of linear attention.
        pad_token_id, bos_token_id, eos_token_id: special tokens.
        **kwargs: what Transformers passes on loading; anything else raises.

    Raises:
        ValueError: an unknown keyword (the nearest name is proposed), a wrong type or value.
    """

    # Beside the fields, and not among them: equal configs are equal however they came about.
    __slots__ = ("_given",)
    model_type = "linear_attn"
    default_attention: ClassVar[str] = ""
    """registry name of the variant's mechanism"""
    own_attention: ClassVar[tuple[str, ...]] = ()
    """names of further mechanisms that read the variant's own fields"""
    default_theta: ClassVar[float] = 10000.0

    vocab_size: int = 50265
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    mlp_type: Literal["mlp", "glu"] = "mlp"
    glu_act: str | None = None
    norm_type: Literal["layernorm", "rmsnorm", "srmsnorm"] = "layernorm"
    norm_position: Literal["post", "pre"] | None = None
    norm_eps: float | int = 1e-5
    embedding_norm: bool | None = None
    final_norm: bool | None = None
    qk_norm: bool = False
    position_embedding_type: Literal["learned", "sinusoidal", "rope", "lrpe", "none"] = "learned"
    max_position_embeddings: int = 512
    rope_parameters: dict[str, Any] | None = None
    type_vocab_size: int = 0
    attention_bias: bool = True
    mlp_bias: bool = True
    lm_head_transform: bool | None = None
    logit_scale: float | int | None = None
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.0
    pooling: Literal["first", "last", "mean"] | None = None
    classifier_dropout: float | int | None = None
    initializer_range: float | int = 0.02
    is_decoder: bool | None = None
    use_cache: bool = True
    tie_word_embeddings: bool = True
    layer_attention: str | list[str] | None = None
    attention_kwargs: dict[str, dict[str, Any]] | None = None
    chunk_size: int = 64
    attention_eps: float | int = 1e-6
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember which fields the caller names."""
        made = super().__new__(cls)
        made._given = frozenset(kwargs)
        return made

    def __post_init__(self, **kwargs):
        refuse_unknown(self, kwargs)
        check_first(self)
        rope = self.rope_parameters
        check_types(self)
        check_keywords(kwargs)
        super().__post_init__(**kwargs)
        # Transformers fills rope_parameters whether or not the model rotates anything.
        if self.position_embedding_type != "rope":
            self.rope_parameters = rope
        self.check()
        # From now on what is set is the caller's doing; so far defaults were.
        self._given = set(self._given)

    def __setattr__(self, name: str, value: Any) -> None:
        # Refused here and not only on loading: what can be set can be saved, and what was saved
        # must load.
        if not (name.startswith("_") or hasattr(type(self), name)):
            refuse_unknown(self, [name])
        super().__setattr__(name, value)
        if isinstance(self._given, set) and not name.startswith("_"):
            self._given.add(name)

    def __getstate__(self) -> dict[str, Any]:
        """Everything, for pickles of any protocol."""
        return {**self.__dict__, "_given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Undo `__getstate__`."""
        self._given = state["_given"]
        self.__dict__.update({k: v for k, v in state.items() if k != "_given"})

    @property
    def given_fields(self) -> set[str]:
        """Fields that the caller named or set; the others stand at their defaults.

        A config that was loaded has all the fields of its file.
        """
        return {name for name in self._given if hasattr(self, name)}

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in Transformers, but a keyword that is no field raises, and values are checked.

        The config of a foreign checkpoint, or of another variant, gives the fields of the trunk.

        Raises:
            ValueError: an unknown field, or a value that is refused.
        """
        wants_unused = kwargs.pop("return_unused_kwargs", False)
        model_type = config_dict.get("model_type", cls.model_type)
        if model_type != cls.model_type and cls.default_attention:
            from hf_linear_attn.models.foreign_config import translated

            config_dict = translated(config_dict, cls)
        loaded: Any = super().from_dict(config_dict, **kwargs, return_unused_kwargs=True)
        config, unused = loaded
        config.check()
        if wants_unused:
            return config, unused
        refuse_unknown(config, unused)
        return config

    def settle(self, *, is_decoder: bool | None = None) -> Self:
        """A deep copy in which every open field has its value.

        Args:
            is_decoder: what the model class is; None = what the config says, an encoder if it
                leaves that open.

        Raises:
            ValueError: the config says otherwise, or holds a value that is refused.
        """
        config = copy.deepcopy(self)
        if is_decoder is None:
            is_decoder = bool(config.is_decoder)
        if config.is_decoder not in (None, is_decoder):
            raise ValueError(
                f"the config has is_decoder={config.is_decoder}, the model class is for "
                f"is_decoder={is_decoder}. Leave it at None, or use another class."
            )
        config.is_decoder = is_decoder
        for name, value in self.open_defaults(is_decoder).items():
            if getattr(config, name) is None:
                setattr(config, name, value)
        config.check()
        return config

    def open_defaults(self, is_decoder: bool) -> dict[str, Any]:
        """What fields left at None become; a variant may change some.

        Args:
            is_decoder: what the model is.
        """
        norm_position = self.norm_position or ("pre" if is_decoder else "post")
        return {
            "norm_position": norm_position,
            "embedding_norm": not is_decoder,
            "final_norm": norm_position == "pre",
            "lm_head_transform": not is_decoder,
            "num_key_value_heads": self.num_attention_heads,
            "head_dim": self.hidden_size // self.num_attention_heads,
            "layer_attention": self.default_layers(),
            "pooling": "last" if is_decoder else "first",
        }

    def default_layers(self) -> str | list[str]:
        """What layer_attention is where it is not given."""
        return self.default_attention

    def is_own(self, name: str) -> bool:
        """Does the mechanism `name` read the variant's own fields?"""
        return name == self.default_attention or name in self.own_attention

    @property
    def attention_names(self) -> list[str]:
        """Registry name of each layer's mechanism."""
        names = self.default_layers() if self.layer_attention is None else self.layer_attention
        return [names] * self.num_hidden_layers if isinstance(names, str) else list(names)

    @property
    def layer_types(self) -> list[str] | None:
        """What Transformers' caches keep for each layer; derived, never stored.

        None in an encoder.
        """
        names = self.attention_names
        if self.is_decoder is False or not all(names):
            return None
        return [LAYER_TYPES[get_attention(name).cache_kind] for name in names]

    def attention_settings(self, name: str) -> dict[str, Any]:
        """Fields of the mechanism `name` in this model: its constructor's keywords.

        The trunk's fields go to every mechanism that reads them, the variant's own ones to the
        variant's mechanism, `attention_kwargs` to the others.
        """
        trunk = {field.name for field in dataclasses.fields(LinearAttnConfig)}
        own = {field.name for field in dataclasses.fields(self)}
        visible = own if self.is_own(name) else trunk
        settings = {f: getattr(self, f) for f in attention_fields(name) if f in visible}
        return settings | (self.attention_kwargs or {}).get(name, {})

    def check(self) -> None:
        """Look at every field; called when the config is made and again when a model is built.

        Raises:
            ValueError: names the field, what it holds and what is accepted.
        """
        check_config(self)

    def to_dict(self) -> dict[str, Any]:
        """As in Transformers; PEFT, which calls it first, gets to know the model type."""
        tell_peft(self.model_type)
        return super().to_dict()

    def validate(self) -> None:
        """Called by Transformers before saving, whose own checks know only its own layer types."""
        self.check()
