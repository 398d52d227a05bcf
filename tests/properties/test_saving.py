"""Random models come back as they were saved: config, every weight, every way of loading."""

import tempfile

import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForSequenceClassification

from tests.errors import relative_error
from tests.properties.choices import evenly
from tests.properties.examples import examples
from tests.properties.model_cases import FIRST_WORD, models, output_of

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
TOLERANCE = dict(zip(DTYPES, (1e-5, 1e-12, 5e-2, 5e-2), strict=True))
# Facts of the copy, not of the config.
OF_THE_COPY = ("transformers_version", "architectures", "dtype")
LOADING = {
    "dtype": evenly(["auto", *DTYPES]),
    "device_map": evenly(["cpu", "auto", {"": "cpu"}]),
    "low_cpu_mem_usage": st.booleans(),
    "use_safetensors": st.just(True),
}


def fields_of(config):
    fields = config.to_dict()
    return {k: v for k, v in fields.items() if k not in OF_THE_COPY and not k.startswith("_")}


@examples(200)
@given(case=models())
def test_a_config_comes_back(case):
    config = case.config_class(**case.fields)
    again = case.config_class.from_dict(config.to_dict())
    assert fields_of(again) == fields_of(config)
    settled = config.settle(is_decoder=case.is_decoder)
    assert fields_of(settled.settle()) == fields_of(settled)
    for each in (config, settled):
        with tempfile.TemporaryDirectory() as folder:
            each.save_pretrained(folder)
            loaded = AutoConfig.from_pretrained(folder)
        assert type(loaded) is case.config_class
        assert fields_of(loaded) == fields_of(each)


def cast(model, dtype):
    """The model in another dtype; 16 bits would make another function of rotations."""
    model = model.to(dtype)
    for name, tensor in model.state_dict().items():
        fits = tensor.dtype.itemsize >= 4 if ".rotary." in name else tensor.dtype == dtype
        assert fits, name
    return model


def check_weights(loaded, saved, dtype):
    """The same names; every tensor bit for bit, or cast to what was asked for."""
    state = loaded.state_dict()
    assert state.keys() == saved.keys()
    for name, tensor in saved.items():
        found = state[name]
        if ".rotary." in name:
            assert found.dtype.itemsize >= 4, name
        elif dtype is not None:
            assert found.dtype == dtype, name
        assert torch.equal(found, tensor.to(found.dtype)), name


@examples(100)
@given(
    case=models(),
    dtype=evenly(DTYPES),
    shard=st.sampled_from([None, "1KB", "20KB"]),
    loading=st.fixed_dictionaries({}, optional=LOADING),
    auto=st.booleans(),
)
def test_weights_come_back(case, dtype, shard, loading, auto):
    model = cast(case.build(), dtype)
    saved = {name: x.clone() for name, x in model.state_dict().items()}
    loader = case.model_class
    if auto:
        loader = getattr(transformers, "AutoModel" + case.head.removeprefix("Model"))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
        loaded, info = loader.from_pretrained(folder, output_loading_info=True, **loading)
    assert type(loaded) is case.model_class
    assert not any(info.values()), info
    asked = loading.get("dtype", "auto")
    check_weights(loaded, saved, dtype if asked == "auto" else asked)
    assert fields_of(loaded.config) == fields_of(model.config)
    if asked in ("auto", dtype):
        ids = torch.randint(FIRST_WORD, model.config.vocab_size, (2, 7))
        mask = torch.ones_like(ids)
        before, after = (
            output_of(m.eval(), case.head, input_ids=ids, attention_mask=mask)
            for m in (model, loaded)
        )
        # Where a tensor lies in memory changes the order of sums.
        assert relative_error(after, before) <= TOLERANCE[dtype]


@examples(50)
@given(case=models(["Model", "ForMaskedLM", "ForCausalLM"]), dtype=evenly(DTYPES))
def test_another_head_changes_the_head_alone(case, dtype):
    model = cast(case.build(), dtype)
    trunk = model if case.head == "Model" else model.model
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded, info = AutoModelForSequenceClassification.from_pretrained(
            folder, output_loading_info=True
        )
    assert all(name.startswith("classifier.") for name in info["missing_keys"])
    assert all(name.startswith("lm_head") for name in info["unexpected_keys"])
    assert loaded.config.is_decoder == case.is_decoder
    check_weights(loaded.model, trunk.state_dict(), dtype)
