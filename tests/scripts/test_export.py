"""scripts/export.py: what it writes, and what it refuses before it writes."""

import os
import shlex
import signal

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig

import hf_linear_attn as hla
from hf_linear_attn.integrations import hub
from hf_linear_attn.models.entry_file import CODE, ENTRY
from scripts import export as program
from tests.conftest import TINY
from tests.models.exported import tiny_tokenizer


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "run"
    model = hla.CosformerForMaskedLM(hla.CosformerConfig(**TINY)).bfloat16().eval()
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    (folder / "README.md").write_text(f'# Card\n\n`from_pretrained("{folder}")`\n')
    return folder


def test_the_folder_is_whole_and_the_card_is_for_its_place(saved, tmp_path, capsys):
    target = tmp_path / "deep" / "out"
    program.main([str(saved), "--output", str(target)])
    names = {file.name for file in target.iterdir()}
    assert {f"{CODE}.py", f"{ENTRY}.py", "config.json", "model.safetensors"} <= names
    assert [file.name for file in target.parent.iterdir()] == ["out"]
    card = (target / "README.md").read_text()
    assert card.startswith(f'# Card\n\n`from_pretrained("{target}")`')
    assert f'from_pretrained("{target}", trust_remote_code=True)' in card
    one, two = (AutoModelForMaskedLM.from_pretrained(f, dtype="auto") for f in (saved, target))
    assert two.dtype == torch.bfloat16
    for name, tensor in one.state_dict().items():
        assert torch.equal(two.state_dict()[name], tensor), name
    assert AutoTokenizer.from_pretrained(target).vocab_size == 100
    said = capsys.readouterr().out
    assert "CosformerForMaskedLM" in said
    assert "python -c" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --output DIR, --push_to_hub"),
        (["--output", "full"], "exists and is not an empty folder"),
        (["--output", "new", "--private"], "--private is for the Hub"),
        (["--push_to_hub"], "needs --hub_model_id"),
        (["--push_to_hub", "--hub_model_id", "a b"], "cannot be the name"),
        (["--push_to_hub", "--hub_model_id", "me/a"], "HF_HUB_OFFLINE is set"),
        (["--outputs", "new"], "unrecognized arguments"),
        (["--output", "new", "--revision", "v1"], "is a folder, and revision 'v1' is for the Hub"),
        (["--output", "run/deep/new"], "run/deep/new is inside of"),
        (["--output", "."], "has no name of its own"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(
    saved, tmp_path, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=message):
        program.main([str(saved), *words])
    assert sorted(os.listdir(tmp_path)) == ["full", "run"]
    assert os.listdir(tmp_path / "full") == ["mine.txt"]


def test_what_a_conversion_did_goes_along(saved, tmp_path):
    (saved / "conversion.md").write_text("every tensor")
    (saved / "attention_transfer.png").write_bytes(b"losses")
    target = tmp_path / "out"
    program.main([str(saved), "--output", str(target)])
    assert (target / "conversion.md").read_text() == "every tensor"
    assert (target / "attention_transfer.png").read_bytes() == b"losses"


def test_models_that_cannot_be_exported_are_refused(saved, tmp_path):
    target = str(tmp_path / "out")
    BertConfig().save_pretrained(tmp_path / "bert")
    (tmp_path / "empty").mkdir()
    for source, message in (
        (tmp_path / "bert", "is a model of type 'bert', not one of hf_linear_attn"),
        (tmp_path / "empty", "holds no saved model"),
        ("me/model", "HF_HUB_OFFLINE keeps the Hub from being asked"),
    ):
        with pytest.raises(ValueError, match=message):
            program.main([str(source), "--output", target])
    (saved / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"the weights of .* cannot be loaded"):
        program.main([str(saved), "--output", target])
    assert not os.path.exists(target)


def test_what_is_printed_runs_in_a_shell_and_names_what_is_left_out(saved, tmp_path, capsys):
    tensors = load_file(saved / "model.safetensors")
    tensors["value_head.weight"] = torch.ones(3)
    save_file(tensors, saved / "model.safetensors", metadata={"format": "pt"})
    (saved / "run.yaml").write_text("hub_model_id: me/shared\n")
    (saved / "README.md").write_text('`from_pretrained("me/shared")`, `model="run"`\n')
    target = tmp_path / "it's new"
    program.main([str(saved), "--output", str(target)])
    said = capsys.readouterr().out
    assert "left out" in said
    assert "value_head.weight" in said
    words = shlex.split(said.splitlines()[-1])
    assert words[:2] == ["python", "-c"]
    assert f'from_pretrained("{target}", trust_remote_code=True)' in words[2]
    card = (target / "README.md").read_text()
    assert card.startswith(f'`from_pretrained("{target}")`, `model="{target}"`')


def test_an_error_leaves_no_folder(saved, tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError("no space left")

    monkeypatch.setattr(hub, "config_card", full)
    (saved / "README.md").unlink()
    with pytest.raises(OSError, match="no space"):
        program.main([str(saved), "--output", str(tmp_path / "new" / "out")])
    assert os.listdir(tmp_path / "new") == []


def test_sigterm_at_any_time_leaves_no_folder(saved, tmp_path, monkeypatch):
    def ended(*args, **options):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(program, "load_saved_model", ended)
    with pytest.raises(SystemExit) as left:
        program.main([str(saved), "--output", str(tmp_path / "new" / "out")])
    assert left.value.code == 128 + signal.SIGTERM
    assert os.listdir(tmp_path / "new") == []
