"""The benchmark's long generation: a step that leaves something behind is seen."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hf_linear_attn.models.cache import StateLayer

# The program's own modules are found beside it, as when it is run.
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from benchmarks import generation, report, resident
from benchmarks.bench import Bench, Settings
from benchmarks.clock import CpuClock
from benchmarks.results import Results

pytestmark = pytest.mark.slow
TOKENS, LEAK = 150, 2**26
"""bytes: more than an allocator takes of memory the process has already, 32 MiB at most"""


@pytest.fixture
def settings():
    return Settings(torch.device("cpu"), torch.float32, rounds=1, tokens=40)


def generated(settings):
    """The results of a generation."""
    bench = Bench(settings, CpuClock(), Results())
    generation.generation(settings).run(bench)
    return bench.results


def values(results):
    return {key: ratio.value for key, ratio in results.ratios.items()}


@pytest.fixture
def leaky(monkeypatch):
    """The hundredth token of a text leaves 64 MiB behind."""
    kept, advance = [], StateLayer.advance

    def leaking(self, *args):
        advance(self, *args)
        if self.seq_length == 100:
            kept.append(torch.ones(LEAK // 4))

    monkeypatch.setattr(StateLayer, "advance", leaking)


def test_a_leak_of_a_step_is_seen(settings, leaky):
    """Also where the process has been larger before."""
    settings = replace(settings, tokens=TOKENS)
    before = torch.ones(2 * LEAK // 4)
    del before
    found = generated(settings)
    assert found.sizes[f"decode/resident_growth/{TOKENS}"] > 0.9 * LEAK


def test_nothing_grows_without_a_leak(settings):
    settings = replace(settings, tokens=TOKENS)
    found = generated(settings)
    assert abs(found.sizes[f"decode/resident_growth/{TOKENS}"]) < 0.5 * LEAK
    assert values(found) == {f"decode/state_growth/{TOKENS}": 1.0}
    assert found.left_out == {}


def test_a_cache_that_grows_is_seen(settings, monkeypatch):
    """Wherever in the cache it keeps what it keeps."""
    advance = StateLayer.advance

    def keeping(self, state, *args):
        self.__dict__.setdefault("old", {"states": []})["states"].append((state,))
        return advance(self, state, *args)

    monkeypatch.setattr(StateLayer, "advance", keeping)
    assert values(generated(settings))["decode/state_growth/40"] > 5


def test_tensors_are_counted_once_wherever_they_are():
    class Thing:
        pass

    thing, one = Thing(), torch.ones(100)
    thing.direct, thing.view = one, one[:10]
    thing.listed, thing.nested = [torch.ones(10)], {"a": ({"b": torch.ones(1)},)}
    thing.method, thing.itself = thing.__init__, thing
    assert resident.tensor_bytes(thing) == 4 * 111
    assert resident.tensor_bytes([thing, torch.ones(5)]) == 4 * 116


def test_the_resident_size_is_the_present_one():
    before = resident.resident_bytes()
    kept = torch.ones(2**24)
    with_it = resident.resident_bytes()
    del kept
    assert 0.9 * 2**26 < with_it - before < 1.5 * 2**26
    assert resident.resident_bytes() < with_it - 0.9 * 2**26


def test_the_resident_size_elsewhere(monkeypatch):
    """psutil tells it, or nothing does."""
    here = resident.resident_bytes()
    monkeypatch.setattr(resident, "_STATM", Path("not/there"))
    pytest.importorskip("psutil")
    assert 0.5 * here < resident.resident_bytes() < 2 * here
    monkeypatch.setattr(resident.importlib.util, "find_spec", lambda name: None)
    assert resident.resident_bytes() is None


def test_what_cannot_be_measured_is_left_out_with_why(settings, monkeypatch):
    monkeypatch.setattr(generation, "resident_bytes", lambda: None)
    found = generated(settings)
    assert "decode/resident_growth/40" not in found.sizes
    assert "install psutil" in found.left_out["decode/resident_growth/40"]
    assert values(found) == {"decode/state_growth/40": 1.0}
    assert "Left out: decode/resident_growth/40: " in report.left_out_lines(found)[0]


def test_the_shortest_text_has_none_to_compare_with(settings):
    found = generated(replace(settings, tokens=2))
    assert set(found.left_out) == {"decode/resident_growth/2", "decode/state_growth/2"}
    assert values(found) == {}
    assert set(generated(replace(settings, tokens=3)).ratios) == {"decode/state_growth/3"}
