"""Random small models: configs that must build, inputs for them, rows padded at random."""

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

import hf_linear_attn as hla
from hf_linear_attn.attention import ATTENTION
from tests.conftest import VARIANTS
from tests.models.task_models import HEADS
from tests.properties.attention_cases import CAUSAL, fields_of
from tests.properties.choices import evenly

POSITIONS = 24
"""tokens that every model holds"""
LABELS = 3
FIRST_WORD = 3
"""ids below are special"""
ANY_HEAD = ["Model", "ForMaskedLM", "ForCausalLM", *(f"For{head}" for head in HEADS)]
ACTIVATIONS = ["gelu", "relu", "silu", "tanh", "gelu_new", "identity"]
SWITCHES = {
    "intermediate_size": st.integers(1, 24),
    "hidden_act": st.sampled_from(ACTIVATIONS),
    "mlp_type": st.sampled_from(["mlp", "glu"]),
    "norm_type": st.sampled_from(["layernorm", "rmsnorm", "srmsnorm"]),
    "norm_position": st.sampled_from(["post", "pre", None]),
    "norm_eps": st.sampled_from([1e-5, 1e-12, 1e-2]),
    "embedding_norm": st.sampled_from([True, False, None]),
    "final_norm": st.sampled_from([True, False, None]),
    "qk_norm": st.booleans(),
    "type_vocab_size": st.integers(0, 2),
    "attention_bias": st.booleans(),
    "mlp_bias": st.booleans(),
    "lm_head_transform": st.sampled_from([True, False, None]),
    "logit_scale": st.sampled_from([None, 0.5, 2]),
    "pooling": st.sampled_from(["first", "last", "mean", None]),
    "classifier_dropout": st.sampled_from([None, 0, 0.5]),
    "tie_word_embeddings": st.booleans(),
    "use_cache": st.booleans(),
    "chunk_size": st.integers(1, 16),
    "attention_eps": st.sampled_from([1e-6, 0.5]),
    "pad_token_id": st.sampled_from([None, 0, 1, 2]),
}


@dataclass(frozen=True)
class ModelCase:
    """A model in words and numbers."""

    variant: str
    head: str
    fields: dict[str, Any]
    seed: int

    @property
    def config_class(self):
        return VARIANTS[self.variant][0]

    @property
    def model_class(self):
        return getattr(hla, self.config_class.__name__.removesuffix("Config") + self.head)

    @property
    def is_decoder(self):
        return self.head == "ForCausalLM" or bool(self.fields.get("is_decoder"))

    def build(self, dtype=torch.float64):
        """The model in eval mode; in fewer bits it has the same weights, rounded."""
        torch.manual_seed(self.seed)
        return self.model_class(self.config_class(**self.fields)).to(dtype).eval()


