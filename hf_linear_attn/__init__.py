"""Linear attention for RoBERTa-style and GPT-style models in Hugging Face Transformers.

Importing this package registers its models with Transformers' Auto classes; nothing else happens.
"""

from hf_linear_attn.attention import (
    CosformerAttention,
    LinearTransformerAttention,
    SoftmaxAttention,
    register_attention,
)
from hf_linear_attn.backend import use_backend
from hf_linear_attn.models import (
    CosformerConfig,
    CosformerForMaskedLM,
    CosformerForMultipleChoice,
    CosformerForQuestionAnswering,
    CosformerForSequenceClassification,
    CosformerForTokenClassification,
    CosformerModel,
    LinearAttnConfig,
    LinearTransformerConfig,
    LinearTransformerForMaskedLM,
    LinearTransformerForMultipleChoice,
    LinearTransformerForQuestionAnswering,
    LinearTransformerForSequenceClassification,
    LinearTransformerForTokenClassification,
    LinearTransformerModel,
    SoftmaxConfig,
    SoftmaxForMaskedLM,
    SoftmaxForMultipleChoice,
    SoftmaxForQuestionAnswering,
    SoftmaxForSequenceClassification,
    SoftmaxForTokenClassification,
    SoftmaxModel,
    register_auto_classes,
)

register_auto_classes()

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - grouped by kind, as a table of contents
    # configs
    "CosformerConfig",
    "LinearAttnConfig",
    "LinearTransformerConfig",
    "SoftmaxConfig",
    # models
    "CosformerForMaskedLM",
    "CosformerForMultipleChoice",
    "CosformerForQuestionAnswering",
    "CosformerForSequenceClassification",
    "CosformerForTokenClassification",
    "CosformerModel",
    "LinearTransformerForMaskedLM",
    "LinearTransformerForMultipleChoice",
    "LinearTransformerForQuestionAnswering",
    "LinearTransformerForSequenceClassification",
    "LinearTransformerForTokenClassification",
    "LinearTransformerModel",
    "SoftmaxForMaskedLM",
    "SoftmaxForMultipleChoice",
    "SoftmaxForQuestionAnswering",
    "SoftmaxForSequenceClassification",
    "SoftmaxForTokenClassification",
    "SoftmaxModel",
    # mechanisms
    "CosformerAttention",
    "LinearTransformerAttention",
    "SoftmaxAttention",
    "register_attention",
    # backends
    "use_backend",
]
