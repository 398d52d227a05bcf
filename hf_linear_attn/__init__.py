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
    CosformerForMaskedLM,
    CosformerModel,
    LinearAttnConfig,
    LinearTransformerConfig,
    LinearTransformerForMaskedLM,
    LinearTransformerModel,
    NystromConfig,
    NystromForMaskedLM,
    NystromModel,
    SoftmaxConfig,
    SoftmaxForMaskedLM,
    SoftmaxModel,
    TransNormerConfig,
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
    "CosformerForMaskedLM",
    "CosformerModel",
    "LinearTransformerForMaskedLM",
    "LinearTransformerModel",
    "NystromForMaskedLM",
    "NystromModel",
    "SoftmaxForMaskedLM",
    "SoftmaxModel",
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
