"""Uploads to repositories that have something in them already. The client is a fresh process."""

import pytest

from hf_linear_attn.models.entry_file import CODE, ENTRY
from tests.hub_standin import Repository, running_hub
from tests.models.exported import run_python

CODES = {f"{CODE}.py", f"{ENTRY}.py"}

CLIENT = """
import io, json, os
from contextlib import redirect_stdout
import torch
from huggingface_hub import HfApi, ModelCard, hf_hub_download
from transformers.utils.hub import create_and_tag_model_card
import hf_linear_attn as hla
from hf_linear_attn.integrations.saved_model import load_saved_model
from scripts import export
from tests.conftest import TINY
from tests.models.exported import tiny_tokenizer

api, tokenizer = HfApi(), tiny_tokenizer()
model, other = (hla.CosformerForMaskedLM(hla.CosformerConfig(**TINY)) for _ in range(2))
found = {}


class Louder(hla.CosformerForMaskedLM):
    pass


def said(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def start(name, change):
    api.create_repo(name)
    text = change(str(create_and_tag_model_card(name, ["asked"])))
    api.upload_file(path_or_fileobj=text.encode(), path_in_repo="README.md", repo_id=name)


def with_licence(text):
    return text.replace("tags:", "license: mit\\ntags:", 1)


# cards
start("tester/mine", lambda t: with_licence(t).replace("[More Information Needed]", "Weeks.", 1))
model.push_to_hub("tester/mine")
hla.push_to_hub(model, tokenizer, "tester/mine")
start("tester/empty", with_licence)
model.push_to_hub("tester/empty")
tokenizer.push_to_hub("tester/words")
model.push_to_hub("tester/words", revision="v1")
hla.push_to_hub(model, tokenizer, "tester/words")
hla.push_to_hub(model, None, "tester/told", card="# First")
hla.push_to_hub(model, None, "tester/told")
hla.push_to_hub(model, None, "tester/retold", card="# First")
hla.push_to_hub(model, None, "tester/retold", card="# Second")

# failures
hla.push_to_hub(model, None, "tester/a")
failing = {"commit_message": "fail"}
for branch, push in (("one", lambda **o: hla.push_to_hub(model, None, "tester/a", **o)),
                     ("two", lambda **o: model.push_to_hub("tester/a", **o))):
    found[branch] = said(lambda: push(revision=branch, **failing))
found["closed"] = said(lambda: hla.push_to_hub(model, None, "tester/closed"))
found["closed, plain"] = said(lambda: model.push_to_hub("tester/closed") and None)
found["new"] = said(lambda: model.push_to_hub("tester/new", **failing))
found["name"] = said(lambda: model.push_to_hub("a b"))
found["token"] = said(lambda: model.push_to_hub("tester/new", token="hf_wrong"))
found["bad branch"] = said(lambda: hla.push_to_hub(model, None, "tester/a", revision="a b"))
found["somebody's"] = said(lambda: hla.push_to_hub(Louder(model.config), None, "tester/new"))
Louder(model.config).push_to_hub("tester/louder")
model.push_to_hub("tester/plain-code", with_code=True)

# what was there before
hla.push_to_hub(model, tokenizer, "tester/b")
big = type(other).save_pretrained
type(other).save_pretrained = lambda self, *a, **k: big(self, *a, max_shard_size="20KB", **k)
hla.push_to_hub(other, None, "tester/b", with_code=False)
type(other).save_pretrained = big
loaded = load_saved_model("tester/b").model
one, two = (each.model.embed_tokens.weight for each in (loaded, other))
found["new weights"] = torch.equal(one, two)
head = hla.CosformerForSequenceClassification(hla.CosformerConfig(**TINY))
hla.push_to_hub(head, tokenizer, "tester/c")
hla.push_to_hub(model, tokenizer, "tester/c")

# branches
hla.push_to_hub(model, None, "tester/d")
hla.push_to_hub(other, None, "tester/d", revision="v1")
for revision, wanted in ((None, model), ("v1", other)):
    loaded = load_saved_model("tester/d", revision).model
    found[f"weights of {revision}"] = all(
        torch.equal(one, two) for one, two in zip(loaded.parameters(), wanted.parameters())
    )

# the program
model.save_pretrained("run")
with redirect_stdout(io.StringIO()) as out:
    export.main("run --push_to_hub --hub_model_id tester/e --hub_revision v1".split())
found["export"] = out.getvalue()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_second_upload_replaces_what_it_should_and_keeps_what_people_wrote(tmp_path):
    with running_hub() as hub:
        hub.fail_commits = "fail"
        closed = hub.repositories["tester/closed"] = Repository(private=False)
        closed.commit("main", {".gitattributes": b""}, "initial commit")
        hub.closed = {"tester/closed"}
        found = run_python(CLIENT, home=tmp_path, environment=hub.environment())
        repositories = hub.repositories

    def files(name, branch="main"):
        return repositories[f"tester/{name}"].files(branch)

    def card(name, branch="main"):
        return files(name, branch)["README.md"].decode()

    assert card("mine").count("Weeks.") == 1
    assert "license: mit" in card("mine")
    assert files("mine").keys() >= CODES
    for name in ("empty", "words", "louder", "plain-code"):
        assert f'AutoModelForMaskedLM.from_pretrained("tester/{name}")' in card(name)
        assert "More Information Needed" not in card(name)
    assert "license: mit" in card("empty")
    assert "- asked" in card("empty")
    assert "AutoTokenizer" not in card("empty")
    assert 'AutoTokenizer.from_pretrained("tester/words", revision="v1")' in card("words", "v1")
    assert 'AutoTokenizer.from_pretrained("tester/words")' in card("words")
    assert "# First" in card("told")
    assert "# Second" in card("retold")
    assert card("c").count('AutoModelForMaskedLM.from_pretrained("tester/c"') == 2
    assert "Classification" not in card("c")
    assert "text-classification" not in card("c")

    for name in ("one", "two", "new"):
        assert found[name].startswith("ValueError: the Hub answered 500"), found[name]
    assert repositories["tester/a"].branches.keys() == {"main"}
    assert "tester/new" not in repositories
    assert "/commit/" in found["closed"]
    assert found["closed, plain"] is None
    assert "cannot be the name of a repository" in found["name"]
    assert found["token"].startswith("ValueError: the Hub refused the token")
    assert found["bad branch"].startswith("ValueError: the Hub answered 400 for tester/a: Invalid")
    assert "also needs Louder" in found["somebody's"]
    assert "A `Louder`, which is built on" in card("louder")
    assert not CODES & files("louder").keys()
    assert files("plain-code").keys() >= CODES

    assert found["new weights"]
    assert "model.safetensors" not in files("b")
    assert not CODES & files("b").keys()
    assert "trust_remote_code" not in card("b")
    assert found["weights of None"]
    assert found["weights of v1"]
    assert 'from_pretrained("tester/d", revision="v1")' in card("d", "v1")
    assert CODES | {"model.safetensors", "config.json"} <= files("e", "v1").keys()
    assert 'from_pretrained("tester/e", revision="v1", trust_remote_code=True)' in card("e", "v1")
    command = found["export"].splitlines()[-1]
    assert 'from_pretrained("tester/e", revision="v1", trust_remote_code=True)' in command
    assert "Uploaded: " in found["export"]
