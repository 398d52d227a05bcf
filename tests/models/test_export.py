"""Code that travels with a model, in a process that has the package; without: test_export_alone."""

import ast
import copy
import json
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel
from transformers import dynamic_module_utils as remote

import hf_linear_attn as hla
from hf_linear_attn.attention import registry
from hf_linear_attn.models import AUTO_CLASSES, bundling, export
from hf_linear_attn.models.entry_file import CODE, ENTRY, PYTHON, TRANSFORMERS
from tests.conftest import CAUSAL_VARIANTS, OWN, TINY, VARIANTS

FILES = {f"{CODE}.py", f"{ENTRY}.py"}
ALLOWED = {"torch", "transformers", "huggingface_hub", "safetensors", "packaging"}


@pytest.fixture(scope="module")
def copied_code(tmp_path_factory):
    """Transformers copies code there before it runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("copied-code")))
        patch.setattr(sys, "path", [*sys.path])
        yield


@pytest.fixture
def code_cache(tmp_path, copied_code):
    """A folder of the test's own name: a process has one copy of code for each name."""
    return tmp_path / tmp_path.name


def tiny(kind="cosformer", **fields):
    torch.manual_seed(0)
    config_class, _, model_class = VARIANTS[kind]
    return model_class(config_class(**{**TINY, **OWN.get(kind, {}), **fields})).eval()


def ids():
    return torch.randint(5, 100, (2, 12))


def saved_map(folder):
    return json.loads((folder / "config.json").read_text()).get("auto_map")


def test_every_head_is_in_the_map_whichever_was_saved(make_model, variant):
    stem = VARIANTS[variant][0].__name__.removesuffix("Config")
    wanted = {a.__name__: f"{ENTRY}.{stem}{head}" for head, a in AUTO_CLASSES.items()}
    wanted["AutoConfig"] = f"{ENTRY}.{stem}Config"
    assert export.auto_map(make_model().config) == wanted


def test_without_asking_a_folder_has_no_code(tmp_path):
    model = tiny()
    before = copy.deepcopy(model.config.to_dict())
    model.save_pretrained(tmp_path / "with", with_code=True)
    assert saved_map(tmp_path / "with") == export.auto_map(model.config)
    assert {file.name for file in (tmp_path / "with").glob("*.py")} == FILES
    assert {**model.config.to_dict(), "architectures": None, "dtype": None} == {
        **before, "architectures": None, "dtype": None,
    }  # fmt: skip
    model.save_pretrained(tmp_path / "plain")
    assert saved_map(tmp_path / "plain") is None
    assert list((tmp_path / "plain").glob("*.py")) == []


def test_b32_the_code_imports_nothing_that_could_be_missing(tmp_path):
    """Asked of Transformers' own reading of the files; it also looks inside functions."""
    export.write_code(tmp_path, hla.models.LraConfig())  # it needs the modules of all others
    standard = sys.stdlib_module_names
    for name in FILES:
        assert set(remote.get_imports(tmp_path / name)) - standard <= ALLOWED, name
    assert remote.get_relative_imports(tmp_path / f"{ENTRY}.py") == [CODE]
    assert remote.get_relative_imports(tmp_path / f"{CODE}.py") == []
    notice = (tmp_path / f"{CODE}.py").read_text().split('"""')[0]
    assert hla.__version__ in notice
    assert "Apache License, Version 2.0" in notice


def test_a_name_in_the_code_has_one_meaning(tmp_path):
    tree = ast.parse(bundling.bundle("hf_linear_attn.models.lra"))
    made = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    made = [name for name in made if name != "_"]
    assert sorted(set(made)) == sorted(made)
    imported = {}
    for node in (n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)):
        for alias in node.names:
            bound = alias.asname or alias.name
            text = ast.dump(node) if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            assert imported.setdefault(bound, text) == text
    assert not set(imported) & set(made)


SOURCES = {
    "a": "import logging\n\n__all__ = ['f']\n\n\ndef _g(x):\n    return x + 1\n\n\n"
    "def f(x):\n    return _g(x)\n",
    "b": "from transformers.utils import logging\n\nfrom hf_linear_attn.a import f as ff\n\n"
    "_é, _g = logging, 2\n\n\ndef h(g):\n    from hf_linear_attn.c import late\n\n"
    "    return late(ff(_g)) if _é is logging else 0\n",
    "c": "from hf_linear_attn.a import _g as other\n\n\ndef late(x):\n    return 10 * other(x)\n",
}


