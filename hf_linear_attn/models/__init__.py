"""Models on the one trunk, and their registration with Transformers' Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.cosformer import (
    CosformerConfig,
    CosformerForMaskedLM,
    CosformerForMultipleChoice,
    CosformerForQuestionAnswering,
    CosformerForSequenceClassification,
    CosformerForTokenClassification,
    CosformerModel,
)
from hf_linear_attn.models.linear_transformer import (
    LinearTransformerConfig,
    LinearTransformerForMaskedLM,
    LinearTransformerForMultipleChoice,
    LinearTransformerForQuestionAnswering,
    LinearTransformerForSequenceClassification,
    LinearTransformerForTokenClassification,
    LinearTransformerModel,
)
from hf_linear_attn.models.softmax import (
    SoftmaxConfig,
    SoftmaxForMaskedLM,
    SoftmaxForMultipleChoice,
    SoftmaxForQuestionAnswering,
    SoftmaxForSequenceClassification,
    SoftmaxForTokenClassification,
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
    AutoModelForMaskedLM: (CosformerForMaskedLM, LinearTransformerForMaskedLM, SoftmaxForMaskedLM),
    AutoModelForSequenceClassification: (
        CosformerForSequenceClassification,
        LinearTransformerForSequenceClassification,
        SoftmaxForSequenceClassification,
    ),
    AutoModelForTokenClassification: (
        CosformerForTokenClassification,
        LinearTransformerForTokenClassification,
        SoftmaxForTokenClassification,
    ),
    AutoModelForQuestionAnswering: (
        CosformerForQuestionAnswering,
        LinearTransformerForQuestionAnswering,
        SoftmaxForQuestionAnswering,
    ),
    AutoModelForMultipleChoice: (
        CosformerForMultipleChoice,
        LinearTransformerForMultipleChoice,
        SoftmaxForMultipleChoice,
    ),
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
    "CosformerForMaskedLM",
    "CosformerForMultipleChoice",
    "CosformerForQuestionAnswering",
    "CosformerForSequenceClassification",
    "CosformerForTokenClassification",
    "CosformerModel",
    "LinearAttnConfig",
    "LinearTransformerConfig",
    "LinearTransformerForMaskedLM",
    "LinearTransformerForMultipleChoice",
    "LinearTransformerForQuestionAnswering",
    "LinearTransformerForSequenceClassification",
    "LinearTransformerForTokenClassification",
    "LinearTransformerModel",
    "SoftmaxConfig",
    "SoftmaxForMaskedLM",
    "SoftmaxForMultipleChoice",
    "SoftmaxForQuestionAnswering",
    "SoftmaxForSequenceClassification",
    "SoftmaxForTokenClassification",
    "SoftmaxModel",
    "register_auto_classes",
]
