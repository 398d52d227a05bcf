"""The softmax baseline on the same trunk: config and named classes. See `SoftmaxAttention`."""

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


class SoftmaxConfig(LinearAttnConfig):
    """Config of the softmax baseline; all its fields are those of `LinearAttnConfig`."""

    model_type = "softmax_baseline"
    default_attention = "softmax"


class SoftmaxModel(LinearAttnModel):
    """Softmax model without a head."""

    config_class = SoftmaxConfig


class SoftmaxForMaskedLM(LinearAttnForMaskedLM):
    """Softmax encoder with a masked-language-model head."""

    config_class = SoftmaxConfig


class SoftmaxForCausalLM(LinearAttnForCausalLM):
    """Softmax decoder with a language-model head."""

    config_class = SoftmaxConfig


class SoftmaxForSequenceClassification(LinearAttnForSequenceClassification):
    """Softmax model with a classifier of rows."""

    config_class = SoftmaxConfig


class SoftmaxForTokenClassification(LinearAttnForTokenClassification):
    """Softmax model with a classifier of tokens."""

    config_class = SoftmaxConfig


class SoftmaxForQuestionAnswering(LinearAttnForQuestionAnswering):
    """Softmax model with scores for the span of an answer."""

    config_class = SoftmaxConfig


class SoftmaxForMultipleChoice(LinearAttnForMultipleChoice):
    """Softmax model with a score for each choice."""

    config_class = SoftmaxConfig
