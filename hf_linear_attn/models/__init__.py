"""Models on the one trunk, and their registration with Transformers' Auto classes."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.cosformer import (
    CosformerConfig,
    CosformerForCausalLM,
    CosformerForMaskedLM,
    CosformerModel,
)
from hf_linear_attn.models.linear_transformer import (
    LinearTransformerConfig,
    LinearTransformerForCausalLM,
    LinearTransformerForMaskedLM,
    LinearTransformerModel,
)
from hf_linear_attn.models.softmax import (
    SoftmaxConfig,
    SoftmaxForCausalLM,
    SoftmaxForMaskedLM,
    SoftmaxModel,
)

CONFIG_CLASSES: dict[str, type[LinearAttnConfig]] = {
    "cosformer": CosformerConfig,
    "linear_transformer": LinearTransformerConfig,
    "softmax": SoftmaxConfig,
}
"""Config of each variant, by the word the recipes take for `--attention`."""

_MODELS = {
    AutoModel: (CosformerModel, LinearTransformerModel, SoftmaxModel),
    AutoModelForCausalLM: (CosformerForCausalLM, LinearTransformerForCausalLM, SoftmaxForCausalLM),
    AutoModelForMaskedLM: (CosformerForMaskedLM, LinearTransformerForMaskedLM, SoftmaxForMaskedLM),
}


def register_auto_classes() -> None:
    """Make `AutoModel.from_pretrained` and its like know our models; called on import."""
    for config in CONFIG_CLASSES.values():
        AutoConfig.register(config.model_type, config, exist_ok=True)
    for auto_class, models in _MODELS.items():
        for model in models:
            auto_class.register(model.config_class, model, exist_ok=True)


__all__ = [
    "CONFIG_CLASSES",
    "CosformerConfig",
    "CosformerForCausalLM",
    "CosformerForMaskedLM",
    "CosformerModel",
    "LinearAttnConfig",
    "LinearTransformerConfig",
    "LinearTransformerForCausalLM",
    "LinearTransformerForMaskedLM",
    "LinearTransformerModel",
    "SoftmaxConfig",
    "SoftmaxForCausalLM",
    "SoftmaxForMaskedLM",
    "SoftmaxModel",
    "register_auto_classes",
]
