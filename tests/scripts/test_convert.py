"""The conversion program: a folder that is whole or not there, and one line for every mistake."""

import importlib.util
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

import hf_linear_attn as hla
from hf_linear_attn.training.new_folder import new_folder
from hf_linear_attn.training.program import run_program
from tests.models.foreign_models import CONFIGS, DECODERS, VOCABULARY, batch, language_model

ROOT = Path(__file__).parents[2]
TEXT = "the cat sat on the mat and a dog ran far away from home again\n\n"


def load_program():
    spec = importlib.util.spec_from_file_location("convert", ROOT / "scripts" / "convert.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONVERT = load_program()


def tokenizer_of(size=VOCABULARY):
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words = sorted(set(TEXT.split()))
    words += [f"w{i}" for i in range(size - len(special) - len(words))]
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(special + words)}, "<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.decoder = decoders.WordPiece()
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip


@pytest.fixture
def source(tmp_path):
    """Saves a language model with a tokenizer; gives the folder."""

    def save(kind, size=VOCABULARY):
        folder = tmp_path / f"source-{kind}"
        language_model(kind).save_pretrained(folder)
        tokenizer_of(size).save_pretrained(folder)
        return folder

    return save


def refused(capsys, match, *argv):
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        run_program(CONVERT.main, [str(a) for a in argv])
    # Bars of loading and saving write over themselves.
    said = [x for x in capsys.readouterr().err.splitlines() if x and "it/s]" not in x]
    assert left.value.code == 2
    assert len(said) == 1, said
    assert said[0].startswith("error: ")
    assert match in said[0]


@pytest.mark.parametrize("kind", CONFIGS)
def test_softmax_mode_is_the_source(kind, source, tmp_path, capsys):
    folder, output = source(kind), tmp_path / "converted"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    CONVERT.main([str(folder), "--to", "softmax", "--output", str(output)])
    model, info = (hf.AutoModelForCausalLM if kind in DECODERS else hf.AutoModelForMaskedLM
                   ).from_pretrained(output, output_loading_info=True)  # fmt: skip
    assert type(model).__name__.startswith("Softmax")
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    reference = language_model(kind)
    for side in ("right",) if kind == "distilbert" else ("right", "left"):
        theirs, ours = batch(kind, side)
        real = ours["attention_mask"].bool()
        with torch.no_grad():
            wanted, found = reference(**theirs).logits[real], model(**ours).logits[real]
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    page = (output / "conversion.md").read_text()
    for name in [*reference.state_dict(), *model.state_dict()]:
        aliases = ("lm_head.bias", "cls.predictions.bias")
        assert name in page or name in aliases, name
    assert hf.AutoTokenizer.from_pretrained(output).get_vocab() == tokenizer_of().get_vocab()
    assert (output / "generation_config.json").is_file() == (kind in DECODERS)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert f"`{folder.name}`" in (output / "README.md").read_text()
    assert "Finetune it" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["converted", folder.name]


def test_a_hybrid_with_more_positions(source, tmp_path):
    output = tmp_path / "converted"
    CONVERT.main([
        str(source("roberta")), "--to", "cosformer", "--output", str(output), "--max_positions",
        "96", "--config_overrides", "layer_attention=[softmax,cosformer],cos_horizon=48",
    ])  # fmt: skip
    model = hf.AutoModelForMaskedLM.from_pretrained(output)
    assert model.config.attention_names == ["softmax", "cosformer"]
    assert (model.config.max_position_embeddings, model.config.cos_horizon) == (96, 48)
    assert "extended to 96" in (output / "conversion.md").read_text()


