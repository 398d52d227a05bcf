"""Uploads to a stand-in of the Hub, and models that come from it. Clients are fresh processes."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import ModelCard
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

import hf_linear_attn as hla
from hf_linear_attn.integrations.config_card import config_card
from hf_linear_attn.integrations.hub import write_folder
from hf_linear_attn.integrations.hub_errors import hub_errors
from tests.conftest import TINY
from tests.hub_standin import READER, Repository, running_hub
from tests.models.exported import ROOT, run_python, run_without_package
from tests.recipes.long_run import write_config

PUSH = """
import sys, torch
import hf_linear_attn as hla
from hf_linear_attn.models.lra import LraForSequenceClassification
from hf_linear_attn.models.lra_config import LraConfig
from tests.conftest import CAUSAL_VARIANTS, OWN, TINY, VARIANTS
from tests.models.exported import expectation, tiny_tokenizer
from tests.models.task_models import HEADS, auto_class, batch, build
from tests.models.test_export_alone import decoder, inputs, masked_lm

torch.set_num_threads(1)
tokenizer, table = tiny_tokenizer(), {}


def push(name, model, auto, given, tokenizer=tokenizer):
    table[f"tester/{name}"] = expectation(model.eval(), auto, given, tokenizer)
    hla.push_to_hub(model, tokenizer, f"tester/{name}", private=name == "cosformer-masked")


for name in VARIANTS:
    push(f"{name}-masked", masked_lm(name), "AutoModelForMaskedLM", inputs())
for name in CAUSAL_VARIANTS:
    push(f"{name}-causal", decoder(name), "AutoModelForCausalLM", inputs())
for head in HEADS:
    given = {k: v for k, v in batch(head).items() if k in ("input_ids", "attention_mask")}
    push(head, build("cosformer", head), auto_class(head).__name__, given)
push("base", hla.TransNormerModel(hla.TransNormerConfig(**TINY)), "AutoModel", inputs())
config = LraConfig(trunk=hla.CosformerConfig(**TINY), num_labels=3)
lra = LraForSequenceClassification(config)
push("lra", lra, "AutoModelForSequenceClassification", inputs(), tokenizer=None)
torch.save(table, "expected.pt")
print("[]")
"""

LOAD = """
import json, torch, transformers
import hf_linear_attn
from tests.models.without_package import scores

for path, expected in torch.load("expected.pt").items():
    model = getattr(transformers, expected["auto"]).from_pretrained(path, dtype="auto").eval()
    assert type(model).__module__.startswith("hf_linear_attn."), path
    assert torch.equal(scores(model(**expected["inputs"])), expected["logits"]), path
    if expected["text"]:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        assert tokenizer(expected["text"])["input_ids"] == expected["ids"]
print("[]")
"""


@pytest.mark.slow
def test_b32_every_kind_of_model_goes_to_the_hub_and_comes_back(tmp_path):
    """Pushed by one process, loaded by one with the package and by one without it: bit-equal."""
    with running_hub() as hub:
        environment = hub.environment()
        run_python(PUSH, home=tmp_path, environment=environment)
        for name, repository in hub.repositories.items():
            assert repository.messages[0] == "initial commit"
            assert len(repository.messages) == 2, name
            assert repository.private == (name == "tester/cosformer-masked")
            files = repository.files()
            assert {"config.json", "model.safetensors", "README.md"} <= files.keys()
            assert {"modeling_hf_linear_attn.py", "hf_linear_attn_code.py"} <= files.keys()
            assert ("tokenizer.json" in files) == (name != "tester/lra")
            card = ModelCard(files["README.md"].decode())
            assert card.data.library_name == "transformers"
            assert f'from_pretrained("{name}", trust_remote_code=True)' in card.text
        run_python(LOAD, home=tmp_path, environment=environment)
        said = run_without_package(tmp_path, home=tmp_path / "other", environment=environment)
        assert said.count("equal") == len(hub.repositories) == 5 + 5 + 4 + 2


MISTAKES = """
import json, os, sys
import hf_linear_attn as hla
from hf_linear_attn.integrations.saved_model import load_saved_model
from tests.conftest import TINY

model = hla.CosformerForMaskedLM(hla.CosformerConfig(**TINY))


