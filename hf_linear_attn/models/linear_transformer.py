"""Linear Transformer models: config and named classes. See `LinearTransformerAttention`."""

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.heads import LinearAttnForCausalLM, LinearAttnForMaskedLM
from hf_linear_attn.models.selection_heads import (
    LinearAttnForMultipleChoice,
    LinearAttnForQuestionAnswering,
)
from hf_linear_attn.models.task_heads import (
    LinearAttnForSequenceClassification,
    LinearAttnForTokenClassification,
)
from hf_linear_attn.models.trunk import LinearAttnModel


class LinearTransformerConfig(LinearAttnConfig):
    """Config of Linear Transformer models; all its fields are those of `LinearAttnConfig`."""

    model_type = "linear_transformer"
    default_attention = "linear_transformer"


class LinearTransformerModel(LinearAttnModel):
    """Linear Transformer model without a head."""

    config_class = LinearTransformerConfig


class LinearTransformerForMaskedLM(LinearAttnForMaskedLM):
    """Linear Transformer encoder with a masked-language-model head."""

    config_class = LinearTransformerConfig


class LinearTransformerForCausalLM(LinearAttnForCausalLM):
    """Linear Transformer decoder with a language-model head."""

    config_class = LinearTransformerConfig


class LinearTransformerForSequenceClassification(LinearAttnForSequenceClassification):
    """Linear Transformer model with a classifier of rows."""

    config_class = LinearTransformerConfig


class LinearTransformerForTokenClassification(LinearAttnForTokenClassification):
    """Linear Transformer model with a classifier of tokens."""

    config_class = LinearTransformerConfig


class LinearTransformerForQuestionAnswering(LinearAttnForQuestionAnswering):
    """Linear Transformer model with scores for the span of an answer."""

    config_class = LinearTransformerConfig


class LinearTransformerForMultipleChoice(LinearAttnForMultipleChoice):
    """Linear Transformer model with a score for each choice."""

    config_class = LinearTransformerConfig
