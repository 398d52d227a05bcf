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
from hf_linear_attn.models.nystrom import NystromConfig, NystromForMaskedLM, NystromModel
from hf_linear_attn.models.softmax import (
    SoftmaxConfig,
    SoftmaxForCausalLM,
    SoftmaxForMaskedLM,
    SoftmaxModel,
)
from hf_linear_attn.models.transnormer import (
    TransNormerConfig,
    TransNormerForCausalLM,
    TransNormerForMaskedLM,
    TransNormerModel,
)

CONFIG_CLASSES: dict[str, type[LinearAttnConfig]] = {
    "cosformer": CosformerConfig,
    "transnormer": TransNormerConfig,
    "nystrom": NystromConfig,
    "linear_transformer": LinearTransformerConfig,
    "softmax": SoftmaxConfig,
}
"""Config of each variant, by the word the recipes take for `--attention`."""

AUTO_CLASSES = {
    "Model": AutoModel,
    "ForCausalLM": AutoModelForCausalLM,
    "ForMaskedLM": AutoModelForMaskedLM,
}
"""Auto class by the end of a model's name."""


def register_auto_classes() -> None:
    """Make `AutoModel.from_pretrained` and its like know our models; called on import."""
    for config in CONFIG_CLASSES.values():
        AutoConfig.register(config.model_type, config, exist_ok=True)
        name = config.__name__.removesuffix("Config")
        for head, auto_class in AUTO_CLASSES.items():
            model = globals().get(name + head)
            if model is not None:
                auto_class.register(config, model, exist_ok=True)


__all__ = [
    "AUTO_CLASSES",
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
    "NystromConfig",
    "NystromForMaskedLM",
    "NystromModel",
    "SoftmaxConfig",
    "SoftmaxForCausalLM",
    "SoftmaxForMaskedLM",
    "SoftmaxModel",
    "TransNormerConfig",
    "TransNormerForCausalLM",
    "TransNormerForMaskedLM",
    "TransNormerModel",
    "register_auto_classes",
]
