"""What the suites of the benchmark compare: each ratio is theirs over ours, each call does it all.

Time is virtual here: a clock reads a counter, which what is measured moves on by a number of
seconds of its own. Everything else runs as it does in the program.
"""

import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook
from transformers import RobertaForMaskedLM
from transformers.models.roberta.modeling_roberta import RobertaLayer

from hf_linear_attn import CosformerForMaskedLM
from hf_linear_attn.models.layers import LinearAttnBlock
from hf_linear_attn.ops import RecurrentDecoder
from tests import reference
from tests.errors import relative_error

# The program's own modules are found beside it, as when it is run.
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from benchmarks import (
    cores,
    decode,
    layer,
    machine,
    model,
    op,
    rounds,
)
from benchmarks.bench import Bench, Settings
from benchmarks.clock import CpuClock
from benchmarks.results import Results
from benchmarks.rounds import Timings

LENGTH = 96
SECONDS = {"softmax": 11.0, "linear_transformer": 3.0, "cosformer": 2.0, "nystrom": 5.0}


class VirtualClock:
    """Reads seconds that what is called has spent."""

    name = "virtual"

    def __init__(self):
        self.now = 0.0

    def seconds(self, call, repeats):
        start = self.now
        for _ in range(repeats):
            call()
        return (self.now - start) / repeats

    def spends(self, function, seconds):
        """The function, after so many seconds; they may depend on what it is given."""

        def spending(*args, **keywords):
            self.now += seconds(*args, **keywords) if callable(seconds) else seconds
            return function(*args, **keywords)

        return spending


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(rounds, "SHORTEST_SAMPLE", 0.0)
    return VirtualClock()


@pytest.fixture
def settings():
    return Settings(torch.device("cpu"), torch.float32, rounds=2, heads=2, head_dim=8, layers=1,
                    lengths=(LENGTH,), tokens=40)  # fmt: skip


def measured(cases, settings, clock):
    bench = Bench(settings, clock, Results())
    for case in cases:
        case.run(bench)
    return bench.results


def values(results):
    return {key: ratio.value for key, ratio in results.ratios.items()}


def raced(case, settings, monkeypatch):
    """The calls of a case, by name; none of them is timed."""
    found = {}

    def race(self, calls):
        found.update(calls)
        return Timings({name: [1.0] for name in calls})

    monkeypatch.setattr(Bench, "race", race)
    case.run(Bench(settings, CpuClock(), Results()))
    return found


def seconds_of_linear_attention(q, k, v, *, q_angles=None, key_mask=None, segments=None, **_):
    """Of cosFormer with angles; each circumstance has a factor of its own."""
    found = SECONDS["linear_transformer"] if q_angles is None else SECONDS["cosformer"]
    found *= q.shape[2] / LENGTH
    found *= {torch.float32: 1.0, torch.bfloat16: 7.0, torch.float16: 13.0}[q.dtype]
    found *= 1.0 if key_mask is None else 1.25
    return found * (1.0 if segments is None else 1 + len(segments.unique()) / 64)


@pytest.fixture
def op_takes(clock, monkeypatch):
    """The attention cores spend their seconds, and a matrix product four."""
    for name, seconds in (
        ("scaled_dot_product_attention", SECONDS["softmax"]),
        ("linear_attention", seconds_of_linear_attention),
        ("nystrom_attention", SECONDS["nystrom"]),
    ):
        monkeypatch.setattr(cores, name, clock.spends(getattr(cores, name), seconds))
    monkeypatch.setattr(machine, "gemm_size", lambda device: 16)
    monkeypatch.setattr(op, "gemm_call", lambda *_: clock.spends(lambda: None, 4.0))


def test_ratios_of_suite_op(settings, clock, op_takes):
    found = measured(op.cases(settings), settings, clock)
    wanted = {
        f"op/{kind}/{name}/{LENGTH}": SECONDS["softmax"] / SECONDS[name]
        for kind, names in (("causal", cores.CAUSAL), ("bidirectional", cores.BIDIRECTIONAL))
        for name in names
    }
    few, many = 1 + op.FEW / 64, 1 + len(range(LENGTH)) / 64
    wanted |= {
        "op/growth/cosformer": 2.0,
        "op/bf16_over_fp32/cosformer": 7.0,
        "op/mask_over_none/cosformer": 1.25,
        "op/many_documents_over_few/cosformer": many / few,
        # Work of 2 heads of 8 over 96 tokens, in 2 seconds; a product of 16² matrices in 4.
        f"op/gemm_share/cosformer/{LENGTH}": (
            7.7e9 * (2 * 96 * 8**2) / (12 * 4096 * 64**2) / 2.0 / (2 * 16**3 / 4.0)
        ),
    }
    assert values(found) == pytest.approx(wanted)
    assert found.times[f"op/causal/softmax/{LENGTH}"].median == SECONDS["softmax"]