def test_modules_that_use_a_name_differently_are_one_file(monkeypatch):
    monkeypatch.setattr(bundling, "_source", lambda name: SOURCES[name.split(".")[1]])
    names: dict = {}
    exec(bundling.bundle.__wrapped__("hf_linear_attn.b"), names)
    assert names["h"](None) == 10 * ((2 + 1) + 1)
    assert names["f"](5) == 6
    assert "hf_linear_attn.a import" not in bundling.bundle.__wrapped__("hf_linear_attn.b")


@pytest.mark.parametrize(
    "text",
    [
        "from hf_linear_attn import push_to_hub\n",
        "import hf_linear_attn.backend\n",
        "from hf_linear_attn.ops import scan\n",
        "from .ops import scan\n",
    ],
)
def test_imports_that_have_no_place_in_one_file_are_refused(monkeypatch, text):
    monkeypatch.setattr(bundling, "_source", lambda name: text)
    with pytest.raises(RuntimeError, match="imports as"):
        bundling.bundle.__wrapped__("hf_linear_attn.a")


@pytest.mark.parametrize(
    "body", ["def h(_g):\n    return _g\n", "def h():\n    _g = 1\n    return _g\n"]
)
def test_a_shared_name_that_is_local_elsewhere_is_refused(monkeypatch, body):
    text = f"from hf_linear_attn.a import f\n\n_g = 1\n\n\n{body}"
    sources = {**SOURCES, "b": text}
    monkeypatch.setattr(bundling, "_source", lambda name: sources[name.split(".")[1]])
    with pytest.raises(RuntimeError, match="_g means two things"):
        bundling.bundle.__wrapped__("hf_linear_attn.b")


def test_what_the_code_asks_for_is_what_the_package_asks_for():
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert f"transformers{TRANSFORMERS}" in project["dependencies"]
    assert project["requires-python"] == ">=" + ".".join(map(str, PYTHON))
    assert project["version"] == hla.__version__


def test_the_package_loads_an_exported_folder_by_its_own_classes(tmp_path, code_cache):
    model, x = tiny(), ids()
    model.save_pretrained(tmp_path / "m", with_code=True)
    for flag in (None, False, True):
        loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "m", trust_remote_code=flag)
        assert type(loaded) is type(model)
        assert torch.equal(loaded.eval()(input_ids=x).logits, model(input_ids=x).logits)
    # It came with code and goes on with it, unless it is told not to.
    loaded.save_pretrained(tmp_path / "again")
    assert saved_map(tmp_path / "again") == saved_map(tmp_path / "m")
    for name in FILES:
        assert (tmp_path / "again" / name).read_text() == (tmp_path / "m" / name).read_text()
    loaded.save_pretrained(tmp_path / "bare", with_code=False)
    assert saved_map(tmp_path / "bare") is None
    loaded.config.save_pretrained(tmp_path / "config")
    assert {f.name for f in (tmp_path / "config").iterdir()} == FILES | {"config.json"}


def carried_class(folder, auto):
    """A class of the folder's code, which is taken where the installed package is older."""
    reference = saved_map(folder)[auto]
    return remote.get_class_from_dynamic_module(reference, str(folder))


def test_the_entry_prefers_a_package_that_is_not_older(tmp_path, code_cache, monkeypatch, caplog):
    one, two = code_cache.with_suffix(".one"), code_cache.with_suffix(".two")
    tiny().save_pretrained(one, with_code=True)
    assert carried_class(one, "AutoModelForMaskedLM") is hla.CosformerForMaskedLM
    monkeypatch.setattr(hla, "__version__", "0.0.9")
    tiny().save_pretrained(two, with_code=True)
    found = carried_class(two, "AutoModelForMaskedLM")
    assert found is not hla.CosformerForMaskedLM
    assert "0.0.9 is older" in caplog.text


