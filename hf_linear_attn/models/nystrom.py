"""Nyströmformer models: config and named classes. The mechanism is `NystromAttention`."""

from typing import Self

from transformers.utils import logging

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

logger = logging.get_logger(__name__)


class NystromConfig(LinearAttnConfig):
    """Config of Nyströmformer models, encoders only; the trunk's fields are `LinearAttnConfig`'s.

    Args:
        num_landmarks: m; rows of no more tokens are computed exactly, longer ones in O(n·m).
        pinv_iterations: steps of the iterative pseudo-inverse.
        conv_kernel_size: tokens of the depthwise convolution of the values, an odd number; None =
            no convolution.
    """

    model_type = "nystrom"
    default_attention = "nystrom"

    num_landmarks: int = 64
    pinv_iterations: int = 6
    conv_kernel_size: int | None = 33

    def settle(self, *, is_decoder: bool | None = None) -> Self:
        """See `LinearAttnConfig.settle`; warns of a model in which nothing is linear."""
        if self.max_position_embeddings <= self.num_landmarks:
            logger.warning_once(
                f"num_landmarks ({self.num_landmarks}) is not below max_position_embeddings "
                f"({self.max_position_embeddings}): inputs of no more tokens than landmarks are "
                "computed by exact softmax attention, so nothing is approximated and nothing is "
                "linear. Set num_landmarks lower to change that."
            )
        return super().settle(is_decoder=is_decoder)


class NystromModel(LinearAttnModel):
    """Nyström encoder without a head."""

    config_class = NystromConfig


class NystromForMaskedLM(LinearAttnForMaskedLM):
    """Nyström encoder with a masked-language-model head."""

    config_class = NystromConfig


class NystromForSequenceClassification(LinearAttnForSequenceClassification):
    """Nyström encoder with a classifier of rows."""

    config_class = NystromConfig


class NystromForTokenClassification(LinearAttnForTokenClassification):
    """Nyström encoder with a classifier of tokens."""

    config_class = NystromConfig


class NystromForQuestionAnswering(LinearAttnForQuestionAnswering):
    """Nyström encoder with scores for the span of an answer."""

    config_class = NystromConfig


class NystromForMultipleChoice(LinearAttnForMultipleChoice):
    """Nyström encoder with a score for each choice."""

    config_class = NystromConfig


class NystromForCausalLM(LinearAttnForCausalLM):
    """Raises when it is built, with the reason: there is no causal Nyström attention.

    So that `AutoModelForCausalLM` says why.
    """

    config_class = NystromConfig
