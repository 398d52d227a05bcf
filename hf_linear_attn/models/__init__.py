"""Models on the one trunk, and their registration with Transformers' Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.cosformer import (
    CosformerConfig,
    CosformerForCausalLM,
    CosformerForMaskedLM,
    CosformerForMultipleChoice,
    CosformerForQuestionAnswering,
    CosformerForSequenceClassification,
    CosformerForTokenClassification,
    CosformerModel,
)
from hf_linear_attn.models.linear_transformer import (
    LinearTransformerConfig,
    LinearTransformerForCausalLM,
    LinearTransformerForMaskedLM,
    LinearTransformerForMultipleChoice,
    LinearTransformerForQuestionAnswering,
    LinearTransformerForSequenceClassification,
    LinearTransformerForTokenClassification,
    LinearTransformerModel,
)
from hf_linear_attn.models.lra import LraForSequenceClassification
from hf_linear_attn.models.lra_config import LraConfig
from hf_linear_attn.models.nystrom import (
    NystromConfig,
    NystromForCausalLM,
    NystromForMaskedLM,
    NystromForMultipleChoice,
    NystromForQuestionAnswering,
    NystromForSequenceClassification,
    NystromForTokenClassification,
    NystromModel,
)
from hf_linear_attn.models.softmax import (
    SoftmaxConfig,
    SoftmaxForCausalLM,
    SoftmaxForMaskedLM,
    SoftmaxForMultipleChoice,
    SoftmaxForQuestionAnswering,
    SoftmaxForSequenceClassification,
    SoftmaxForTokenClassification,
    SoftmaxModel,
)
from hf_linear_attn.models.transnormer import (
    TransNormerConfig,
    TransNormerForCausalLM,
    TransNormerForMaskedLM,
    TransNormerForMultipleChoice,
    TransNormerForQuestionAnswering,
    TransNormerForSequenceClassification,
    TransNormerForTokenClassification,
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
    "ForSequenceClassification": AutoModelForSequenceClassification,
    "ForTokenClassification": AutoModelForTokenClassification,
    "ForQuestionAnswering": AutoModelForQuestionAnswering,
    "ForMultipleChoice": AutoModelForMultipleChoice,
}
"""Auto class by the end of a model's name."""


def register_auto_classes() -> None:
    """Make `AutoModel.from_pretrained` and its like know our models; called on import."""
    for config in CONFIG_CLASSES.values():
        AutoConfig.register(config.model_type, config, exist_ok=True)
        name = config.__name__.removesuffix("Config")
        for head, auto_class in AUTO_CLASSES.items():
            model = globals()[name + head]
            auto_class.register(config, model, exist_ok=True)
    AutoConfig.register(LraConfig.model_type, LraConfig, exist_ok=True)
    AutoModelForSequenceClassification.register(
        LraConfig, LraForSequenceClassification, exist_ok=True
    )


__all__ = [
    "AUTO_CLASSES",
    "CONFIG_CLASSES",
    "CosformerConfig",
    "CosformerForCausalLM",
    "CosformerForMaskedLM",
    "CosformerForMultipleChoice",
    "CosformerForQuestionAnswering",
    "CosformerForSequenceClassification",
    "CosformerForTokenClassification",
    "CosformerModel",
    "LinearAttnConfig",
    "LinearTransformerConfig",
    "LinearTransformerForCausalLM",
    "LinearTransformerForMaskedLM",
    "LinearTransformerForMultipleChoice",
    "LinearTransformerForQuestionAnswering",
    "LinearTransformerForSequenceClassification",
    "LinearTransformerForTokenClassification",
    "LinearTransformerModel",
    "LraConfig",
    "LraForSequenceClassification",
    "NystromConfig",
    "NystromForCausalLM",
    "NystromForMaskedLM",
    "NystromForMultipleChoice",
    "NystromForQuestionAnswering",
    "NystromForSequenceClassification",
    "NystromForTokenClassification",
    "NystromModel",
    "SoftmaxConfig",
    "SoftmaxForCausalLM",
    "SoftmaxForMaskedLM",
    "SoftmaxForMultipleChoice",
    "SoftmaxForQuestionAnswering",
    "SoftmaxForSequenceClassification",
    "SoftmaxForTokenClassification",
    "SoftmaxModel",
    "TransNormerConfig",
    "TransNormerForCausalLM",
    "TransNormerForMaskedLM",
    "TransNormerForMultipleChoice",
    "TransNormerForQuestionAnswering",
    "TransNormerForSequenceClassification",
    "TransNormerForTokenClassification",
    "TransNormerModel",
    "register_auto_classes",
]
