"""The config of a Long Range Arena classifier: a trunk's config and the fields of the head."""

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from transformers import AutoConfig, PreTrainedConfig

from hf_linear_attn.models.config_checks import (
    check_calls,
    check_keywords,
    check_types,
    refuse_unknown,
)
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.cosformer import CosformerConfig
from hf_linear_attn.models.linear_transformer import LinearTransformerConfig
from hf_linear_attn.models.nystrom import NystromConfig
from hf_linear_attn.models.peft_defaults import tell_peft
from hf_linear_attn.models.softmax import SoftmaxConfig
from hf_linear_attn.models.transnormer import TransNormerConfig
from hf_linear_attn.models.with_code import ConfigWithCode

_TOWERS = {None: 1, "concat": 2, "nli": 2}
_CHOICES = {
    "pooling": ("cls", "first", "mean"),
    "interaction": tuple(_TOWERS),
    "initialization": ("xavier", "torch"),
}

# Fields of the trunk that Trainer, DeepSpeed and others ask for or set in the outermost config.
_OF_THE_TRUNK = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "use_cache",
    "tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id",
)  # fmt: skip

# Not by the Auto classes, which do not know code that came with a model.
_TRUNK_CONFIGS: tuple[type[LinearAttnConfig], ...] = (
    CosformerConfig,
    LinearTransformerConfig,
    NystromConfig,
    SoftmaxConfig,
    TransNormerConfig,
)