def test_attention_transfer_on_the_way(source, tmp_path, capsys):
    text, folder = tmp_path / "text.txt", source("llama")
    text.write_text(TEXT * 60)
    argv = [str(folder), "--to", "cosformer", "--config_overrides", "cos_horizon=32"]
    CONVERT.main([*argv, "--output", str(tmp_path / "plain")])
    CONVERT.main([
        *argv, "--output", str(tmp_path / "fitted"), "--distill", str(text), "--steps", "12",
        "--block_size", "16", "--batch_size", "4", "--learning_rate", "1e-2",
    ])  # fmt: skip
    said = capsys.readouterr().out
    assert "Attention transfer, 12 steps" in said
    assert (tmp_path / "fitted" / "attention_transfer.png").stat().st_size > 1000
    plain, fitted = (hf.AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict()
                     for name in ("plain", "fitted"))  # fmt: skip
    moved = {n for n in plain if not torch.equal(plain[n], fitted[n])}
    assert {n.split("self_attn.")[-1] for n in moved} == {"q_proj.weight", "k_proj.weight"}
    page = (tmp_path / "fitted" / "conversion.md").read_text()
    assert page.count("then fitted by attention transfer") == 4
    assert "## Attention transfer" in page
    assert "fitted" not in (tmp_path / "plain" / "conversion.md").read_text()
    means = [line.split() for line in said.splitlines() if "mean" in line]
    shares = [float(word) for word in means[0] if word.replace(".", "").isdigit()]
    assert shares[1] < shares[0]