@st.composite
def head_sizes(draw, even, least):
    """Widths that fit each other; `even`: heads are turned in pairs, or the width is halved."""
    heads = draw(st.integers(1, 4))
    groups = draw(st.sampled_from([n for n in (1, 2, 3, 4) if heads % n == 0] + [None]))
    head_dim = draw(st.integers((least + 1) // 2, 5)) * 2 if even else draw(st.integers(least, 9))
    given = draw(st.booleans())
    hidden = draw(st.integers(2, 12)) * 2 if given else heads * head_dim
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": groups}
    return sizes | ({"head_dim": head_dim} if given else {})


@st.composite
def layers_of(draw, variant, decoder):
    """Which mechanism each layer has, and the fields of those that are not the variant's own."""
    count = draw(st.integers(1, 2))
    fields: dict[str, Any] = {"num_hidden_layers": count}
    known = CAUSAL if decoder else list(ATTENTION)
    names = draw(
        st.none() | st.sampled_from(known) | st.lists(
            st.sampled_from(known), min_size=count, max_size=count)
    )  # fmt: skip
    if names is None:
        if variant == "transnormer":
            fields["num_local_layers"] = draw(st.none() | st.integers(0, count))
        return fields
    fields["layer_attention"] = names
    config = VARIANTS[variant][0]
    used = {names} if isinstance(names, str) else set(names)
    foreign = sorted(used - {config.default_attention, *config.own_attention})
    settings = {name: draw(st.none() | fields_of(name, decoder)) for name in foreign}
    settings = {name: given for name, given in settings.items() if given}
    return fields | ({"attention_kwargs": settings} if settings else {})


OWN_FIELDS = {
    "softmax": {},
    "linear_transformer": {},
    "cosformer": {
        "cos_horizon": st.sampled_from([None, POSITIONS, 100]),
        "cos_reweighting": st.booleans(),
        "feature_map": st.sampled_from(["relu", "elu_plus_one"]),
    },
    "transnormer": {
        "transnormer_version": st.sampled_from(["t1", "t2"]),
        "block_size": st.integers(1, 9),
        "xnorm": st.sampled_from(["srmsnorm", "layernorm"]),
    },
    "nystrom": {
        "num_landmarks": st.integers(1, 9),
        "pinv_iterations": st.integers(1, 6),
        "conv_kernel_size": st.sampled_from([None, 1, 5]),
    },
}


@st.composite
def positions_of(draw):
    """How the model knows positions."""
    kind = draw(evenly(["learned", "sinusoidal", "rope", "lrpe", "none"]))
    fields: dict[str, Any] = {"position_embedding_type": kind}
    if kind == "rope":
        linear = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}
        llama3 = {
            "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
        }  # fmt: skip
        fields["rope_parameters"] = draw(
            st.sampled_from([None, {"rope_type": "default", "rope_theta": 100.0}, linear, llama3])
        )
    return fields


@st.composite
def models(draw, heads=None, decoder=None, least=1):
    """Configs that must build.

    Args:
        heads: ends of class names to draw from; None = all.
        decoder: True = decoders alone; None = drawn where the head leaves it open.
        least: numbers of a head; see `attention_cases.cases`.
    """
    head = draw(evenly(heads or ANY_HEAD))
    causal = head == "ForCausalLM" or (
        head != "ForMaskedLM" and (draw(st.booleans()) if decoder is None else decoder)
    )
    variant = draw(evenly(v for v in VARIANTS if v in CAUSAL_FAMILIES or not causal))
    fields = {
        "vocab_size": draw(st.integers(12, 20)),
        "max_position_embeddings": POSITIONS,
        "initializer_range": 0.3,
        "num_labels": LABELS,
        **draw(st.fixed_dictionaries({}, optional=SWITCHES)),
        **draw(st.fixed_dictionaries({}, optional=OWN_FIELDS[variant])),
        **draw(layers_of(variant, causal)),
        **draw(positions_of()),
    }
    even = fields["position_embedding_type"] in ("sinusoidal", "rope", "lrpe")
    fields |= draw(head_sizes(even, least))
    default = "glu" if variant == "transnormer" else "mlp"
    if fields.get("mlp_type", default) == "glu":
        fields["glu_act"] = draw(st.sampled_from([None, *ACTIVATIONS]))
    if causal and (head != "ForCausalLM" or draw(st.booleans())):
        fields["is_decoder"] = True
    if variant == "cosformer" and not causal and draw(st.booleans()):
        fields["cos_horizon"] = "length"
    return ModelCase(variant, head, fields, draw(st.integers(0, 2**16)))


CAUSAL_FAMILIES = [v for v in VARIANTS if v != "nystrom"]


@dataclass(frozen=True)
class Rows:
    """Rows of a batch: how many real tokens, and where pads stand."""

    lengths: tuple[int, ...]
    kinds: tuple[str, ...]
    """left, right or holes"""
    pads: int
    """at least so many pads in the longest row"""
    seed: int

    def mask(self):
        """Bool (batch, seq), True = real token."""
        drawn = torch.Generator().manual_seed(self.seed)
        width = max(self.lengths) + self.pads
        mask = torch.zeros(len(self.lengths), width, dtype=torch.bool)
        for row, length, kind in zip(mask, self.lengths, self.kinds, strict=True):
            where = {
                "left": torch.arange(width - length, width),
                "right": torch.arange(length),
                "holes": torch.randperm(width, generator=drawn)[:length],
            }[kind]
            row[where] = True
        return mask

    def ids(self, mask, config, *, types=False):
        """Words everywhere, at pads too: only the mask tells them apart."""
        drawn = torch.Generator().manual_seed(self.seed + 1)
        low, high = (0, config.type_vocab_size) if types else (FIRST_WORD, config.vocab_size)
        return torch.randint(low, high, mask.shape, generator=drawn)


def rows(kinds=("left", "right", "holes"), longest=12, most=3):
    """Batches of one to `most` rows."""
    return st.integers(1, most).flatmap(
        lambda count: st.builds(
            Rows,
            lengths=st.tuples(*[st.integers(1, longest)] * count),
            kinds=st.tuples(*[evenly(kinds)] * count),
            pads=st.integers(0, 9),
            seed=st.integers(0, 2**16),
        )
    )


def output_of(model, head, **inputs):
    """What a model of any head says: (batch, seq, ·), or (batch, ·) where a row has one answer."""
    if head == "ForMultipleChoice":
        inputs = {name: x[None] for name, x in inputs.items()}
        return model(**inputs).logits[0][:, None]
    out = model(**inputs)
    if "start_logits" in out:
        return torch.stack((out.start_logits, out.end_logits), -1)
    return out.last_hidden_state if head == "Model" else out.logits
