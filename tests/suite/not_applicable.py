"""Which of Transformers' common tests do not apply to our models, and why.

Every entry is run: it must still fail, and by the words it names. One that passes, is skipped,
fails by other words or meets no test is stale, and ends the run with exit code 1.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple


class Entry(NamedTuple):
    """A test that does not apply."""

    test: str
    """pattern of the test's name"""
    classes: tuple[str, ...]
    """patterns of the names of model classes"""
    says: str
    """what its error has in it"""
    reason: str

    def meets(self, model: str, test: str) -> bool:
        """Is it about this test of this model class?"""
        return fnmatchcase(test, self.test) and any(fnmatchcase(model, c) for c in self.classes)


EVERY = ("*",)
CAUSAL = ("*ForCausalLM*",)
TRUNKS = ("*Model", "*Model (decoder)")
LRA = ("Lra*",)
OF_ONE_CONFIG = ("Softmax*", "LinearTransformer*", "Cosformer*", "TransNormer*", "Nystrom*")
WITHOUT_LRPE = (
    "Softmax*", "LinearTransformer*", "Cosformer*", "Nystrom*",
    "Lra*(softmax*", "Lra*(linear_transformer*", "Lra*(cosformer*", "Lra*(nystrom*",
)  # fmt: skip

NOT_APPLICABLE: tuple[Entry, ...] = (
    Entry(
        "test_attention_outputs",
        EVERY,
        "output_attentions=True in a config would form quadratic",
        "The first half holds; then weights are asked for by the config, which would make every "
        "call quadratic and is refused. Calls ask for them: tests/models/test_attentions.py.",
    ),
    Entry(
        "test_retain_grad_hidden_states_attentions",
        EVERY,
        "output_attentions=True in a config would form quadratic",
        "Asks by the config, as above, and for gradients of attention weights: linear attention "
        "forms them beside its output, to be looked at, so no gradient passes through them. Those "
        "of hidden states are seen in tests/models/test_attentions.py.",
    ),
    Entry(
        "test_bc_cache_name_forward",
        ("*Model",),
        "this model is an encoder and has no cache",
        "Asks a trunk without a head for a cache. These are encoders, which have none and say so; "
        "the trunks of decoders pass.",
    ),
    Entry(
        "test_feed_forward_chunking",
        EVERY,
        "chunk_size_feed_forward=1 is not available",
        "The MLP is not cut in pieces: a config that asks for it is refused, not ignored.",
    ),
    Entry(
        "test_gradient_checkpointing_backward_compatibility",
        EVERY,
        "has no field 'gradient_checkpointing'",
        "Sets a field that configs had before Transformers 5. Ours refuse names that are no field; "
        "model.gradient_checkpointing_enable() is tested by the tests beside this one.",
    ),
    Entry(
        "test_init_weights_can_init_buffers",
        ("TransNormer*", "Lra*(transnormer*"),
        "`reflection` in module `LRPE`",
        "Draws the buffers twice and wants them alike, but LRPE's reflection is random; with a "
        "seed, test_can_init_all_missing_weights finds it alike.",
    ),
    Entry(
        "test_keep_in_fp32_modules_exist",
        WITHOUT_LRPE,
        "['rotary'] were specified",
        "Wants every module that is kept in fp32 to be in every model. These frequencies are "
        "parameters of LRPE, which is an option; TransNormer's default has them and passes.",
    ),
    Entry(
        "test_model_rope_scaling_from_config_[12]_*",
        TRUNKS,
        "accepted: 'default', 'linear'",
        "Rotary frequencies of the types 'dynamic' and 'yarn' are not offered and refused by name; "
        "the test passes for 'linear'.",
    ),
    Entry(
        "test_resize_position_vector_embeddings",
        OF_ONE_CONFIG,
        "`get_position_embeddings` is not implemented",
        "A model's table of positions keeps its length: PreTrainedModel's method, which says that "
        "it is not implemented, is not replaced. max_position_embeddings is more than the length "
        "of a table: cosFormer's horizon follows it. A table is extended where a checkpoint is "
        "converted (scripts/convert.py --max_positions), which makes a new model.",
    ),
    Entry(
        "test_resize_position_vector_embeddings",
        LRA,
        "LraConfig has no field 'max_position_embeddings'",
        "The table is the trunk's and keeps its length, as above; that length stands in the "
        "trunk's config.",
    ),
    Entry(
        "test_reverse_loading_mapping",
        EVERY,
        "has no field 'first_k_dense_replace'",
        "Sets fields of mixtures of experts, which our configs refuse as unknown, and is about "
        "names that Transformers renames on loading: there are none.",
    ),
    Entry(
        "test_causal_lm_loss_honors_shift_labels",
        CAUSAL,
        "unknown argument 'shift_labels'",
        "Trainer passes shift_labels when it splits a sequence over devices. No mechanism here "
        "attends across such a split, so the keyword is refused instead of training on parts.",
    ),
    Entry(
        "test_generation_tester_mixin_inheritance",
        CAUSAL,
        "`GenerationTesterMixin`",
        "Wants the tests of generation beside these, which the source distribution leaves out. "
        "tests/models/test_generation*.py, test_compiled_decoding.py and test_cache*.py are ours.",
    ),
    Entry(
        "test_correct_missing_keys",
        LRA,
        "expected 'linear_attn_lra'",
        "Saves the trunk alone and loads it under the head. A trunk's config does not say task and "
        "protocol, which this class needs, so it is refused.",
    ),
    Entry(
        "test_load_with_mismatched_shapes",
        LRA,
        "for this kind of AutoModel: AutoModel.",
        "Loads the classifier without its head, by AutoModel, and there is no such class: the "
        "trunk has one of its own. That a new head is drawn for another number of classes is "
        "tested in tests/models/test_lra.py.",
    ),
    Entry(
        "test_problem_types",
        LRA,
        "one of two or more classes",
        "Asks for regression and for several classes at once. The tasks of Long Range Arena have "
        "one of two or more classes; anything else is refused.",
    ),
)