def test_copies_of_the_code_live_beside_each_other(tmp_path, code_cache, monkeypatch):
    """Two folders with the same code and the package: operators, cache layers, classes apart."""
    config_class, model_class, own = CAUSAL_VARIANTS["transnormer"]
    model = model_class(config_class(**{**TINY, **own})).eval()
    x = ids()
    wanted = model.generate(x, max_new_tokens=6, do_sample=False)
    logits = model(input_ids=x).logits
    monkeypatch.setattr(hla, "__version__", "0.0.9")
    folders, copies = [code_cache.with_suffix(f".{i}") for i in range(2)], []
    for folder in folders:
        model.save_pretrained(folder, with_code=True)
        copy_class = carried_class(folder, "AutoModelForCausalLM")
        copies.append(copy_class.from_pretrained(folder).eval())
    one, two = copies
    assert len({type(one), type(two), type(model)}) == 3
    for loaded in (two, one, model):
        assert torch.equal(loaded(input_ids=x).logits, logits)
        assert torch.equal(loaded.generate(x, max_new_tokens=6, do_sample=False), wanted)
        layer = loaded(input_ids=x, use_cache=True).cache.layers[0]
        assert type(layer).__module__.split(".")[:2] == type(loaded).__module__.split(".")[:2]
    # What came with code is saved with that code, by the code itself.
    one.save_pretrained(tmp_path / "three")
    for name in FILES:
        assert (tmp_path / "three" / name).read_text() == (folders[0] / name).read_text()
    assert saved_map(tmp_path / "three") == saved_map(folders[0])


class Unknown(hla.CosformerAttention):
    """A mechanism of somebody's own."""


def test_code_from_elsewhere_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.ATTENTION, "unknown", Unknown)
    model = tiny(layer_attention=["cosformer", "unknown"])
    with pytest.raises(ValueError, match=r"Unknown of tests\.models\.test_export, which is not"):
        model.save_pretrained(tmp_path / "m", with_code=True)
    assert not (tmp_path / "m").exists()
    assert getattr(model.config, "auto_map", None) is None
    model.save_pretrained(tmp_path / "m")


class Louder(hla.CosformerForMaskedLM):
    """A class of somebody's own."""


def louder():
    return Louder(hla.CosformerConfig(**TINY))


def test_somebodys_own_class_is_not_saved_as_ours(tmp_path, caplog):
    """Loaded by our code it would be another function, without a word."""
    model = louder()
    with pytest.raises(ValueError, match=r"also needs Louder of tests\.models\.test_export"):
        model.save_pretrained(tmp_path / "m", with_code=True)
    assert not (tmp_path / "m").exists()
    tiny().save_pretrained(tmp_path / "code", with_code=True)
    loaded = Louder.from_pretrained(tmp_path / "code")
    assert export.names_code(loaded.config)
    loaded.save_pretrained(tmp_path / "m")
    assert "Louder is saved without code" in caplog.text
    assert saved_map(tmp_path / "m") is None
    assert [file.name for file in (tmp_path / "m").glob("*.py")] == []
    assert export.names_code(loaded.config)


def test_somebodys_own_class_is_registered_as_transformers_does_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Louder, "_auto_class", None)
    Louder.register_for_auto_class("AutoModelForMaskedLM")
    assert not Louder.takes_code
    monkeypatch.setattr("transformers.modeling_utils.custom_object_save", own_file)
    louder().save_pretrained(tmp_path)
    assert saved_map(tmp_path) == {"AutoModelForMaskedLM": "mine.Louder"}
    assert [file.name for file in tmp_path.glob("*.py")] == []


def own_file(model, folder, config):
    config.auto_map = {"AutoModelForMaskedLM": f"mine.{type(model).__name__}"}


def test_what_pytorch_puts_before_a_class_is_no_code_of_its_own(tmp_path):
    """`fully_shard` gives a model such a class."""
    model = tiny()
    model.__class__ = type("FSDPCosformer", (type(model),), {"__module__": "torch.distributed.x"})
    assert export.code_from_elsewhere(model.config, type(model)) is None


def test_a_users_own_entries_of_the_map_stay(tmp_path):
    model = tiny()
    model.config.auto_map = {"AutoTokenizer": ["mine.Tokenizer", None]}
    model.save_pretrained(tmp_path / "plain")
    assert saved_map(tmp_path / "plain") == {"AutoTokenizer": ["mine.Tokenizer", None]}
    assert list((tmp_path / "plain").glob("*.py")) == []
    model.save_pretrained(tmp_path / "code", with_code=True)
    both = {**export.auto_map(model.config), "AutoTokenizer": ["mine.Tokenizer", None]}
    assert saved_map(tmp_path / "code") == both
    assert model.config.auto_map == {"AutoTokenizer": ["mine.Tokenizer", None]}
    # From the Hub the entries come with the repository's name, and go on without it.
    prefixed = {auto: f"me/a--{name}" for auto, name in export.auto_map(model.config).items()}
    model.config.auto_map = prefixed
    model.config.save_pretrained(tmp_path / "config")
    assert saved_map(tmp_path / "config") == export.auto_map(model.config)
    model.config.auto_map = prefixed
    model.save_pretrained(tmp_path / "bare", with_code=False)
    assert saved_map(tmp_path / "bare") is None
    with pytest.raises(ValueError, match="with_code is 'no'; expected True, False or None"):
        model.save_pretrained(tmp_path / "no", with_code="no")


