"""Whose folder it is, where to go on, and sound or damaged checkpoints."""

import json
import os
import random
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
import yaml

from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.best_checkpoint import check_best_beside
from hf_linear_attn.training.checkpoints import (
    check_checkpoint,
    newest_checkpoint,
    unfinished_checkpoints,
)
from hf_linear_attn.training.checksums import write_checksums
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_file import write_run_file
from hf_linear_attn.training.run_folder import (
    RunFolder,
    open_run_folder,
    resolve_arguments,
)
from hf_linear_attn.training.sealed_model import seal_model
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.training.run_arguments import ARGUMENTS, resolved, snapshot
from tests.training.tiny_run import make_trainer, rows

STATE = {"global_step": 4, "max_steps": 4, "epoch": 2.0, "num_train_epochs": 2, "log_history": []}


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 64)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tokenizer):
    """A run's folder with the checkpoints of steps 2 and 4."""
    folder = tmp_path_factory.mktemp("trained")
    make_trainer(
        folder, tokenizer, rows(8), max_steps=4, save_strategy="steps", save_steps=2
    ).train()
    return folder


@pytest.fixture
def run(tmp_path, trained):
    """A copy of it with its arguments, not finished."""
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    write_run_file(folder, resolved(folder))
    return folder


@pytest.fixture
def sealed(run):
    """The same with checksums in both checkpoints."""
    for steps in (2, 4):
        write_checksums(run / f"checkpoint-{steps}")
    return run


def finish(folder: Path, steps: int, epoch: float = 1.0) -> None:
    state = {"global_step": steps, "epoch": epoch}
    (folder / "trainer_state.json").write_text(json.dumps(state))


def test_the_arguments_of_a_run_file_are_read_back_unchanged(tmp_path):
    first = resolved(
        tmp_path / "run",
        *("--config_overrides", "hidden_size=32,layer_attention=[cosformer, softmax]"),
        *("--lr_scheduler_type", "cosine_with_min_lr"),
        *("--lr_scheduler_kwargs", '{"min_lr": 1e-5}'),
        *("--warmup_steps", "0.06", "--eval_strategy", "steps", "--eval_steps", "3"),
        *("--train_file", "a.txt", "b.txt", "--hub_token", "secret"),
    )
    write_run_file(tmp_path / "run", first)
    text = (tmp_path / "run" / "run.yaml").read_text()
    assert "secret" not in text
    assert "hub_token" not in text
    assert yaml.safe_load(text) == first
    again = RecipeParser(ARGUMENTS).parse_recipe(["--config", str(tmp_path / "run" / "run.yaml")])
    assert resolve_arguments(*again) == first
    assert first["lr_scheduler_kwargs"] == {"min_lr": 1e-5}
    assert first["train_file"] == ["a.txt", "b.txt"]


@pytest.mark.parametrize("exists", [False, True])
def test_no_folder_or_an_empty_one_is_a_new_run(tmp_path, exists):
    folder = tmp_path / "run"
    if exists:
        folder.mkdir()
    assert open_run_folder(folder, resolved(folder)) == RunFolder(folder)
    assert folder.exists() == exists


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    before = snapshot(tmp_path)
    with pytest.raises(ValueError, match=r"not empty and has no run\.yaml.*another output_dir"):
        open_run_folder(tmp_path, resolved(tmp_path))
    assert snapshot(tmp_path) == before


