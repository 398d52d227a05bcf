"""Offloaded caches: where each tensor goes, and that it is back when it is read.

Seen without a GPU: tensors of PyTorch's fake mode have a device and no numbers. That the tokens
are the same, on a GPU, is a test of `test_gpu.py`.
"""

from unittest import mock

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import DynamicCache

import hf_linear_attn as hla
from hf_linear_attn.models.cache import KeysLayer, Seen, StateLayer, WindowLayer
from hf_linear_attn.models.cache_step import CacheStep
from tests.conftest import TINY
from tests.models.test_cache import held

CPU = torch.device("cpu")


@pytest.fixture
def gpu(monkeypatch):
    """A device that is not there, for as long as a test runs."""
    monkeypatch.setattr(torch.cuda, "default_stream", mock.MagicMock())
    with FakeTensorMode():
        yield torch.device("cuda", 0)


def places(layer):
    """The devices of all that a layer holds."""
    return {x.device for x in held(mock.Mock(layers=[layer])).values()}


@pytest.mark.parametrize("kind", [StateLayer, WindowLayer])
def test_a_state_goes_to_the_cpu_and_back(kind, gpu):
    layer, count = kind(), torch.zeros(3, dtype=torch.long, device=gpu)
    layer.advance(torch.zeros(3, 2, 16, 9, device=gpu), Seen(count, count.clone()), 7)
    assert len(held(mock.Mock(layers=[layer]))) == 3
    for move, place in ((layer.offload, CPU), (layer.prefetch, gpu)):
        move()
        assert places(layer) == {place}


class Mechanism:
    """Attention that sees where its keys and its state are."""

    def __init__(self, place):
        self.place, self.keys = place, []

    def __call__(self, q, k, v, *, state=None, **keywords):
        given = (k, v) if state is None else (k, v, state)
        assert {x.device for x in given} == {self.place}
        self.keys.append(k.shape[2])
        return q, torch.zeros(*k.shape[:2], 16, 17, device=self.place)


@pytest.mark.parametrize(
    "names",
    [
        ["softmax", "softmax", "softmax"],
        ["linear_transformer", "softmax"],
        ["softmax", "linear_transformer"],
        ["softmax", "linear_transformer", "linear_transformer", "softmax"],
    ],
)
def test_keys_wait_on_the_cpu_and_are_read_on_the_gpu(names, gpu):
    """A state stands between two layers of keys, and Transformers would fetch it in their place."""
    fields = {**TINY, "num_hidden_layers": len(names), "layer_attention": names}
    config = hla.LinearTransformerConfig(**fields).settle(is_decoder=True)
    cache = DynamicCache(config=config, offloading=True)
    cache.prefetch_stream = mock.MagicMock()
    mechanisms = [Mechanism(gpu) for _ in names]
    for start, length in ((0, 5), (5, 1), (6, 1), (7, 3)):
        positions = torch.arange(start, start + length, device=gpu).unsqueeze(0)
        mask = torch.ones(1, length, dtype=torch.bool, device=gpu)
        step = CacheStep(cache, mask, positions, batch=1)
        for i, mechanism in enumerate(mechanisms):
            new = torch.zeros(1, 2, length, 16, device=gpu)
            step.attend(mechanism, i, new, new, new, {"key_mask": mask})
            layer = cache.layers[i]
            kept = (layer.keys, layer.values) if isinstance(layer, KeysLayer) else (layer.state,)
            assert {x.device for x in kept} == {CPU if isinstance(layer, KeysLayer) else gpu}
    lengths = {"softmax": [5, 6, 7, 10], "linear_transformer": [5, 1, 1, 3]}
    assert [mechanism.keys for mechanism in mechanisms] == [lengths[name] for name in names]