def test_a_config_that_names_code_refuses_code_from_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.ATTENTION, "unknown", Unknown)
    config = tiny(layer_attention=["cosformer", "unknown"]).config
    config.auto_map = export.auto_map(config)
    with pytest.raises(ValueError, match="Unknown of"):
        config.save_pretrained(tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_file_that_is_not_ours_stays(tmp_path):
    (tmp_path / f"{ENTRY}.py").write_text("mine = 1\n")
    with pytest.raises(ValueError, match="not a file of hf_linear_attn"):
        tiny().save_pretrained(tmp_path, with_code=True)
    assert [file.name for file in tmp_path.iterdir()] == [f"{ENTRY}.py"]
    assert (tmp_path / f"{ENTRY}.py").read_text() == "mine = 1\n"


def test_another_export_is_replaced(tmp_path):
    tiny("softmax").save_pretrained(tmp_path, with_code=True)
    tiny().save_pretrained(tmp_path, with_code=True)
    assert "CosformerForMaskedLM" in (tmp_path / f"{ENTRY}.py").read_text()
    assert saved_map(tmp_path)["AutoModel"] == f"{ENTRY}.CosformerModel"


def test_code_that_cannot_be_written_leaves_no_config(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("no space left")

    model = tiny()
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        model.save_pretrained(tmp_path / "m", with_code=True)
    assert list((tmp_path / "m").iterdir()) == []
    assert getattr(model.config, "auto_map", None) is None


def test_registering_a_class_takes_its_code_along(tmp_path, monkeypatch):
    monkeypatch.setattr(hla.SoftmaxForMaskedLM, "takes_code", False)
    hla.SoftmaxForMaskedLM.register_for_auto_class("AutoModelForMaskedLM")
    hla.SoftmaxConfig.register_for_auto_class()
    tiny("softmax").save_pretrained(tmp_path / "m")
    assert saved_map(tmp_path / "m")["AutoModelForMaskedLM"] == f"{ENTRY}.SoftmaxForMaskedLM"
    assert {file.name for file in (tmp_path / "m").glob("*.py")} == FILES
    tiny().save_pretrained(tmp_path / "other")
    assert saved_map(tmp_path / "other") is None
    with pytest.raises(ValueError, match="not a valid auto class"):
        hla.SoftmaxForMaskedLM.register_for_auto_class("AutoModelForPoetry")


def test_a_config_with_code_is_not_uploaded_by_halves(tmp_path):
    tiny().save_pretrained(tmp_path, with_code=True)
    config = AutoConfig.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="use push_to_hub"):
        config.save_pretrained(tmp_path / "config", push_to_hub=True)


def test_a_causal_head_of_a_decoder_comes_back(tmp_path):
    config_class, model_class, own = CAUSAL_VARIANTS["hybrid"]
    model = model_class(config_class(**{**TINY, **own})).eval()
    model.generation_config.max_new_tokens = 3
    model.save_pretrained(tmp_path, with_code=True)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(loaded, PreTrainedModel)
    assert loaded.generation_config.max_new_tokens == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transnormer", "hybrid"])
def test_the_code_trains_and_compiles_as_the_package_does(kind, code_cache, monkeypatch):
    config_class, model_class, own = CAUSAL_VARIANTS[kind]
    torch.manual_seed(0)
    model = model_class(config_class(**{**TINY, **own, "hidden_dropout_prob": 0.0}))
    x = ids()
    monkeypatch.setattr(hla, "__version__", "0.0.9")
    model.save_pretrained(code_cache, with_code=True)
    twin = carried_class(code_cache, "AutoModelForCausalLM").from_pretrained(code_cache)
    assert type(twin).__module__.startswith("transformers_modules.")
    for checkpointing in (False, True):
        if checkpointing:
            twin.activation_checkpointing_enable()
        for each in (model, twin):
            each.train().zero_grad()
            each(input_ids=x, labels=x).loss.backward()
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad)
    twin.activation_checkpointing_disable()
    torch._dynamo.reset()
    compiled = torch.compile(twin.eval(), fullgraph=True, backend="aot_eager", dynamic=True)
    with torch.no_grad():
        for length in (12, 9):
            found = compiled(input_ids=x[:, :length], use_cache=False).logits
            wanted = model.eval()(input_ids=x[:, :length], use_cache=False).logits
            assert torch.allclose(found, wanted, atol=1e-5)