def test_a_folder_of_reports_alone_is_foreign(tmp_path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(ValueError, match="not empty and has no run"):
        open_run_folder(tmp_path, resolved(tmp_path))


def test_a_file_is_no_output_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; choose a folder"):
        open_run_folder(tmp_path / "file", resolved(tmp_path / "file"))


def test_the_same_run_goes_on_from_its_newest_checkpoint(run):
    assert open_run_folder(run, resolved(run)) == RunFolder(run, run / "checkpoint-4")


def test_the_same_run_without_a_checkpoint_starts_again(tmp_path):
    write_run_file(tmp_path / "run", resolved(tmp_path / "run"))
    assert open_run_folder(tmp_path / "run", resolved(tmp_path / "run")).checkpoint is None


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--learning_rate", "1e-2"], r"learning_rate 0\.01 \(was 5e-05\)"),
        (["--seed", "1"], r"seed 1 \(was 42\)"),
        (["--attention", "softmax"], r"attention 'softmax' \(was 'cosformer'\)"),
        (["--block_size", "64"], r"block_size 64 \(was 512\)"),
        (["--mlm_probability", "0.3"], r"mlm_probability 0\.3 \(was 0\.15\)"),
        (["--gradient_accumulation_steps", "2"], "gradient_accumulation_steps 2"),
    ],
)
def test_another_run_is_refused_and_nothing_is_changed(run, argv, named):
    before = snapshot(run)
    with pytest.raises(ValueError, match=f"belongs to another run, which differs in {named}"):
        open_run_folder(run, resolved(run, *argv))
    assert snapshot(run) == before


@pytest.mark.parametrize(
    "argv",
    [
        ["--logging_steps", "7", "--report_to", "tensorboard"],
        ["--eval_strategy", "steps", "--eval_steps", "3", "--per_device_eval_batch_size", "2"],
        ["--save_steps", "5", "--save_total_limit", "3", "--dataloader_num_workers", "2"],
        ["--max_steps", "8"],
    ],
)
def test_what_does_not_touch_the_training_may_change(run, argv):
    assert open_run_folder(run, resolved(run, *argv)).checkpoint == run / "checkpoint-4"


def test_another_spelling_of_the_folder_is_the_same_run(run):
    other = run / ".." / run.name
    relative = Path(os.path.relpath(run))
    for folder in (other, relative):
        assert open_run_folder(folder, resolved(folder)).checkpoint == folder / "checkpoint-4"


def test_a_run_can_only_grow(run):
    for argv in (["--max_steps", "5"], ["--max_steps", "-1"]):
        with pytest.raises(ValueError, match=r"max_steps .* can only grow: it was 6"):
            open_run_folder(run, resolved(run, *argv))


def test_a_finished_run_is_recognised_and_can_be_made_longer(run):
    finish(run, 6)
    assert open_run_folder(run, resolved(run)) == RunFolder(run, finished=True)
    longer = open_run_folder(run, resolved(run, "--max_steps", "12"))
    assert longer == RunFolder(run, run / "checkpoint-4")


def test_what_a_person_has_made_of_a_finished_model_is_not_replaced(run):
    for file in (run / "checkpoint-4").iterdir():
        if file.name in ("config.json", "model.safetensors", "tokenizer.json"):
            shutil.copy(file, run)
    seal_model(run)
    longer = resolved(run, "--max_steps", "12")
    config = run / "config.json"
    config.write_text(config.read_text().replace("{", '{"note": "mine",', 1))
    before = snapshot(run)
    # Nothing says that the run was finished: the model is one that it was saving.
    assert open_run_folder(run, longer) == RunFolder(run, run / "checkpoint-4")
    finish(run, 6)
    with pytest.raises(ValueError, match=r"run/config\.json differs .*move it .*nothing was chan"):
        open_run_folder(run, longer)
    assert open_run_folder(run, resolved(run)).finished
    (run / "trainer_state.json").unlink()
    assert snapshot(run) == before
    finish(run, 6)
    config.rename(run / "mine.json")
    assert open_run_folder(run, longer) == RunFolder(run, run / "checkpoint-4")


def test_a_finished_run_of_epochs_is_recognised_by_its_epochs(run):
    epochs = ["--max_steps", "-1", "--num_train_epochs", "2"]
    write_run_file(run, resolved(run, *epochs))
    finish(run, 100, epoch=2.0)
    assert open_run_folder(run, resolved(run, *epochs)).finished
    finish(run, 100, epoch=1.9)
    assert not open_run_folder(run, resolved(run, *epochs)).finished


def test_a_finished_run_without_checkpoints_cannot_be_made_longer(tmp_path):
    write_run_file(tmp_path / "run", resolved(tmp_path / "run"))
    finish(tmp_path / "run", 6)
    with pytest.raises(ValueError, match=r"kept no checkpoint.*--model_name_or_path"):
        open_run_folder(tmp_path / "run", resolved(tmp_path / "run", "--max_steps", "9"))


