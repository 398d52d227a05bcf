"""What a run writes about itself replaces nothing of a person, and is read with care."""

import json
from itertools import product
from pathlib import Path

import pytest

from hf_linear_attn.training import run_folder
from hf_linear_attn.training.fingerprint import write_fingerprint
from hf_linear_attn.training.run_file import write_run_file
from hf_linear_attn.training.run_files import RunFiles, check_same_data
from hf_linear_attn.training.run_folder import RunFolder, open_run_folder
from tests.training.run_arguments import resolved, snapshot

OTHER = f"2-{'1' * 32}"
FINGERPRINT = {"training": f"2-{'0' * 32}", "evaluation": f"2-{'0a' * 16}"}


@pytest.fixture
def run(tmp_path):
    """The folder of a run that has left something and no checkpoint."""
    folder = tmp_path / "run"
    write_run_file(folder, resolved(folder))
    (folder / "loss_curve.csv").write_text("")
    return folder


def test_a_folder_with_nothing_but_a_runs_own_marks_is_free(tmp_path):
    write_run_file(tmp_path, resolved(tmp_path, "--learning_rate", "1"))
    write_fingerprint(tmp_path / "data.json", FINGERPRINT)
    (tmp_path / ".run.yaml.123").write_text("half")
    (tmp_path / "runs").mkdir()
    assert open_run_folder(tmp_path, resolved(tmp_path)) == RunFolder(tmp_path)
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(ValueError, match="belongs to another run"):
        open_run_folder(tmp_path, resolved(tmp_path))


def test_a_run_killed_between_its_two_marks_begins_again(tmp_path):
    write_fingerprint(tmp_path / "data.json", FINGERPRINT)
    assert open_run_folder(tmp_path, resolved(tmp_path)) == RunFolder(tmp_path)
    write_run_file(tmp_path, resolved(tmp_path))
    assert open_run_folder(tmp_path, resolved(tmp_path)) == RunFolder(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        '[{"text": "my corpus"}]', '{"text": "my corpus"}', '{"training": 3}', "{}", "[]", "null",
        "3", '"text"', "", "{", "\x00", "[" * 100_000, '{"training": "' + "0" * 31 + '"}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("beside", [[], ["run.yaml"], ["run.yaml", "notes.md"]])
def test_data_of_a_person_are_not_taken_for_a_runs(tmp_path, content, beside):
    if "run.yaml" in beside:
        write_run_file(tmp_path, resolved(tmp_path))
    if "notes.md" in beside:
        (tmp_path / "notes.md").write_text("")
    (tmp_path / "data.json").write_text(content)
    before = snapshot(tmp_path)
    with pytest.raises(
        ValueError, match=r"holds a data\.json that no run has written.*another name"
    ):
        open_run_folder(tmp_path, resolved(tmp_path))
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "content", [b"# mine\nlearning_rate: 1\n", b"", b"a: [", b"- a\n", b"\xff\x00"]
)
def test_arguments_of_a_person_are_not_taken_for_a_runs(tmp_path, content):
    (tmp_path / "run.yaml").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"holds a run\.yaml that no run has written.*another name"
    ):
        open_run_folder(tmp_path, resolved(tmp_path))
    assert (tmp_path / "run.yaml").read_bytes() == content


@pytest.mark.parametrize("name", ["run.yaml", "data.json"])
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_or_a_link_to_nowhere_is_no_mark(tmp_path, name, kind):
    if kind == "folder":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).symlink_to("nowhere")
    with pytest.raises(ValueError, match=f"holds a {name} that no run has written"):
        open_run_folder(tmp_path, resolved(tmp_path))


def changed(folder: Path, old: str, new: str) -> bytes:
    """The arguments of a run with a change made by hand."""
    text = (folder / "run.yaml").read_text()
    assert text.count(old) == 1
    (folder / "run.yaml").write_text(text.replace(old, new))
    return (folder / "run.yaml").read_bytes()


def test_a_value_changed_by_hand_is_not_replaced(tmp_path):
    write_run_file(tmp_path, resolved(tmp_path))
    changed(tmp_path, "\nlearning_rate: 5.0e-05\n", "\nlearning_rate: 0.01\n")
    with pytest.raises(ValueError, match=r"holds a run\.yaml that no run .* or that was changed"):
        open_run_folder(tmp_path, resolved(tmp_path))
    found = open_run_folder(tmp_path, resolved(tmp_path, "--learning_rate", "0.01"))
    assert found == RunFolder(tmp_path)