@pytest.mark.parametrize(
    ("dtype", "ratio", "contenders", "words"),
    [
        ("float32", 7.0, {"cosformer-bf16"}, "the bf16 ones are converted from the run's float32"),
        ("bfloat16", 7.0, {"cosformer-fp32"}, "the fp32 ones are converted from the run's bf"),
        ("float16", 7.0, {"cosformer-bf16", "cosformer-fp32"}, "the fp32 and bf16 ones are conv"),
    ],
)
def test_nothing_is_timed_twice(dtype, ratio, contenders, words, settings, clock, op_takes):
    """The contender of the run's own dtype is the plain one."""
    settings = replace(settings, dtype=getattr(torch, dtype))
    found = measured(op.cases(settings)[-1:], settings, clock)
    names = {key.split("/")[2] for key in found.times}
    assert {name for name in names if name.endswith(("16", "32"))} == contenders
    assert found.ratios["op/bf16_over_fp32/cosformer"].value == ratio
    assert words in found.ratios["op/bf16_over_fp32/cosformer"].what


def test_ratios_of_suite_layer(settings, clock, monkeypatch):
    for kind, seconds in ((RobertaLayer, 6.0), (LinearAttnBlock, 4.0)):
        monkeypatch.setattr(kind, "forward", clock.spends(kind.forward, seconds))
    found = measured(layer.cases(settings), settings, clock)
    assert values(found) == {f"layer/cosformer/{LENGTH}": 1.5}


def test_ratios_of_suite_model(settings, clock, monkeypatch):
    monkeypatch.setattr(model, "VOCABULARY", 50)
    for kind, seconds in ((RobertaForMaskedLM, 9.0), (CosformerForMaskedLM, 4.0)):
        monkeypatch.setattr(kind, "forward", clock.spends(kind.forward, seconds))
    found = measured(model.cases(settings), settings, clock)
    assert values(found) == {f"model/cosformer-mlm/{LENGTH}": 2.25}


def test_ratios_of_suite_decode(settings, clock, monkeypatch):
    """Softmax, the decoder in place, and the op as models call it, in one race."""

    class Decoder(RecurrentDecoder):
        def __call__(self, q, k, v, angles=None):
            clock.now += 2.0 if angles is None else 4.0
            return super().__call__(q, k, v, angles)

    def of_op(q, k, v, *, q_angles=None, state=None, **_):
        return 0 if state is None else 5.0 if q_angles is None else 8.0

    monkeypatch.setattr(decode, "RecurrentDecoder", Decoder)
    monkeypatch.setattr(decode, "linear_attention", clock.spends(decode.linear_attention, of_op))
    softmax = clock.spends(decode.scaled_dot_product_attention, 20.0)
    monkeypatch.setattr(decode, "scaled_dot_product_attention", softmax)
    found = measured(decode.steps([LENGTH]), settings, clock)
    assert values(found) == {
        f"decode/linear_transformer/{LENGTH}": 10.0,
        f"decode/cosformer/{LENGTH}": 5.0,
        f"decode_op/linear_transformer/{LENGTH}": 4.0,
        f"decode_op/cosformer/{LENGTH}": 2.5,
    }
    for key, ratio in found.ratios.items():
        in_place = key.startswith("decode/")
        assert ("RecurrentDecoder, in place" in ratio.what) == in_place
        assert ("linear_attention, as models call it" in ratio.what) != in_place


def test_growth_of_a_decode_step(settings, clock, monkeypatch):
    """The longer text's time over the shorter's; with one length there is nothing to compare."""

    class Decoder(RecurrentDecoder):
        def __init__(self, state, *args, turned, **keywords):
            super().__init__(state, *args, turned=turned, **keywords)
            # Sums of positive features grow with the text.
            self.takes = float(state[0, 0, 0, -1])

        def __call__(self, *token):
            clock.now += 3.0 if self.takes > limit else 2.0
            return super().__call__(*token)

    long = 64 * LENGTH
    short_states, long_states = (
        [float(decode.Text(name, settings, n).state[0, 0, 0, -1]) for name in decode.FEATURE_MAPS]
        for n in (LENGTH, long)
    )
    limit = (max(short_states) + min(long_states)) / 2
    assert max(short_states) < min(long_states)
    monkeypatch.setattr(decode, "RecurrentDecoder", Decoder)
    two = replace(settings, lengths=(LENGTH, long))
    flat = decode.cases(two)[2]
    found = measured([flat], two, clock)
    assert values(found) == {f"decode/flat/{name}": 1.5 for name in decode.FEATURE_MAPS}
    found = measured(decode.cases(settings)[1:2], settings, clock)
    assert values(found) == {}
    assert set(found.left_out) == {f"decode/flat/{name}" for name in decode.FEATURE_MAPS}


ALL_CORES = {**cores.BIDIRECTIONAL, "softmax": cores.softmax, "eager": cores.eager_softmax}


