"""Which of Transformers' common tests are skipped, and why.

Transformers skips a test by itself, and by words that suit most models: here stands what is true of
ours. A skip that is not listed by its test and its words ends the run with exit code 1.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

from tests.suite.not_applicable import EVERY, LRA, OF_ONE_CONFIG, TRUNKS


class Skip(NamedTuple):
    """Tests that Transformers skips."""

    tests: tuple[str, ...]
    """patterns of their names"""
    says: str
    """what Transformers' reason has in it"""
    reason: str
    """the true one; of no other entry"""
    classes: tuple[str, ...] = EVERY
    """patterns of the names of model classes"""

    def meets(self, model: str, test: str) -> bool:
        """Is it about this test of this model class?"""
        named = any(fnmatchcase(test, pattern) for pattern in self.tests)
        return named and any(fnmatchcase(model, c) for c in self.classes)


HEADS = ("*For*",)
ENCODERS = (
    "*ForMaskedLM", "*ForSequenceClassification*", "*ForTokenClassification",
    "*ForQuestionAnswering", "*ForMultipleChoice",
)  # fmt: skip

LACKS: tuple[Skip, ...] = (
    Skip(
        (
            "test_can_load_with_*device*", "test_cpu_offload", "test_disk_offload_*",
            "test_flex_attention_with_grads", "test_resize_*_with_deepspeed",
            "test_sdpa_can_compile_dynamic", "test_sdpa_can_dispatch_on_flash",
        ),
        "test requires accelerator",
        "This machine has no accelerator.",
    ),
    Skip(
        ("test_model_parallelism", "test_resize_*_with_deepspeed_multi_gpu"),
        "test requires multiple accelerators",
        "This machine has no two accelerators.",
    ),
    Skip(
        ("test_flash_attn_[234]_*",),
        "test requires Flash Attention",
        "Flash Attention is not installed; it needs a GPU.",
    ),
    Skip(
        ("test_flash_attn_kernels_inference_equivalence", "test_kernels_can_load_without_crashing"),
        "test requires the kernels library",
        "The package kernels is not installed.",
    ),
    Skip(
        ("test_flash_attn_kernels_mps_inference_equivalence",),
        "test requires MPS",
        "This machine has no GPU of Apple's.",
    ),
    Skip(
        ("test_torch_compile_for_training",),
        "test is slow",
        "Takes an accelerator and RUN_SLOW=1. Training of compiled models is tested by "
        "tests/models/test_compile.py.",
    ),
)  # fmt: skip
"""What a machine lacks: another one need not."""

SKIPS: tuple[Skip, ...] = (
    Skip(
        (
            "test_attn_implementation_composite_models",
            "test_can_set_attention_dynamically_composite_model",
        ),
        "composite",
        "About configs within a config, each with an attn_implementation of its own; there are "
        "none. The classifiers of Long Range Arena have them and pass.",
        OF_ONE_CONFIG,
    ),
    Skip(
        ("test_internal_model_config_and_subconfig_are_same",),
        "No subconfigs",
        "About configs within a config, too.",
        OF_ONE_CONFIG,
    ),
    Skip(
        ("test_sdpa_can_dispatch_composite_models",),
        "does not support SDPA",
        "About models with an encoder of images or sounds beside that of text. SDPA is supported: "
        "test_sdpa_can_dispatch_non_composite_models passes.",
        OF_ONE_CONFIG,
    ),
    Skip(
        ("test_sdpa_can_dispatch_composite_models",),
        "a non-text modality tower",
        "The trunk encodes text, and nothing stands beside it.",
        LRA,
    ),
    Skip(
        ("test_can_load_from_already_mapped_keys",),
        "No conversion found",
        "No names of tensors are changed on loading.",
    ),
    Skip(
        ("test_causal_lm_loss_honors_shift_labels",),
        "No decoder-only language modeling head",
        "The class does not predict the next token.",
        ("*Model", "*Model (decoder)", *ENCODERS),
    ),
    Skip(
        ("test_encoder_decoder_loss_no_double_shift",),
        "No sequence-to-sequence language modeling head",
        "There are no models of an encoder and a decoder.",
    ),
    Skip(
        ("test_eager_matches_batched_and_grouped_inference_*",),
        "grouped_mm",
        "There are no mixtures of experts, whose products could be grouped.",
    ),
    Skip(
        ("test_moe_models_record_router_logits",),
        "no sparse experts",
        "There are no mixtures of experts.",
    ),
    Skip(
        ("test_output_router_logits_from_config",),
        "no `output_router_logits`",
        "There are no routers to experts.",
    ),
    Skip(
        (
            "test_model_rope_scaling_frequencies", "test_model_rope_scaling_from_config_*",
            "test_model_rope_with_partial_rotation", "test_vision_axial_rope",
        ),
        "no `base_model_class` defined",
        "Asks about the trunk alone, which is a class of its own here.",
        HEADS,
    ),
    Skip(
        ("test_model_rope_scaling_frequencies",),
        "no standardized RoPE module",
        "Looks for a module that is made from a config; ours are made from the size of a head. "
        "Frequencies are compared with Transformers' by tests/attention/test_rotary.py.",
        TRUNKS,
    ),
    Skip(
        ("test_model_rope_with_partial_rotation",),
        "partial rope",
        "Heads are turned whole.",
        TRUNKS,
    ),
    Skip(
        ("test_vision_axial_rope",),
        "no axial RoPE layer",
        "Rotations are of one position, not of the two of a picture.",
        TRUNKS,
    ),
    Skip(
        ("test_sliding_window_mask",),
        "sliding window mask",
        "No layer has a window that slides.",
    ),
    Skip(
        ("test_tp_plan_matches_params",),
        "TP plan",
        "There is no plan of tensor parallelism.",
    ),
    Skip(
        ("test_bc_cache_name_forward",),
        "Do not take a cache",
        "Heads of tasks and masked language models read whole rows and take no cache.",
        ENCODERS,
    ),
    Skip(
        ("test_can_load_ignoring_mismatched_shapes",),
        "Could not locate the classification Linear layer",
        "The first half holds; then a head of one layer is looked for, and this one has several. "
        "Which weights are drawn anew is tested by tests/models/test_lra.py.",
        LRA,
    ),
    Skip(
        ("test_inputs_embeds",),
        "doesn't use `inputs_embeds`",
        "Takes symbols, which stand for themselves in these tasks, and no embeddings.",
        LRA,
    ),
    Skip(
        ("test_torch_save_load",),
        "not in MODEL_MAPPING",
        "Saves the trunk and loads it under the head by one config; here the trunk has its own.",
        LRA,
    ),
)  # fmt: skip
"""What the models are not: each must still be met in a run of everything."""
