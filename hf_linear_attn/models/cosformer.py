"""cosFormer models: config and named classes. The mechanism is `CosformerAttention`."""

from typing import Literal

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


class CosformerConfig(LinearAttnConfig):
    """Config of cosFormer models; the trunk's fields are those of `LinearAttnConfig`.

    Args:
        cos_horizon: M, the distance at which the weight cos(π/2 · Δ/M) reaches 0, in tokens;
            "length" = each row's real length (encoders only); None = max_position_embeddings.
        cos_reweighting: False leaves plain ReLU attention.
        feature_map: "relu" or "elu_plus_one".
    """

    model_type = "cosformer"
    default_attention = "cosformer"

    cos_horizon: int | Literal["length"] | None = None
    cos_reweighting: bool = True
    feature_map: Literal["relu", "elu_plus_one"] = "relu"


class CosformerModel(LinearAttnModel):
    """cosFormer model without a head."""

    config_class = CosformerConfig


class CosformerForMaskedLM(LinearAttnForMaskedLM):
    """cosFormer encoder with a masked-language-model head."""

    config_class = CosformerConfig


class CosformerForCausalLM(LinearAttnForCausalLM):
    """cosFormer decoder with a language-model head."""

    config_class = CosformerConfig


class CosformerForSequenceClassification(LinearAttnForSequenceClassification):
    """cosFormer model with a classifier of rows."""

    config_class = CosformerConfig


class CosformerForTokenClassification(LinearAttnForTokenClassification):
    """cosFormer model with a classifier of tokens."""

    config_class = CosformerConfig


class CosformerForQuestionAnswering(LinearAttnForQuestionAnswering):
    """cosFormer model with scores for the span of an answer."""

    config_class = CosformerConfig


class CosformerForMultipleChoice(LinearAttnForMultipleChoice):
    """cosFormer model with a score for each choice."""

    config_class = CosformerConfig