def said(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def push(name="tester/a", **options):
    return said(lambda: hla.push_to_hub(model, None, name, **options))


found = {
    "wrong token": push(token="hf_wrong"),
    "reading token": push(token=sys.argv[1]),
    "name": push("tester/a b"),
    "foreign": push(token="hf_test", name="somebody/a"),
    "first": push(private=True, commit_message="The first"),
    "too open": push(private=False),
    "branch": push(revision="v1"),
    "unknown revision": said(lambda: load_saved_model("tester/a", "v2")),
    "no such": said(lambda: load_saved_model("tester/b")),
    "plain": said(lambda: model.push_to_hub("tester/plain", revision="v1", tags=["mine"]) and None),
    "other branch": type(load_saved_model("tester/a", "v1").model).__name__,
}
token = os.environ.pop("HF_TOKEN")
found["no token"] = push()
found["private"] = said(lambda: load_saved_model("tester/a"))
print(json.dumps(found))
"""


@pytest.mark.slow
def test_mistakes_with_the_hub_are_one_sentence_and_leave_nothing(tmp_path):
    with running_hub() as hub:
        found = run_python(MISTAKES, READER, home=tmp_path, environment=hub.environment())
        assert set(hub.repositories) == {"tester/a", "tester/plain", "somebody/a"}
        plain = hub.repositories["tester/plain"].files("v1")
        assert plain.keys() == {".gitattributes", "README.md", "config.json", "model.safetensors"}
        card = ModelCard(plain["README.md"].decode())
        assert card.data.tags == ["cosformer", "linear-attention", "mine"]
        assert 'AutoModelForMaskedLM.from_pretrained("tester/plain", revision="v1")' in card.text
        first = hub.repositories["tester/a"]
        assert first.private
        assert first.messages[1] == "The first"
        assert set(first.branches) == {"main", "v1"}
        assert len(first.messages) == 3
    assert found["wrong token"].startswith("ValueError: the Hub refused the token")
    assert found["reading token"].startswith("ValueError: the token has no right")
    assert "cannot be the name of a repository" in found["name"]
    assert "exists and is private, and public was asked for" in found["too open"]
    assert found["unknown revision"].startswith("ValueError: tester/a has no revision 'v2'")
    assert found["no such"].startswith("ValueError: the Hub has no repository tester/b")
    assert found["no token"].startswith("ValueError: the Hub asks for a token")
    assert found["private"].startswith("ValueError: the Hub has no repository tester/a for you")
    assert found["other branch"] == "CosformerForMaskedLM"
    for name in ("first", "branch", "foreign"):
        assert "/commit/" in found[name]
    assert found.pop("plain") is None
    assert not any("\n" in sentence for sentence in found.values())


FAILING = """
import json
import hf_linear_attn as hla
from tests.conftest import TINY

model = hla.CosformerForMaskedLM(hla.CosformerConfig(**TINY))


def push(name, **options):
    try:
        return hla.push_to_hub(model, None, name, **options)
    except ValueError as error:
        return str(error)


failing = {"commit_message": "fail"}
pushes = push("tester/a", **failing), push("tester/b"), push("tester/b", **failing)
print(json.dumps(pushes))
"""


@pytest.mark.slow
def test_an_upload_that_fails_leaves_no_repository(tmp_path):
    with running_hub() as hub:
        hub.fail_commits = "fail"
        first, second, third = run_python(FAILING, home=tmp_path, environment=hub.environment())
        assert first == "the Hub answered 500 for tester/a: the disk is full"
        assert "/commit/" in second
        assert third == "the Hub answered 500 for tester/b: the disk is full"
        assert set(hub.repositories) == {"tester/b"}
        assert len(hub.repositories["tester/b"].messages) == 2
        gone = hub.environment()
    for said in run_python(FAILING, home=tmp_path, environment=gone):
        assert said.startswith("the Hub cannot be reached for tester/")


def model_of(**fields):
    return hla.CosformerForMaskedLM(hla.CosformerConfig(**{**TINY, **fields}))


def test_offline_nothing_is_tried():
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE is set: unset it to upload to me/a"):
        hla.push_to_hub(model_of(), None, "me/a")
    with pytest.raises(ValueError, match="cannot be the name of a repository"):
        hla.push_to_hub(model_of(), None, "a b")


def test_other_errors_stay_what_they_are():
    with pytest.raises(ValueError, match=r"^mine$"), hub_errors("me/a"):
        raise ValueError("mine")
    with pytest.raises(KeyError), hub_errors("me/a"):
        raise KeyError("x")


def answer(kind, status):
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    return kind("as the Hub has it", response=response)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (answer(GatedRepoError, 403), "is given to people who asked its author for access"),
        (answer(RepositoryNotFoundError, 404), "the Hub has no repository me/a for you"),
        (answer(HfHubHTTPError, 403), "the token has no right"),
        (answer(HfHubHTTPError, 503), "the Hub answered 503 for me/a"),
        (OfflineModeIsEnabled("no"), "HF_HUB_OFFLINE keeps the Hub from being asked"),
    ],
)
def test_an_answer_of_the_hub_is_a_sentence(error, message):
    with pytest.raises(ValueError, match=message), hub_errors("me/a"):
        raise error


def test_what_is_not_the_hubs_is_not_explained_by_it():
    with pytest.raises(ConnectionRefusedError, match="tracking"), hub_errors("me/a"):
        raise ConnectionRefusedError("a tracking server")
    uploading = hub_errors("me/a", uploading=True)
    with pytest.raises(ValueError, match=r"^HF_HUB_OFFLINE is set: unset it to upload"), uploading:
        raise OfflineModeIsEnabled("no")


def test_what_is_around_a_model_is_taken_off_first(tmp_path):
    class Adapted:
        def merge_and_unload(self): ...

    for model, message in (
        (SimpleNamespace(_orig_mod=model_of()), "compiled: give model._orig_mod"),
        (Adapted(), "adapters: give model.merge_and_unload"),
        (torch.nn.Linear(1, 1), "Linear is not a model of hf_linear_attn; share it by its own"),
    ):
        with pytest.raises(ValueError, match=message):
            write_folder(tmp_path, model, None, where="me/a", with_code=True, card=None)
    assert list(tmp_path.iterdir()) == []


def test_the_card_of_a_config_says_what_the_model_is():
    model = model_of(layer_attention=["cosformer", "softmax"])
    card = ModelCard(config_card(model, "me/a", with_code=True, has_tokenizer=True))
    assert card.data.pipeline_tag == "fill-mask"
    assert card.data.tags == ["cosformer", "linear-attention"]
    assert 'AutoTokenizer.from_pretrained("me/a", trust_remote_code=True)' in card.text
    assert "22,596 parameters" in card.text
    assert "qin2022cosformer" in card.text
    assert "vaswani" in card.text
    bare = config_card(model, "me/a", with_code=False, has_tokenizer=False)
    assert "trust_remote_code" not in bare
    assert "AutoTokenizer" not in bare
    assert "pipeline_tag" not in bare
    assert json.loads(json.dumps(ModelCard(bare).data.to_dict()))


@pytest.mark.slow
def test_a_recipe_shares_model_tokenizer_and_card_or_says_in_a_line_why_not(tmp_path):
    words = ["--config", str(write_config(tmp_path, max_steps=2)), "--push_to_hub"]
    words = [sys.executable, "recipes/mlm.py", *words, "--hub_model_id", "tester/run"]

    def launched(out, environment):
        run = subprocess.run(
            [*words, "--output_dir", str(tmp_path / out)], cwd=ROOT, capture_output=True, text=True,
            env=os.environ | {"HF_HOME": str(tmp_path / "home")} | environment,
        )  # fmt: skip
        assert "Traceback" not in run.stderr
        return run.returncode, (run.stderr.strip().split("\n") or [""])[-1]

    with running_hub() as hub:
        code, said = launched("run", hub.environment("hf_wrong"))
        assert code == 2
        assert said.startswith("error: the Hub refused the token, or got none, for tester/run")
        assert hub.repositories == {}
        repository = hub.repositories["tester/run"] = Repository(private=False)
        repository.commit("main", {".gitattributes": b""}, "initial commit")
        code, said = launched("run", hub.environment(READER))
        assert code == 2
        assert said.startswith("error: the token has no right to do this to tester/run")
        assert not (tmp_path / "run").exists()
        hub.fail_commits = True
        code, said = launched("run", hub.environment())
        assert code == 2
        assert said == (
            "error: the Hub answered 500 for tester/run: the disk is full. The trained model is in "
            f"{tmp_path / 'run'}; the same command again uploads it, without training."
        )
        hub.fail_commits = False
        code, said = launched("run", hub.environment())
        assert code == 0, said
        files = hub.repositories["tester/run"].files()
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= files.keys()
    assert 'from_pretrained("tester/run")' in files["README.md"].decode()
