"""Shared set-up: one thread, no network, small models with weights large enough to matter."""

import gc
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

import hf_linear_attn as hla
from tests import deprecations

torch.set_num_threads(1)

VARIANTS = {
    "softmax": (hla.SoftmaxConfig, hla.SoftmaxModel, hla.SoftmaxForMaskedLM),
    "linear_transformer": (
        hla.LinearTransformerConfig,
        hla.LinearTransformerModel,
        hla.LinearTransformerForMaskedLM,
    ),
    "cosformer": (hla.CosformerConfig, hla.CosformerModel, hla.CosformerForMaskedLM),
    "transnormer": (hla.TransNormerConfig, hla.TransNormerModel, hla.TransNormerForMaskedLM),
    "nystrom": (hla.NystromConfig, hla.NystromModel, hla.NystromForMaskedLM),
}

# Sizes at which a mechanism matters on a dozen tokens: several blocks, fewer landmarks than tokens.
OWN = {
    "transnormer": {"block_size": 4},
    "nystrom": {"num_landmarks": 4, "conv_kernel_size": 5},
}


# Every variant that has a causal LM, and a stack of both kinds of cache: (config, model, fields).
CAUSAL_VARIANTS = {
    name: (
        config,
        getattr(hla, config.__name__.replace("Config", "ForCausalLM")),
        OWN.get(name, {}),
    )
    for name, (config, *_) in VARIANTS.items()
    if hasattr(hla, config.__name__.replace("Config", "ForCausalLM"))
}
CAUSAL_VARIANTS["hybrid"] = (
    hla.LinearTransformerConfig,
    hla.LinearTransformerForCausalLM,
    {"layer_attention": ["linear_transformer", "softmax"]},
)

# Initial weights of 0.02 make attention nearly uniform and hide faults.
TINY = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
    "initializer_range": 0.2,
}


def pytest_collection_finish(session):
    """What is imported and collected stays to the end: the collector need not look at it again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session):
    """Libraries that count what is theirs at the end are to find it gone."""
    gc.unfreeze()


def pytest_configure(config):
    deprecations.watch_loggers()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    # Inside of pytest's own recording of warnings, which it hands on to.
    deprecations.watch_warnings()
    return (yield)


@pytest.hookimpl(wrapper=True)
def _without_deprecations(item):
    result = yield
    deprecations.fail()
    return result


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = _without_deprecations


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(params=list(VARIANTS))
def variant(request):
    return request.param


@pytest.fixture
def make_config(variant):
    def make(**fields):
        return VARIANTS[variant][0](**{**TINY, **OWN.get(variant, {}), **fields})

    return make


@pytest.fixture
def make_model(variant, make_config):
    """A masked-LM model in eval mode, seeded; keywords are config fields."""

    def make(seed=0, **fields):
        torch.manual_seed(seed)
        return VARIANTS[variant][2](make_config(**fields)).eval()

    return make


@pytest.fixture(params=list(CAUSAL_VARIANTS))
def decoder_kind(request):
    return request.param


@pytest.fixture
def make_decoder(decoder_kind):
    """A causal LM in eval mode, seeded; keywords are config fields."""
    config_class, model_class, own = CAUSAL_VARIANTS[decoder_kind]

    def make(seed=0, **fields):
        torch.manual_seed(seed)
        return model_class(config_class(**{**TINY, **own, **fields})).eval()

    return make