@pytest.mark.parametrize(
    ("name", "causal"),
    [(n, c) for n in ALL_CORES for c in (True, False) if (n, c) != ("nystrom", True)],
)
def test_a_call_of_a_core_goes_back_to_all_inputs(name, causal, settings):
    """Its three gradients are those of the formula in float64."""
    inputs = cores.draw(settings, LENGTH)
    wide = [x.detach().double().requires_grad_() for x in inputs.leaves]
    own = {"cosformer": {"max_position_embeddings": LENGTH}, "nystrom": {"num_landmarks": 64}}
    formula = getattr(reference, "softmax" if name == "eager" else name)
    out = formula(*wide, causal=causal, **own.get(name, {}))
    wanted = torch.autograd.grad(out, wide, inputs.grad.double())
    found = cores.forward_backward(ALL_CORES[name], inputs, causal=causal)()
    assert len(found) == 3
    for mine, exact in zip(found, wanted, strict=True):
        assert relative_error(mine, exact) < 1e-4


def test_calls_of_suite_op_go_back(settings, monkeypatch):
    for case in op.cases(settings)[:2]:
        calls = raced(case, settings, monkeypatch)
        gradients = {name: call() for name, call in calls.items()}
        assert set(gradients) >= {"softmax", *cores.CAUSAL}
        for name, found in gradients.items():
            assert [x.shape for x in found] == [(1, 2, LENGTH, 8)] * 3, name
            assert all(x.abs().sum() > 0 for x in found), name


def test_calls_of_suite_layer_go_back_to_input_and_weights(settings, monkeypatch):
    calls = raced(layer.cases(settings)[0], settings, monkeypatch)
    for name, call in calls.items():
        found = call()
        assert found[0].shape == (1, LENGTH, settings.hidden)
        # Four projections and two layers of the MLP, two norms, each with a bias.
        assert len(found) == 1 + 2 * (4 + 2 + 2), name
        assert all(x is not None for x in found), name


@contextmanager
def forward_outputs(kinds):
    """What modules of these classes return, in the order of their calls."""
    found = []

    def keep(module, args, output):
        if isinstance(module, kinds):
            found.append((module, output))

    handle = register_module_forward_hook(keep)
    try:
        yield found
    finally:
        handle.remove()


def test_both_models_predict_every_token(settings, monkeypatch):
    """Heads of one size, over the whole vocabulary, and weights that a step moves."""
    monkeypatch.setattr(model, "VOCABULARY", 50)
    settings = replace(settings, batch=2)
    calls = raced(model.cases(settings)[0], settings, monkeypatch)
    heads = {}
    for name, call in calls.items():
        with forward_outputs((RobertaForMaskedLM, CosformerForMaskedLM)) as outputs:
            call()
            before = [p.detach().clone() for p in outputs[0][0].parameters()]
            call()
        assert [out.logits.shape for _, out in outputs] == [(2, LENGTH, 50)] * 2, name
        found = outputs[0][0]
        moved = [not torch.equal(p, old) for p, old in zip(found.parameters(), before, strict=True)]
        assert all(moved), name
        trunk = f"{found.base_model_prefix}."
        heads[name] = sum(p.numel() for n, p in found.named_parameters() if not n.startswith(trunk))
    assert set(heads) == {"roberta-mlm", "cosformer-mlm"}
    assert len(set(heads.values())) == 1, heads
    assert heads["cosformer-mlm"] > 50


@pytest.mark.parametrize("way", ["in_place", "as_models"])
@pytest.mark.parametrize("name", list(decode.FEATURE_MAPS))
def test_a_decode_step_goes_on_with_the_text(name, way, settings):
    """Its outputs are those of the formula over the text and all that came after it."""
    steps = 3
    seen, new = cores.draw(settings, LENGTH), cores.draw(settings, 1)
    wide = [
        torch.cat((old, *[token] * steps), 2).detach().double()
        for old, token in zip(seen.leaves, new.leaves, strict=True)
    ]
    own = {"max_position_embeddings": 2 * LENGTH} if name == "cosformer" else {}
    wanted = getattr(reference, name)(*wide, causal=True, **own)[:, :, LENGTH:]
    step = getattr(decode.Text(name, settings, LENGTH), way)()
    with torch.no_grad():
        found = torch.cat([step() for _ in range(steps)], 2)
    assert relative_error(found, wanted) < 1e-5


def test_calls_of_suite_decode_attend(settings, monkeypatch):
    """All of them over the same text: softmax without the new token, ours with it."""
    calls = raced(decode.steps([LENGTH])[0], settings, monkeypatch)
    assert set(calls) == {
        "decode/softmax", *(f"{way}/{n}" for way in decode.WAYS for n in decode.FEATURE_MAPS),
    }  # fmt: skip
    seen = cores.draw(settings, LENGTH)
    wide = [x.detach().double() for x in seen.leaves]
    wanted = reference.softmax(*wide, causal=True)[:, :, -1:]
    assert relative_error(calls["decode/softmax"](), wanted) < 1e-5
    with torch.no_grad():
        for name in decode.FEATURE_MAPS:
            one, other = (calls[f"{way}/{name}"]() for way in decode.WAYS)
            assert relative_error(one, other) < 1e-5
