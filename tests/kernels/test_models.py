"""Models under `use_backend("triton")`: an encoder with its gradients, a decoder that generates."""

import pytest
import torch

pytest.importorskip("triton")

import hf_linear_attn as hla
from hf_linear_attn.kernels import decode, passes
from tests.conftest import TINY
from tests.errors import relative_error

pytestmark = pytest.mark.kernels

SMALL = {**TINY, "hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 16}


@pytest.fixture
def ran(monkeypatch):
    """How often each of the kernels' passes ran."""
    counts = dict.fromkeys(("forward_pass", "backward_pass", "decode"), 0)
    for module, name in ((passes, "forward_pass"), (passes, "backward_pass"), (decode, "decode")):
        run = getattr(module, name)

        def spied(*arguments, _run=run, _name=name):
            counts[_name] += 1
            return _run(*arguments)

        monkeypatch.setattr(module, name, spied)
    return counts


def check_gradients(model, backend="triton", **inputs):
    results = []
    for name in (backend, "torch"):
        model.zero_grad()
        with hla.use_backend(name):
            out = model(**inputs)
            out.loss.backward()
        results.append([out.logits, *(p.grad.clone() for p in model.parameters())])
    for a, b in zip(*results, strict=True):
        assert relative_error(a, b, scale=1e-3) <= 1e-4


def test_an_encoder(ran):
    model = hla.CosformerForMaskedLM(hla.CosformerConfig(**SMALL))
    ids = torch.randint(3, 100, (2, 7))
    mask = torch.ones_like(ids)
    mask[0, 4:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    check_gradients(model.eval(), input_ids=ids, attention_mask=mask, labels=labels)
    assert ran == {"forward_pass": 2, "backward_pass": 2, "decode": 0}


@pytest.mark.parametrize("compiled", [False, True])
def test_a_decoder_in_training(compiled, ran):
    model = hla.LinearTransformerForCausalLM(hla.LinearTransformerConfig(**SMALL)).eval()
    ids = torch.randint(3, 100, (1, 6))
    if compiled:
        torch._dynamo.reset()
        model = torch.compile(model, backend="aot_eager", fullgraph=True)
    check_gradients(model, input_ids=ids, labels=ids, use_cache=False)
    assert ran == {"forward_pass": 2, "backward_pass": 2, "decode": 0}


def test_gradient_checkpointing_of_a_model(ran):
    model = hla.LinearTransformerForCausalLM(hla.LinearTransformerConfig(**SMALL)).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.activation_checkpointing_enable()
    ids = torch.randint(3, 100, (1, 6))
    check_gradients(model, input_ids=ids, labels=ids, use_cache=False)
    assert ran == {"forward_pass": 4, "backward_pass": 2, "decode": 0}


@pytest.mark.parametrize("name", ["LinearTransformer", "Cosformer"])
def test_generation(name, ran):
    model = getattr(hla, f"{name}ForCausalLM")(getattr(hla, f"{name}Config")(**SMALL)).eval()
    prompt = torch.randint(3, 100, (2, 5))
    options = {
        "attention_mask": torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]), "max_new_tokens": 4,
        "min_new_tokens": 4, "do_sample": False, "output_logits": True,
        "return_dict_in_generate": True,
    }  # fmt: skip
    with hla.use_backend("torch"):
        expected = model.generate(prompt, **options)
    with hla.use_backend("triton"):
        found = model.generate(prompt, **options)
    # Two layers: the prompt, and three tokens fed back.
    assert ran == {"forward_pass": 2, "backward_pass": 0, "decode": 6}
    assert torch.equal(found.sequences, expected.sequences)
    for a, b in zip(found.logits, expected.logits, strict=True):
        assert relative_error(a, b) <= 1e-5