@pytest.mark.parametrize("content", [b"a: [", b"just words", b"", b"\xff\xfe\x00"])
def test_an_unreadable_run_file_is_refused(run, content):
    (run / "run.yaml").write_bytes(content)
    before = snapshot(run)
    with pytest.raises(ValueError, match=r"run\.yaml is damaged.*put a sound copy in its place"):
        open_run_folder(run, resolved(run))
    assert snapshot(run) == before


@pytest.mark.parametrize("content", ["", "{", '{"global_step": 6, "epo', "[]", "{}"])
def test_a_final_state_that_was_cut_off_is_not_the_end(run, content):
    (run / "trainer_state.json").write_text(content)
    assert open_run_folder(run, resolved(run)) == RunFolder(run, run / "checkpoint-4")


@pytest.mark.parametrize(
    ("name", "message"),
    [("file/run", "cannot be created: .*file is a file"), ("a" * 300, "cannot be used: File name")],
)
def test_a_folder_that_cannot_be_made_is_refused(tmp_path, name, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=f"output_dir .* {message}"):
        open_run_folder(tmp_path / name, resolved(tmp_path))


def test_a_folder_without_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(ValueError, match=r"output_dir .* cannot be written: no permission for"):
        open_run_folder(tmp_path / "new" / "run", resolved(tmp_path))


def test_an_equal_run_file_is_not_written_again_and_nothing_is_left_beside_it(tmp_path):
    write_run_file(tmp_path, resolved(tmp_path))
    os.utime(tmp_path / "run.yaml", ns=(1, 1))
    write_run_file(tmp_path, resolved(tmp_path))
    assert (tmp_path / "run.yaml").stat().st_mtime_ns == 1
    write_run_file(tmp_path, resolved(tmp_path, "--max_steps", "9"))
    assert "max_steps: 9" in (tmp_path / "run.yaml").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_a_file_that_cannot_be_written_whole_keeps_its_old_content(tmp_path, monkeypatch):
    file = tmp_path / "file"
    write_atomically(file, "old")

    def no_space(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomically(file, "new")
    assert file.read_text() == "old"


def test_checkpoints_are_ordered_by_number_and_other_names_ignored(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    for name in ("checkpoint-9", "checkpoint-10", "checkpoint-old", "checkpoint-11-copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-12").write_text("a file")
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


def test_a_sound_checkpoint_passes(trained):
    check_checkpoint(trained / "checkpoint-4")


@pytest.mark.parametrize("fault", ["missing", "cut", "empty", "garbage"])
@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "trainer_state.json",
        "config.json",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "tokenizer.json",
        "tokenizer_config.json",
    ],
)
def test_a_damaged_checkpoint_is_named_and_nothing_is_changed(run, name, fault):
    if name == "trainer_state.json":
        write_checksums(run / "checkpoint-4")  # without them, its saving was interrupted
    file = run / "checkpoint-4" / name
    content = file.read_bytes()
    if fault == "missing":
        file.unlink()
    else:
        half = content[: len(content) // 2]
        file.write_bytes({"cut": half, "empty": b"", "garbage": b"\x00garbage" * 9}[fault])
    before = snapshot(run)
    message = rf"cannot resume: .*checkpoint-4/{name} is .*; delete the folder .*checkpoint-4 "
    with pytest.raises(ValueError, match=message):
        open_run_folder(run, resolved(run))
    assert snapshot(run) == before
    shutil.rmtree(run / "checkpoint-4")
    assert open_run_folder(run, resolved(run)).checkpoint == run / "checkpoint-2"


@pytest.mark.parametrize("damage", ["zeroed", "flipped"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "training_args.bin"])
def test_damage_inside_a_readable_file_is_found(sealed, name, damage):
    assert open_run_folder(sealed, resolved(sealed)).checkpoint == sealed / "checkpoint-4"
    file = sealed / "checkpoint-4" / name
    content = bytearray(file.read_bytes())
    middle = len(content) * 3 // 4
    if damage == "zeroed":
        content[middle : middle + 64] = bytes(64)
    else:
        content[middle] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"checkpoint-4/{name} is .*; delete the folder"):
        open_run_folder(sealed, resolved(sealed))


