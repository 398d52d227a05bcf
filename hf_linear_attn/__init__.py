"""Linear attention for RoBERTa-style and GPT-style models in Hugging Face Transformers.

Importing this package registers its models with Transformers' Auto classes, and its mechanisms as
values of `attn_implementation`. Three methods of `PreTrainedModel` are wrapped for that: they look
whether a model honours one of our names, and do nothing where none is asked for.
"""

from hf_linear_attn.attention import (
    CosformerAttention,
    LinearTransformerAttention,
    NystromAttention,
    SoftmaxAttention,
    TransNormerDiagAttention,
    TransNormerNormAttention,
    register_attention,
)
from hf_linear_attn.backend import use_backend
from hf_linear_attn.integrations.attention_interface import register_stock_attention
from hf_linear_attn.integrations.hub import push_to_hub
from hf_linear_attn.integrations.stock_cache import LinearStateCache
from hf_linear_attn.models import (
    CosformerConfig,
    CosformerForCausalLM,
    CosformerForMaskedLM,
    CosformerForMultipleChoice,
    CosformerForQuestionAnswering,
    CosformerForSequenceClassification,
    CosformerForTokenClassification,
    CosformerModel,
    LinearAttnConfig,
    LinearTransformerConfig,
    LinearTransformerForCausalLM,
    LinearTransformerForMaskedLM,
    LinearTransformerForMultipleChoice,
    LinearTransformerForQuestionAnswering,
    LinearTransformerForSequenceClassification,
    LinearTransformerForTokenClassification,
    LinearTransformerModel,
    NystromConfig,
    NystromForMaskedLM,
    NystromForMultipleChoice,
    NystromForQuestionAnswering,
    NystromForSequenceClassification,
    NystromForTokenClassification,
    NystromModel,
    SoftmaxConfig,
    SoftmaxForCausalLM,
    SoftmaxForMaskedLM,
    SoftmaxForMultipleChoice,
    SoftmaxForQuestionAnswering,
    SoftmaxForSequenceClassification,
    SoftmaxForTokenClassification,
    SoftmaxModel,
    TransNormerConfig,
    TransNormerForCausalLM,
    TransNormerForMaskedLM,
    TransNormerForMultipleChoice,
    TransNormerForQuestionAnswering,
    TransNormerForSequenceClassification,
    TransNormerForTokenClassification,
    TransNormerModel,
    register_auto_classes,
)
from hf_linear_attn.models.convert import convert
from hf_linear_attn.version import __version__ as __version__

register_auto_classes()
register_stock_attention()

__all__ = [  # noqa: RUF022 - grouped by kind, as a table of contents
    # configs
    "CosformerConfig",
    "LinearAttnConfig",
    "LinearTransformerConfig",
    "NystromConfig",
    "SoftmaxConfig",
    "TransNormerConfig",
    # models
    "CosformerForCausalLM",
    "CosformerForMaskedLM",
    "CosformerForMultipleChoice",
    "CosformerForQuestionAnswering",
    "CosformerForSequenceClassification",
    "CosformerForTokenClassification",
    "CosformerModel",
    "LinearTransformerForCausalLM",
    "LinearTransformerForMaskedLM",
    "LinearTransformerForMultipleChoice",
    "LinearTransformerForQuestionAnswering",
    "LinearTransformerForSequenceClassification",
    "LinearTransformerForTokenClassification",
    "LinearTransformerModel",
    "NystromForMaskedLM",
    "NystromForMultipleChoice",
    "NystromForQuestionAnswering",
    "NystromForSequenceClassification",
    "NystromForTokenClassification",
    "NystromModel",
    "SoftmaxForCausalLM",
    "SoftmaxForMaskedLM",
    "SoftmaxForMultipleChoice",
    "SoftmaxForQuestionAnswering",
    "SoftmaxForSequenceClassification",
    "SoftmaxForTokenClassification",
    "SoftmaxModel",
    "TransNormerForCausalLM",
    "TransNormerForMaskedLM",
    "TransNormerForMultipleChoice",
    "TransNormerForQuestionAnswering",
    "TransNormerForSequenceClassification",
    "TransNormerForTokenClassification",
    "TransNormerModel",
    # other models' weights
    "convert",
    # mechanisms
    "CosformerAttention",
    "LinearTransformerAttention",
    "NystromAttention",
    "SoftmaxAttention",
    "TransNormerDiagAttention",
    "TransNormerNormAttention",
    "register_attention",
    # stock models
    "LinearStateCache",
    # backends
    "use_backend",
    # sharing
    "push_to_hub",
]