def test_what_a_person_has_written_into_a_trained_runs_arguments_stays(run):
    commented = changed(run, "\nseed: 42\n", "\nseed: 42  # a good one\n")
    assert open_run_folder(run, resolved(run)) == RunFolder(run)
    write_run_file(run, resolved(run))
    assert (run / "run.yaml").read_bytes() == commented
    message = r"run\.yaml is not as a run has written it.* for logging_steps 7 \(was 500\); write"
    with pytest.raises(ValueError, match=message):
        open_run_folder(run, resolved(run, "--logging_steps", "7"))
    changed(run, "\nlogging_steps: 500\n", "\nlogging_steps: 7  # few\n")
    assert open_run_folder(run, resolved(run, "--logging_steps", "7")) == RunFolder(run)


def test_what_is_written_into_a_runs_arguments_while_it_goes_on_stays(tmp_path):
    files = RunFiles(RunFolder(tmp_path), resolved(tmp_path), FINGERPRINT)
    files.write()
    commented = changed(tmp_path, "\nseed: 42\n", "\nseed: 43  # the next one\n")
    files.write()
    assert (tmp_path / "run.yaml").read_bytes() == commented


# What a damaged file may hold instead of anything: every type of YAML and JSON.
ODD = [
    None,
    True,
    3,
    -1,
    2.5,
    float("nan"),
    float("-inf"),
    10**400,
    "",
    "q6",
    [],
    [4],
    {},
    {"a": 1},
]


def test_no_value_of_any_argument_ends_otherwise_than_in_a_refusal(run, monkeypatch):
    now = resolved(run)
    stored = dict(now)
    monkeypatch.setattr(run_folder, "read_yaml_mapping", lambda _: dict(stored))
    monkeypatch.setattr(run_folder, "may_be_replaced", lambda *_: stored == now)
    for name, value in product(now, ODD):
        stored[name] = value
        if value != now[name]:
            with pytest.raises(
                ValueError, match=rf"\b{name}\b.*nothing was changed|^{name} .* only grow"
            ):
                open_run_folder(run, now)
        stored[name] = now[name]
    assert open_run_folder(run, now) == RunFolder(run)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_steps: 6", "max_steps: q6", "is damaged: max_steps is 'q6', expected a number"),
        ("max_steps: 6", "max_steps: null", "is damaged: max_steps is None"),
        ("max_steps: 6", "max_steps: [4]", r"is damaged: max_steps is \[4\]"),
        ("max_steps: 6\n", "", "is damaged: max_steps is None"),
        ("num_train_epochs: 3.0", "num_train_epochs: 3.q", "is damaged: num_train_epochs is '3.q'"),
        ("seed: 42", "seed: 42\nspeed: null", "has 'speed', which this version of the program"),
        ("seed: 42", "seed: 42\nspeed: 1", "has 'speed', which this version of the program"),
    ],
)
def test_a_damaged_or_unknown_argument_is_named_and_nothing_is_changed(run, old, new, message):
    changed(run, f"\n{old}", f"\n{new}")
    before = snapshot(run)
    with pytest.raises(ValueError, match=rf"run\.yaml {message}.*nothing was changed"):
        open_run_folder(run, resolved(run))
    assert snapshot(run) == before


@pytest.mark.parametrize("content", ["[]", "null", "3", '"a"', "{", "", '{"training": [1]}'])
def test_damaged_digests_of_the_data_are_named(run, content):
    (run / "data.json").write_text(content)
    folder = RunFolder(run, run / "checkpoint-4")
    with pytest.raises(
        ValueError, match=r"data\.json (cannot|holds).*; delete it to go on without"
    ):
        check_same_data(folder, FINGERPRINT)
    assert (run / "data.json").read_text() == content


@pytest.mark.parametrize("digest", ["0" * 32, f"{'0' * 32}-{'a' * 32}"])
def test_digests_of_an_earlier_version_are_told_from_damage(run, digest):
    (run / "data.json").write_text(json.dumps({"training": digest}))
    message = r"data\.json is of an earlier version, .* delete it to go on without comparing"
    with pytest.raises(ValueError, match=message):
        check_same_data(RunFolder(run, run / "checkpoint-4"), FINGERPRINT)


@pytest.mark.parametrize("before", [{"training": OTHER}, {**FINGERPRINT, "test": OTHER}])
def test_other_data_are_named(run, before):
    write_fingerprint(run / "data.json", FINGERPRINT)
    folder = RunFolder(run, run / "checkpoint-4")
    check_same_data(folder, FINGERPRINT)
    write_fingerprint(run / "data.json", before)
    with pytest.raises(ValueError, match=r"the (training and evaluation|test) examples are not"):
        check_same_data(folder, FINGERPRINT)


def test_equal_digests_stay_as_they_are_written(tmp_path):
    file = tmp_path / "data.json"
    file.write_text(json.dumps(FINGERPRINT))
    write_fingerprint(file, FINGERPRINT)
    assert file.read_text() == json.dumps(FINGERPRINT)
