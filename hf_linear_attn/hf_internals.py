"""Names of Transformers that are importable but not quite public, kept in this one place.

An upgrade of Transformers that moves one of them breaks this file and no other.
"""

from huggingface_hub.dataclasses import type_validator
from transformers.cache_utils import STATIC_LAYER_TYPE_MAPPING, CacheLayerMixin, DynamicLayer
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import slice_logits_to_keep
from transformers.models.llama.modeling_llama import eager_attention_forward
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import can_return_tuple
from transformers.utils.import_utils import is_flash_attn_2_available
from transformers.utils.output_capturing import (
    _active_collector as active_collector,
)
from transformers.utils.output_capturing import (
    capture_outputs,
)

__all__ = [
    "STATIC_LAYER_TYPE_MAPPING",
    "CacheLayerMixin",
    "DynamicLayer",
    "GradientCheckpointingLayer",
    "active_collector",
    "bidirectional_mask_function",
    "can_return_tuple",
    "capture_outputs",
    "causal_mask_function",
    "deprecate_kwarg",
    "eager_attention_forward",
    "flash_attention_forward",
    "is_flash_attn_2_available",
    "sdpa_attention_forward",
    "slice_logits_to_keep",
    "type_validator",
]
