"""Linear attention for RoBERTa-style and GPT-style models in Hugging Face Transformers.

Importing this package registers its models with Transformers' Auto classes; nothing else happens.
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
from hf_linear_attn.models import (
    CosformerConfig,
    CosformerForCausalLM,
    CosformerForMaskedLM,
    CosformerModel,
    LinearAttnConfig,
    LinearTransformerConfig,
    LinearTransformerForCausalLM,
    LinearTransformerForMaskedLM,
    LinearTransformerModel,
    NystromConfig,
    NystromForMaskedLM,
    NystromModel,
    SoftmaxConfig,
    SoftmaxForCausalLM,
    SoftmaxForMaskedLM,
    SoftmaxModel,
    TransNormerConfig,
    TransNormerForCausalLM,
    TransNormerForMaskedLM,
    TransNormerModel,
    register_auto_classes,
)

register_auto_classes()

__version__ = "0.1.0"

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
    "CosformerModel",
    "LinearTransformerForCausalLM",
    "LinearTransformerForMaskedLM",
    "LinearTransformerModel",
    "NystromForMaskedLM",
    "NystromModel",
    "SoftmaxForCausalLM",
    "SoftmaxForMaskedLM",
    "SoftmaxModel",
    "TransNormerForCausalLM",
    "TransNormerForMaskedLM",
    "TransNormerModel",
    # mechanisms
    "CosformerAttention",
    "LinearTransformerAttention",
    "NystromAttention",
    "SoftmaxAttention",
    "TransNormerDiagAttention",
    "TransNormerNormAttention",
    "register_attention",
    # backends
    "use_backend",
]