def test_a_damaged_zip_is_found_without_checksums(run):
    file = run / "checkpoint-4" / "optimizer.pt"
    with zipfile.ZipFile(file) as archive:
        entry = next(e for e in archive.infolist() if "/data/" in e.filename and e.file_size > 99)
    content = bytearray(file.read_bytes())
    content[entry.header_offset + 200] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"optimizer\.pt is damaged: a part of it fails its check"):
        check_checkpoint(run / "checkpoint-4")


def test_damage_that_looks_like_compression_is_damage(run):
    file = run / "checkpoint-4" / "scheduler.pt"
    content = bytearray(file.read_bytes())
    # Of the file's first entry, in its own header and in the directory at the end.
    for header, method in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(header) + method] ^= 8
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"scheduler\.pt is damaged or cut off; delete the folder"):
        check_checkpoint(run / "checkpoint-4")


def refusal(checkpoint: Path) -> str:
    try:
        check_checkpoint(checkpoint)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("damage", ["flipped", "cut"])
@pytest.mark.parametrize(
    "name",
    [
        "optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors", "trainer_state.json",
        "config.json",
    ],
)  # fmt: skip
def test_no_damage_ends_otherwise_than_in_a_refusal(run, name, damage):
    """Without checksums, so that it is left to those that read the files."""
    file, choice = run / "checkpoint-4" / name, random.Random(name)
    sound = file.read_bytes()
    for _ in range(25):
        content = bytearray(sound[: choice.randrange(len(sound))] if damage == "cut" else sound)
        if damage == "flipped":
            content[choice.randrange(len(content))] ^= 1 << choice.randrange(8)
        file.write_bytes(content)
        told = refusal(run / "checkpoint-4")
        assert told.startswith(f"cannot resume: {file} ") or (not told and damage == "flipped")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"name": "ddp", "processes": "two"}', "is damaged: processes is 'two'"),
        ('{"name": null, "processes": 1}', "is damaged: name is None"),
        ('{"name": "ddp", "processes": true}', "is damaged: processes is True"),
        ('{"name": "ddp", "processes": 0}', "is damaged: processes is 0"),
        ('{"name": "ddp"}', "is damaged: it has no processes"),
        ("[]", "is damaged: it holds no mapping"),
    ],
)
def test_an_engine_that_is_none_is_damage(run, content, message):
    (run / "checkpoint-4" / "engine.json").write_text(content)
    with pytest.raises(ValueError, match=rf"engine\.json {message}; delete"):
        check_checkpoint(run / "checkpoint-4")


def test_more_processes_than_files_are_damage(run):
    content = json.dumps({"name": "ddp", "processes": 10**15})
    (run / "checkpoint-4" / "engine.json").write_text(content)
    with pytest.raises(ValueError, match=r"rng_state_0\.pth is missing; delete"):
        check_checkpoint(run / "checkpoint-4")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("trainer_state.json", STATE | {"global_step": "4"}, "global_step is '4'"),
        ("trainer_state.json", STATE | {"max_steps": None}, "max_steps is None"),
        ("trainer_state.json", STATE | {"epoch": [1]}, r"epoch is \[1\]"),
        ("trainer_state.json", STATE | {"log_history": {}}, "log_history is {}"),
        ("trainer_state.json", "[]", "it holds no mapping"),
        ("trainer_state.json", '{"global_step": 4}', "it has no max_steps, epoch"),
        ("tokenizer.json", "3", "it holds no mapping"),
        ("config.json", "null", "it holds no mapping"),
    ],
)
def test_json_of_the_wrong_kind_is_damage(run, name, content, message):
    content = json.dumps(content) if isinstance(content, dict) else content
    (run / "checkpoint-4" / name).write_text(content)
    with pytest.raises(ValueError, match=rf"{name} is damaged: {message}"):
        open_run_folder(run, resolved(run))


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("optimizer.pt", "state, param_groups"),
        ("scheduler.pt", "last_epoch"),
        ("rng_state.pth", "cpu"),
    ],
)
def test_a_torch_file_of_the_wrong_kind_is_damage(run, name, missing):
    for content in ([1, 2], {"other": 1}):
        torch.save(content, run / "checkpoint-4" / name)
        with pytest.raises(ValueError, match=rf"{name} is damaged: it has no {missing}"):
            open_run_folder(run, resolved(run))


