"""Any value in any field of a config: a model that keeps its promises, or one clear ValueError."""

import dataclasses

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import OWN, TINY, VARIANTS
from tests.errors import relative_error
from tests.models.task_models import scores, task_class
from tests.properties.choices import evenly
from tests.properties.examples import examples

# Sizes that a small machine builds; what no field holds besides.
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 5, 8, 12, 100, 2.0, 0.5, -0.5, 1e-6])
ODD = st.sampled_from(
    [float("nan"), float("inf"), -float("inf"), True, False, None, "", "8", (), {}]
)
WORDS = st.sampled_from(
    ["gelu", "identity", "glu", "rmsnorm", "srmsnorm", "pre", "post", "rope", "lrpe", "sinusoidal",
     "none", "mean", "last", "softmax", "cosformer", "nystrom", "transnormer_diag", "length", "t1",
     "elu_plus_one", "regression", "float16", "Gelu", "ropes"]
)  # fmt: skip
NESTED = st.sampled_from(
    [["softmax", "cosformer"], ["softmax"], [1, 2], [None], {"rope_type": "default"},
     {"rope_type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 0},
     {"rope_type": "yarn"}, {"softmax": {}}, {"cosformer": {"cos_horizon": 9}},
     {"cosformer": {"cos_horizon": "wide"}}, {"cosformer": 3}, {"softmax": {"chunk_size": 2}},
     {0: "a", 1: "b", 2: "c"}, {"a": 0}, [[1]]]
)  # fmt: skip
ANYTHING = st.one_of(NUMBERS, ODD, WORDS, NESTED)
ALL_FIELDS = sorted(
    {f.name for config, *_ in VARIANTS.values() for f in dataclasses.fields(config) if f.init}
)
BESIDE = ["num_labels", "torch_dtype", "attn_implementation", "output_attentions"]
ALSO = {"torch_dtype": "dtype", "id2label": "label"}
UNKNOWN = ["hidden_sizes", "num_heads", "Vocab_size", "layer_atention", "x"]
NAMES = evenly([*ALL_FIELDS, *BESIDE, *UNKNOWN])
HEADS_TRIED = ["MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering"]


def check_promises(model):
    """It runs, a pad changes nothing, rows do not see each other."""
    model = model.double().eval()
    length = min(6, model.config.max_position_embeddings)
    ids = torch.randint(0, model.config.vocab_size, (2, length + 3))
    mask = torch.ones_like(ids)
    mask[0, length:], mask[1, :3] = 0, 0
    asked = {"return_dict": True}  # a config may say otherwise
    together = scores(model(input_ids=ids, attention_mask=mask, **asked))
    for i, real in enumerate(mask.bool()):
        row = {"input_ids": ids[i : i + 1, real], "attention_mask": mask[i : i + 1, real]}
        alone = scores(model(**row, **asked))
        found = together[i, real] if together.ndim == 3 else together[i]
        assert relative_error(found, alone[0], scale=1e-3) <= 1e-6


@examples(400)
@given(
    variant=evenly(VARIANTS),
    head=evenly(HEADS_TRIED),
    fields=st.dictionaries(NAMES, ANYTHING, min_size=1, max_size=3),
)
def test_any_value_is_taken_or_refused(variant, head, fields):
    config_class = VARIANTS[variant][0]
    settings = {**TINY, **OWN.get(variant, {}), "hidden_size": 16, "intermediate_size": 8, **fields}
    try:
        model = task_class(variant, head)(config_class(**settings))
    except ValueError as error:
        message = str(error)
        said = [
            *(name.removeprefix("torch_") for name in fields),
            *(repr(value) for value in fields.values() if isinstance(value, str)),
        ]
        assert any(words in message for words in said), message
        return
    check_promises(model)