class LraConfig(ConfigWithCode):
    """Config of a Long Range Arena classifier: a trunk's config and the fields of the head.

    Args:
        trunk: config of the encoder, or its fields as a mapping with `model_type`.
        task: name of the task, such as "listops".
        preset: name of the protocol, such as "official".
        pooling: what the head reads: "cls" = the output at a zero-initialised vector put before the
            sequence, "first" = at the first token, "mean" = the mean over real tokens.
        interaction: None for one sequence; for two towers "concat" = [a, b] or "nli" =
            [a, b, a·b, a − b].
        head_layers: hidden layers of the head, each with a ReLU; the first is as wide as the
            trunk's MLP, each further one half of the one before.
        initialization: "xavier" = Xavier-uniform weights, token embeddings N(0, 1); "torch" =
            PyTorch's default for linear layers, token embeddings N(0, 0.02²). Biases are 0 under
            the first.
        **kwargs: what Transformers passes on loading, such as id2label.

    Raises:
        ValueError: an unknown keyword, a value that is not accepted, or a trunk that is none of
            this package or a decoder.
    """

    model_type = "linear_attn_lra"
    models_module = "lra"
    # Transformers makes a property of it where defaults of the parts are declared; ours has none.
    sub_configs: ClassVar[dict[str, Any]] = {"trunk": AutoConfig}  # pyright: ignore

    trunk: dict[str, Any] | PreTrainedConfig | None = None
    task: str = "listops"
    preset: str = "official"
    pooling: Literal["cls", "first", "mean"] = "cls"
    interaction: Literal["concat", "nli"] | None = None
    head_layers: int = 1
    initialization: Literal["xavier", "torch"] = "xavier"

    def __post_init__(self, **kwargs: Any) -> None:
        if isinstance(self.trunk, Mapping):
            self.trunk = _trunk_config(dict(self.trunk))
        self._check_trunk()
        refuse_unknown(self, kwargs, _OF_THE_TRUNK)
        check_keywords(kwargs)
        super().__post_init__(**kwargs)
        self.check()

    def __getattr__(self, name: str) -> Any:
        if name in _OF_THE_TRUNK and self.trunk is not None:
            return getattr(self.trunk, name)
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OF_THE_TRUNK and self.trunk is not None:
            setattr(self.trunk, name, value)
            return
        # As in the trunk's configs: what can be set can be saved, and what was saved must load.
        if not (name.startswith("_") or hasattr(type(self), name)):
            refuse_unknown(self, [name])
        super().__setattr__(name, value)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in Transformers, but a keyword that is no field raises, and values are checked.

        Raises:
            ValueError: the config of another type, an unknown field, or a value that is refused.
        """
        wants_unused = kwargs.pop("return_unused_kwargs", False)
        model_type = config_dict.get("model_type", cls.model_type)
        if model_type != cls.model_type:
            raise ValueError(
                f"the config is of type {model_type!r}; expected {cls.model_type!r}. Whoever has "
                "a trunk puts its config into that of a classifier: LraConfig(trunk=…)."
            )
        loaded: Any = super().from_dict(config_dict, **kwargs, return_unused_kwargs=True)
        config, unused = loaded
        config.check()
        if wants_unused:
            return config, unused
        refuse_unknown(config, unused, _OF_THE_TRUNK)
        return config

    def check(self) -> None:
        """Look at every field; called when the config is made and again when a model is built.

        Raises:
            ValueError: names the field, what it holds and what is accepted.
        """
        for name, accepted in _CHOICES.items():
            if getattr(self, name) not in accepted:
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected one of {accepted}")
        if self.problem_type not in (None, "single_label_classification"):
            raise ValueError(
                f"problem_type is {self.problem_type!r}; these models give an example one of two "
                "or more classes: leave it at None"
            )
        check_types(self)
        check_calls(self)
        self._check_trunk()
        self._check_head()

    def _check_trunk(self) -> None:
        if self.trunk is None:
            return
        if not isinstance(self.trunk, LinearAttnConfig):
            raise ValueError(
                f"trunk: got {_named(self.trunk)}, expected the config of an encoder of this "
                "package, or its fields as a mapping with model_type"
            )
        if self.trunk.is_decoder:
            raise ValueError(
                "the trunk of a Long Range Arena model is an encoder; got is_decoder=True"
            )
        self.trunk.check()

    def _check_head(self) -> None:
        if self.head_layers < 1:
            raise ValueError(f"head_layers: got {self.head_layers}, expected 1 or more")
        if self.trunk is None:
            return
        # Each layer has half the width of the one before it.
        most = self.encoder.intermediate_size.bit_length()
        if self.head_layers > most:
            raise ValueError(
                f"head_layers: got {self.head_layers}, expected {most} at most: the first is as "
                f"wide as the trunk's MLP ({self.encoder.intermediate_size}), each further one "
                "half of the one before"
            )

    def settle(self) -> Self:
        """A deep copy, checked, in which every open field of the trunk has its value.

        Raises:
            ValueError: there is no trunk, or a value that is refused.
        """
        config = copy.deepcopy(self)
        config.check()
        config.trunk = config.encoder.settle(is_decoder=False)
        return config

    def to_dict(self) -> dict[str, Any]:
        """As in Transformers; PEFT, which calls it first, gets to know the model type."""
        tell_peft(self.model_type)
        return super().to_dict()

    def validate(self) -> None:
        """Called by Transformers before saving."""
        self.check()

    def get_text_config(self, decoder: Any = None, encoder: Any = None) -> Any:
        """The trunk's config, which has the vocabulary; where there is none this one."""
        return self if self.trunk is None else self.encoder

    @property
    def encoder(self) -> LinearAttnConfig:
        """The trunk's config.

        Raises:
            ValueError: there is none.
        """
        if not isinstance(self.trunk, LinearAttnConfig):
            raise ValueError(f"trunk: expected the config of an encoder, got {self.trunk!r}")
        return self.trunk

    @property
    def attention_names(self) -> list[str]:
        """Registry name of each layer's mechanism."""
        return self.encoder.attention_names

    @property
    def towers(self) -> int:
        """Sequences in an example."""
        return _TOWERS[self.interaction]


def _trunk_config(fields: dict[str, Any]) -> PreTrainedConfig:
    if "model_type" not in fields:
        known = ", ".join(config.model_type for config in _TRUNK_CONFIGS)
        raise ValueError(f"trunk: the mapping has no model_type; known: {known}")
    model_type = fields.pop("model_type")
    own = next((config for config in _TRUNK_CONFIGS if config.model_type == model_type), None)
    return AutoConfig.for_model(model_type, **fields) if own is None else own(**fields)


def _named(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, PreTrainedConfig) else repr(value)