def test_a_listed_file_that_is_gone_is_damage(sealed):
    (sealed / "checkpoint-4" / "training_args.bin").unlink()
    with pytest.raises(ValueError, match=r"training_args\.bin is missing; delete"):
        open_run_folder(sealed, resolved(sealed))


LOADS_BEST = ("--load_best_model_at_end", "--eval_strategy", "steps", "--eval_steps", "500")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda best: flip(best / "model.safetensors"), "/model.safetensors is not what was saved"),
        (lambda best: flip(best / "optimizer.pt"), "/optimizer.pt is not what was saved"),
        (lambda best: (best / "model.safetensors").write_bytes(b""), "/model.safetensors is dam"),
        (lambda best: (best / "model.safetensors").unlink(), "/model.safetensors is missing"),
        (lambda best: (best / "config.json").write_text("{"), "/config.json is not readable JSON"),
        (shutil.rmtree, ", the best checkpoint so far, is missing"),
    ],
)  # fmt: skip
def test_a_damaged_best_checkpoint_is_refused_where_it_is_to_be_loaded(sealed, spoil, told):
    state = json.loads((sealed / "checkpoint-4" / "trainer_state.json").read_text())
    state["best_model_checkpoint"] = "elsewhere/checkpoint-2"
    (sealed / "checkpoint-4" / "trainer_state.json").write_text(json.dumps(state))
    write_checksums(sealed / "checkpoint-4")
    found = RunFolder(sealed, sealed / "checkpoint-4")
    assert open_run_folder(sealed, resolved(sealed, *LOADS_BEST)) == found
    spoil(sealed / "checkpoint-2")
    before = snapshot(sealed)
    message = rf"cannot resume: .*checkpoint-2{told}.*put a sound one back.*nothing was changed"
    with pytest.raises(ValueError, match=message):
        open_run_folder(sealed, resolved(sealed, *LOADS_BEST))
    assert snapshot(sealed) == before
    assert open_run_folder(sealed, resolved(sealed)) == found


@pytest.mark.parametrize("stored", [5, "", [], {"a": 1}])
def test_a_best_checkpoint_that_is_no_path_is_told(sealed, stored):
    """As it can be where a checkpoint has no checksums."""
    newest = sealed / "checkpoint-4"
    state = json.loads((newest / "trainer_state.json").read_text())
    state["best_model_checkpoint"] = stored
    (newest / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match="is damaged: best_model_checkpoint is "):
        check_best_beside(newest)


@pytest.mark.parametrize("left", ["state", "no state"])
def test_an_interrupted_save_is_passed_over(sealed, left):
    newest = sealed / "checkpoint-4"
    (newest / "checksums.json").unlink()
    if left == "no state":
        (newest / "trainer_state.json").unlink()
    before = snapshot(sealed)
    found = open_run_folder(sealed, resolved(sealed))
    assert found == RunFolder(sealed, sealed / "checkpoint-2", unfinished=(newest,))
    assert snapshot(sealed) == before


def test_an_interrupted_first_save_begins_again(run):
    shutil.rmtree(run / "checkpoint-2")
    (run / "checkpoint-4" / "trainer_state.json").unlink()
    found = open_run_folder(run, resolved(run))
    assert found == RunFolder(run, unfinished=(run / "checkpoint-4",))


def test_older_checkpoints_without_checksums_stay_good_beside_newer_ones(run):
    write_checksums(run / "checkpoint-4")
    assert unfinished_checkpoints(run) == []
    shutil.rmtree(run / "checkpoint-4")
    assert open_run_folder(run, resolved(run)).checkpoint == run / "checkpoint-2"


def test_a_missing_shard_is_named(run):
    checkpoint = run / "checkpoint-4"
    (checkpoint / "model.safetensors").rename(checkpoint / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(ValueError, match=r"model-00002-of-00002\.safetensors is missing"):
        check_checkpoint(checkpoint)