def test_every_option_reaches_the_transfer(source, tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.jsonl"
    text.write_text("\n".join(json.dumps({"words": TEXT}) for _ in range(60)))
    seen, transfer = {}, CONVERT.transfer_attention

    def spy(teacher, student, batches, **settings):
        seen.update(settings, rows=next(iter(batches))["input_ids"].shape,
                    vocabulary=teacher.config.vocab_size)  # fmt: skip
        return transfer(teacher, student, batches, **settings)

    monkeypatch.setattr(CONVERT, "transfer_attention", spy)
    CONVERT.main([
        str(source("llama", size=50)), "--to", "transnormer", "--output", str(tmp_path / "out"),
        "--unused_vocab", "drop", "--distill", str(text), "--text_column", "words", "--steps", "2",
        "--block_size", "12", "--batch_size", "3", "--learning_rate", "0.02", "--trained", "qv",
        "--device", "cpu",
    ])  # fmt: skip
    assert seen["rows"] == (3, 12)
    assert (seen["steps"], seen["learning_rate"], seen["trained"]) == (2, 0.02, "qv")
    assert seen["vocabulary"] == 50
    assert len(seen["evaluation"]) >= 1
    assert "step 2 of 2: mean loss" in capsys.readouterr().out
    # A block is longer than the text, so layer 0 is exact from the start and must stay so.
    page = (tmp_path / "out" / "conversion.md").read_text()
    assert "left as they were: layers 0." in page
    assert "model.layers.0.self_attn.q_proj.weight |" in page
    before = language_model("llama").model.layers[0].self_attn.q_proj.weight
    after = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(after.model.layers[0].self_attn.q_proj.weight, before)


def test_a_picture_that_fails_does_not_cost_the_model(source, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT * 60)

    def fail(*args):
        raise RuntimeError("no picture")

    monkeypatch.setattr(CONVERT, "plot_transfer", fail)
    with pytest.raises(RuntimeError, match="no picture"):
        CONVERT.main([
            str(source("bert")), "--to", "nystrom", "--output", str(tmp_path / "out"),
            "--config_overrides", "num_landmarks=4", "--distill", str(tmp_path / "text.txt"),
            "--steps", "8", "--block_size", "16", "--learning_rate", "0.003",
        ])  # fmt: skip
    model = hf.AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    fitted = "then fitted by attention transfer"
    page = (tmp_path / "out" / "conversion.md").read_text()
    assert f"until it is trained; {fitted}" in page
    assert model.model.layers[0].self_attn.mechanism.conv.weight.abs().max() > 0


def spied_teacher(monkeypatch):
    """The attention of the teacher of the next transfer, which then breaks off."""
    seen = []

    def stop(teacher, *args, **kwargs):
        seen.extend(teacher.config.attention_names)
        raise ValueError("seen enough")

    monkeypatch.setattr(CONVERT, "transfer_attention", stop)
    return seen


def test_the_old_attention_is_the_source_s_own(source, tmp_path, monkeypatch):
    text, folder = tmp_path / "text.txt", source("llama")
    text.write_text(TEXT * 60)
    own = tmp_path / "own"
    CONVERT.main([
        str(folder), "--to", "cosformer", "--output", str(own), "--config_overrides",
        "layer_attention=[cosformer,softmax],cos_horizon=32",
    ])  # fmt: skip
    distill = ["--distill", str(text), "--steps", "1", "--block_size", "16", "--batch_size", "2"]
    for origin, wanted in ((own, ["cosformer", "softmax"]), (folder, ["softmax"] * 2)):
        seen = spied_teacher(monkeypatch)
        with pytest.raises(ValueError, match="seen enough"):
            CONVERT.main([
                str(origin), "--to", "linear_transformer", "--output", str(tmp_path / "o"),
                *distill,
            ])  # fmt: skip
        assert seen == wanted
    # The same variant again: longer, and with another order of layers.
    CONVERT.main([
        str(own), "--to", "cosformer", "--output", str(tmp_path / "again"), "--max_positions",
        "128", "--config_overrides", "layer_attention=[cosformer,cosformer]",
    ])  # fmt: skip
    config = hf.AutoConfig.from_pretrained(tmp_path / "again")
    assert (config.cos_horizon, config.max_position_embeddings) == (32, 128)


def test_ids_with_gaps_keep_their_rows(source, tmp_path):
    folder = source("llama", size=20)
    file = folder / "tokenizer.json"
    text = json.loads(file.read_text())
    vocabulary = text["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    vocabulary[last] = 54
    file.write_text(json.dumps(text))
    CONVERT.main([str(folder), "--to", "cosformer", "--output", str(tmp_path / "out"),
                  "--unused_vocab", "drop"])  # fmt: skip
    model = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.config.vocab_size == 55
    ids = hf.AutoTokenizer.from_pretrained(tmp_path / "out")(last, return_tensors="pt").input_ids
    assert model(ids).logits.isfinite().all()


def test_the_tokenizer_goes_as_far_as_the_model(source, tmp_path):
    folder = source("bert")
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 34
    tokenizer.save_pretrained(folder)
    CONVERT.main([str(folder), "--to", "cosformer", "--output", str(tmp_path / "out"),
                  "--max_positions", "80"])  # fmt: skip
    assert hf.AutoTokenizer.from_pretrained(tmp_path / "out").model_max_length == 80
    assert "model_max_length was 34" in (tmp_path / "out" / "conversion.md").read_text()


def test_places_that_cannot_be_written_to_show_before_the_work(source, tmp_path, capsys,
                                                               monkeypatch):  # fmt: skip
    folder = source("llama")
    monkeypatch.setattr(CONVERT, "_convert", lambda *args: pytest.fail("the work has begun"))
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "to_empty").symlink_to(tmp_path / "empty")
    argv = (folder, "--to", "cosformer", "--output")
    refused(capsys, "cannot be made", *argv, tmp_path / "file" / "out")
    refused(capsys, "nothing is overwritten", *argv, tmp_path / "link")
    refused(capsys, "nothing is overwritten", *argv, tmp_path / "to_empty")
    refused(capsys, "lies in the source", *argv, folder / "out")


def test_sigterm_leaves_nothing(tmp_path):
    def work():
        with new_folder(tmp_path / "out") as folder:
            (folder / "weights").write_text("half")
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as left:
        work()
    assert left.value.code == 143
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_unused_rows_of_the_vocabulary_are_decided_by_the_user(source, tmp_path, capsys):
    argv = [source("llama", size=VOCABULARY - 7), "--to", "cosformer", "--output"]
    refused(capsys, "whose ids end at 52: pass --unused_vocab keep", *argv,
            tmp_path / "a")  # fmt: skip
    for unused, rows in (("keep", VOCABULARY), ("drop", VOCABULARY - 7)):
        run_program(
            CONVERT.main, [str(a) for a in (*argv, tmp_path / unused, "--unused_vocab", unused)]
        )
        model = hf.AutoModelForCausalLM.from_pretrained(tmp_path / unused)
        assert model.config.vocab_size == model.lm_head.weight.shape[0] == rows
    assert not (tmp_path / "a").exists()


def test_every_mistake_is_one_line_and_leaves_nothing(source, tmp_path, capsys):
    folder, output = source("llama"), tmp_path / "out"
    base = (folder, "--to", "cosformer", "--output", output)
    refused(capsys, "Did you mean 'cosformer'", folder, "--to", "cosfromer", "--output", output)
    refused(capsys, "no causal form", folder, "--to", "nystrom", "--output", output)
    refused(capsys, "Did you mean 'cos_horizon'", *base, "--config_overrides", "cos_horizn=3")
    refused(capsys, "hidden_size=64", *base, "--config_overrides", "hidden_size=64")
    refused(capsys, "names 1 layers", *base, "--config_overrides", "layer_attention=[cosformer]")
    refused(capsys, "--steps is for the attention transfer", *base, "--steps", "3")
    refused(capsys, "--device is for the attention transfer", *base, "--device", "cpu")
    file = tmp_path / "big" / "text.txt"
    file.parent.mkdir()
    file.write_text(TEXT * 60)
    text = ("--distill", file)
    refused(capsys, "--distill needs --steps", *base, *text)
    refused(capsys, "--steps: got 0", *base, *text, "--steps", "0")
    refused(capsys, "--trained: got 'qz'", *base, *text, "--steps", "1", "--trained", "qz")
    refused(capsys, "is a folder; name its files", *base, "--distill", tmp_path, "--steps", "1")
    refused(capsys, "--block_size 300 is above the model's", *base, *text, "--steps", "1",
            "--block_size", "300")  # fmt: skip
    refused(capsys, "no folder with a checkpoint", tmp_path / "nowhere", *base[1:])
    refused(capsys, "HF_HUB_OFFLINE", "someone/something", *base[1:])
    refused(capsys, "cannot be the name", "so me/thing", *base[1:])
    refused(capsys, "does not exist", *base, "--distill", tmp_path / "no.txt", "--steps", "3")
    refused(capsys, "different numbers", *base, "--max_positions", "64", "--config_overrides",
            "max_position_embeddings=65")  # fmt: skip
    refused(capsys, "the following arguments are required", folder)
    refused(capsys, "the tokenizer has ids up to 69", source("gpt2", size=70), *base[1:])
    empty = tmp_path / "there"
    empty.mkdir()
    (empty / "mine.txt").write_text("mine")
    refused(capsys, "nothing is overwritten", folder, "--to", "cosformer", "--output", empty)
    assert (empty / "mine.txt").read_text() == "mine"
    left = {p.name for p in tmp_path.iterdir()} - {folder.name, "there", "big", "source-gpt2"}
    assert not left


def test_a_source_without_a_tokenizer_and_one_with_a_broken_one(source, tmp_path, capsys):
    folder = source("bert")
    (folder / "tokenizer.json").write_text("{")
    refused(capsys, "the tokenizer of", folder, "--to", "softmax", "--output", tmp_path / "a")
    for content in ("[]", '{"tokenizer_class": 3}'):
        (folder / "tokenizer_config.json").write_text(content)
        refused(capsys, "the tokenizer of", folder, "--to", "softmax", "--output", tmp_path / "a")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    CONVERT.main([str(folder), "--to", "softmax", "--output", str(tmp_path / "b")])
    assert "no tokenizer" in (tmp_path / "b" / "conversion.md").read_text()
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    refused(capsys, "has no tokenizer", folder, "--to", "cosformer", "--output", tmp_path / "c",
            "--distill", text, "--steps", "2")  # fmt: skip


def test_nothing_is_left_when_saving_fails(source, tmp_path, monkeypatch):
    folder = source("llama")

    def fail(*args, **kwargs):
        raise OSError("the disk is full")

    monkeypatch.setattr(hla.CosformerForCausalLM, "save_pretrained", fail)
    with pytest.raises(OSError, match="full"):
        CONVERT.main([str(folder), "--to", "cosformer", "--output", str(tmp_path / "out")])
    assert [p.name for p in tmp_path.iterdir()] == [folder.name]


def test_quantised_and_incomplete_sources(source, tmp_path, capsys):
    folder = source("llama")
    config = json.loads((folder / "config.json").read_text())
    quantised = tmp_path / "quantised"
    shutil.copytree(folder, quantised)
    (quantised / "config.json").write_text(
        json.dumps({**config, "quantization_config": {"quant_method": "gptq", "bits": 4}})
    )
    argv = ("--to", "cosformer", "--output", tmp_path / "out")
    refused(capsys, "quantised", quantised, *argv)
    (folder / "model.safetensors").unlink()
    refused(capsys, "cannot be read", folder, *argv)
    assert not (tmp_path / "out").exists()
