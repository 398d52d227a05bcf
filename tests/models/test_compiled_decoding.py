"""Decoding by a compiled model: the same logits, and after the first steps nothing is compiled.

What is traced and when does not depend on who writes the code, so nobody does: backend "eager".
"""

import pytest
import torch
from torch._dynamo.utils import counters

from tests.conftest import CAUSAL_VARIANTS, TINY
from tests.models.test_generation import generate, prompts

# One is traced in the default run.
KINDS = [
    pytest.param(kind, marks=[] if kind == "cosformer" else pytest.mark.slow)
    for kind in CAUSAL_VARIANTS
]


@pytest.fixture(autouse=True)
def forget_graphs():
    torch._dynamo.reset()
    counters.clear()


def build(kind):
    config_class, model_class, own = CAUSAL_VARIANTS[kind]
    return model_class(config_class(**{**TINY, **own})).eval()


def compiled(model):
    return torch.compile(model.forward, fullgraph=True, dynamic=True, backend="eager")


@torch.no_grad()
def decode(model, step, tokens):
    """Logits of one token after another behind a padded prompt, and the graphs after each."""
    ids, mask = prompts()
    out, logits, graphs = model(input_ids=ids, attention_mask=mask), [], []
    for token in tokens.unbind(1):
        mask = torch.nn.functional.pad(mask, (0, 1), value=1)
        out = step(input_ids=token[:, None], attention_mask=mask, cache=out.cache)
        logits.append(out.logits)
        graphs.append(counters["stats"]["unique_graphs"])
    return torch.cat(logits, 1), graphs


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_compiled_once_for_all_lengths(kind):
    """At most twice: what the eager prompt leaves behind may lie otherwise in memory."""
    model = build(kind)
    tokens = torch.randint(3, 100, (2, 12))
    torch.manual_seed(3)
    wanted, _ = decode(model, model, tokens)
    torch.manual_seed(3)
    found, graphs = decode(model, compiled(model), tokens)
    assert (found - wanted).abs().max() <= 1e-5
    assert graphs[1:] == graphs[1:2] * 11
    assert 1 <= graphs[1] <= 2


@pytest.mark.slow
def test_generate_by_a_compiled_model():
    """With position_ids, as `generate` has them, and with the prompt compiled, too."""
    model = build("transnormer")
    ids, mask = prompts()
    lengths = [{"max_new_tokens": n, "min_new_tokens": n} for n in (6, 18)]
    wanted = [generate(model, ids, attention_mask=mask, **length) for length in lengths]
    model.forward = compiled(model)
    graphs = []
    for length, text in zip(lengths, wanted, strict=True):
        assert torch.equal(generate(model, ids, attention_mask=mask, **length), text)
        graphs.append(counters["stats"]["unique_graphs"])
    # One of prompts, one of steps behind them: a longer text is not traced anew.
    assert graphs == [2, 2]
