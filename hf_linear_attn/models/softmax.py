"""The softmax baseline on the same trunk: config and named classes. See `SoftmaxAttention`."""

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.heads import LinearAttnForCausalLM, LinearAttnForMaskedLM
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
