"""The formulas agree with what PyTorch counts in a real forward pass."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import hf_linear_attn as hla
from hf_linear_attn.attention import ATTENTION, KernelizedAttention
from hf_linear_attn.training import flops
from hf_linear_attn.training.flops import has_formula, training_flops, trunk_flops
from tests.conftest import CAUSAL_VARIANTS, VARIANTS

# Small, but with sizes that differ from one another, so that no two terms can be exchanged.
SIZES = {
    "vocab_size": 300,
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 200,
    "max_position_embeddings": 512,
    "chunk_size": 32,
}
OWN = {
    "transnormer": {"block_size": 32},
    "nystrom": {"num_landmarks": 16, "conv_kernel_size": 7},
}


def counted(model, ids, **inputs):
    # The counter does not know the fused function of the CPU.
    model.eval().set_attn_implementation("eager")
    with (
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
        torch.no_grad(),
    ):
        model(input_ids=ids, **inputs)
    return counter.get_total_flops()


def forward_share(model, lengths, predicted=None):
    return float(training_flops(model, torch.tensor(lengths), predicted)) / 3


@pytest.mark.parametrize("length", [128, 8], ids=["long", "short"])
@pytest.mark.parametrize("extra", [{}, {"num_key_value_heads": 2, "mlp_type": "glu"}])
def test_masked_language_models(variant, length, extra):
    model = VARIANTS[variant][2](VARIANTS[variant][0](**SIZES, **OWN.get(variant, {}), **extra))
    ids = torch.randint(3, 300, (2, length))
    labels = torch.where(torch.rand(ids.shape) < 0.3, ids, -100)
    work = counted(model, ids, labels=labels, sparse_prediction=True)
    predicted = (labels != -100).sum()
    assert forward_share(model, [length] * 2, predicted) == pytest.approx(work, rel=1e-6)


@pytest.mark.parametrize("length", [128, 96, 16])
def test_causal_language_models(decoder_kind, length):
    config_class, model_class, _ = CAUSAL_VARIANTS[decoder_kind]
    layers = {"layer_attention": ["linear_transformer", "softmax", "cosformer"]}
    fields = layers if decoder_kind == "hybrid" else OWN.get(decoder_kind, {})
    model = model_class(config_class(**SIZES, **fields))
    ids = torch.randint(3, 300, (2, length))
    work = counted(model, ids, use_cache=False)
    assert forward_share(model, [length] * 2) == pytest.approx(work, rel=1e-6)


@pytest.mark.parametrize(
    "fields",
    [
        {"cos_reweighting": False},
        {"position_embedding_type": "rope"},
        {"cos_reweighting": False, "position_embedding_type": "lrpe"},
    ],
)
@pytest.mark.parametrize("head", ["MaskedLM", "CausalLM"])
def test_rotations_and_ablations(fields, head):
    model = getattr(hla, f"CosformerFor{head}")(hla.CosformerConfig(**SIZES, **fields))
    ids = torch.randint(3, 300, (1, 96))
    work = counted(model, ids)
    predicted = torch.tensor(96)
    assert forward_share(model, [96], predicted) == pytest.approx(work, rel=1e-6)


@pytest.mark.parametrize("decoder", [False, True])
def test_sequence_classification(decoder):
    config = hla.TransNormerConfig(**SIZES, **OWN["transnormer"], num_labels=5, is_decoder=decoder)
    model = hla.TransNormerForSequenceClassification(config)
    ids = torch.randint(3, 300, (4, 64))
    work = counted(model, ids, attention_mask=torch.ones_like(ids))
    assert forward_share(model, [64] * 4) == pytest.approx(work, rel=1e-6)


def test_the_backward_pass_has_twice_the_work():
    """With more than a chunk of tokens a state or two is not needed: a few per cent less."""
    model = hla.CosformerForMaskedLM(hla.CosformerConfig(**SIZES))
    ids = torch.randint(3, 300, (2, 128))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()
    expected = float(training_flops(model, torch.tensor([128, 128]), torch.tensor(256)))
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.03)


def test_rows_of_different_lengths_are_counted_each_for_itself():
    config = hla.SoftmaxConfig(**SIZES).settle()
    apart = [float(trunk_flops(config, torch.tensor([n], dtype=torch.float64))) for n in (7, 90)]
    together = float(trunk_flops(config, torch.tensor([7, 90], dtype=torch.float64)))
    assert together == pytest.approx(sum(apart))
    assert apart[1] / apart[0] > 90 / 7


def test_every_mechanism_of_the_package_has_a_formula():
    own = {n for n, m in ATTENTION.items() if m.__module__.startswith("hf_linear_attn.")}
    assert set(flops._MECHANISMS) == own


def test_a_mechanism_of_ones_own_has_none(monkeypatch):
    class Own(KernelizedAttention):
        feature_maps = ("relu",)

    monkeypatch.setitem(ATTENTION, "own", Own)
    assert not has_formula(hla.CosformerConfig(layer_attention="own"))
    assert has_formula(hla.CosformerConfig())
    assert not has_formula(None)
