"""From rows to examples: cut, dropped or refused by a stated rule, always counted."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from hf_linear_attn.training import processes
from hf_linear_attn.training.lra import drawing_time, generated
from hf_linear_attn.training.lra.arguments import GeneratorArguments, LraArguments
from hf_linear_attn.training.lra.data import prepare_task
from hf_linear_attn.training.lra.examples import build_examples, fingerprint
from hf_linear_attn.training.lra.generated import drawn_folder
from hf_linear_attn.training.lra.splits import RawSplit, single
from hf_linear_attn.training.lra.tasks import TASKS, find_folder

LENGTHS = (3, 9, 2, 7, 5)
SMALL = {
    "listops_train": 30, "listops_validation": 10, "listops_test": 20, "listops_min_length": 5,
    "listops_max_length": 30, "listops_max_depth": 4, "listops_max_args": 5,
}  # fmt: skip


def raw(labels=(0, 1, 0, 1, 1)):
    return single([np.arange(1, n + 1, dtype=np.uint16) for n in LENGTHS], labels)


def build(rule, limit=None, task="text", split=None):
    return build_examples("train", split or raw(), TASKS[task], 5, rule, limit)


def test_b49_over_long_examples_are_refused_or_counted_never_cut_silently():
    with pytest.raises(ValueError, match="2 of 5 examples have more than 5 symbols, the longest 9"):
        build("refuse")
    cut, dropped = build("cut"), build("drop")
    assert (cut.over_long, cut.dropped, len(cut)) == (2, 0, 5)
    assert (dropped.over_long, dropped.dropped, len(dropped)) == (2, 2, 3)
    assert [len(row["input_ids"]) for row in cut.dataset] == [3, 5, 2, 5, 5]
    assert [len(row["input_ids"]) for row in dropped.dataset] == [3, 2, 5]
    assert dropped.labels.tolist() == [0, 0, 1]


def test_b49_a_2001_symbol_expression_is_over_the_limit_of_2000():
    listops = TASKS["listops"]
    rows = single([np.ones(n, dtype=np.uint16) for n in (2000, 2001)], [0, 1])
    with pytest.raises(ValueError, match="1 of 2 examples have more than 2,000"):
        build_examples("train", rows, listops, listops.max_length, "refuse", None)


def test_either_tower_may_be_too_long():
    pairs = RawSplit([(np.ones(3, np.uint16), np.ones(9, np.uint16))] * 2, np.array([0, 1]))
    examples = build("cut", task="retrieval", split=pairs)
    assert examples.over_long == 2
    assert len(examples.dataset[0]["input_ids"]) == 3
    assert len(examples.dataset[0]["input_ids_2"]) == 5


def test_one_class_only_unknown_labels_and_empty_examples_are_refused():
    with pytest.raises(ValueError, match="all 5 training examples have the label 1"):
        build("cut", split=raw((1, 1, 1, 1, 1)))
    with pytest.raises(ValueError, match="got the label 2, expected 0 to 1"):
        build("cut", split=raw((0, 1, 2, 0, 1)))
    with pytest.raises(ValueError, match="example 1 is empty"):
        build("cut", split=single([np.ones(2, np.uint16), np.ones(0, np.uint16)], [0, 1]))
    with pytest.raises(ValueError, match="no example is left"):
        build("drop", split=single([np.ones(9, np.uint16)] * 2, [0, 1]))


def test_a_limit_chooses_the_same_examples_every_time():
    chosen = build("cut", limit=3)
    assert len(chosen) == 3
    assert fingerprint(chosen) == fingerprint(build("cut", limit=3))
    assert fingerprint(chosen) != fingerprint(build("cut"))


def test_the_fingerprint_sees_ids_labels_and_both_towers():
    base = build("cut")
    assert fingerprint(base) != fingerprint(build("cut", split=raw((0, 1, 0, 1, 0))))
    rows = [(np.array([1, 2], np.uint16), np.array([3], np.uint16))] * 2
    other = [rows[0], (rows[0][0], np.array([4], np.uint16))]
    labels = np.array([0, 1])
    digests = {
        fingerprint(build("cut", task="retrieval", split=RawSplit(pairs, labels)))
        for pairs in (rows, other)
    }
    assert len(digests) == 2


def prepare(tmp_path, **changed):
    lra = LraArguments(max_length=30, **changed)
    generators = GeneratorArguments(generated_dir=str(tmp_path / "drawn"), **SMALL)
    return prepare_task(TASKS["listops"], lra, generators)


def test_chance_is_the_training_sets_favourite_on_the_test_set(tmp_path):
    data = prepare(tmp_path)
    train, test = data.splits["train"].labels, data.splits["test"].labels
    assert data.chance == np.mean(test == np.bincount(train).argmax())
    assert data.over_long == {"train": 0, "validation": 0, "test": 0}
    assert "test: 20 examples of at most 30 symbols; none was longer" in data.describe()
    assert str(tmp_path) not in "".join(data.describe())


def test_over_long_examples_stand_in_the_description(tmp_path):
    whole = prepare(tmp_path)
    longest = max(len(row["input_ids"]) for row in whole.splits["train"].dataset)
    lra = LraArguments(max_length=longest - 1, over_long="drop")
    generators = GeneratorArguments(generated_dir=str(tmp_path / "drawn"), **SMALL)
    data = prepare_task(TASKS["listops"], lra, generators)
    assert data.over_long["train"] >= 1
    line = next(line for line in data.describe() if line.startswith("train"))
    assert f"{data.over_long['train']} were longer and are left out" in line
    with pytest.raises(ValueError, match="say what becomes of them with over_long"):
        prepare_task(TASKS["listops"], LraArguments(max_length=longest - 1), generators)


@pytest.mark.parametrize(("length", "name"), [(6, "easy"), (9, "intermediate")])
def test_the_difficulty_of_pathfinder_is_said(tmp_path, length, name):
    """Which difficulty is reported? (mlpen/Nystromformer#12)"""
    generators = GeneratorArguments(
        generated_dir=str(tmp_path), pathfinder_images=20, pathfinder_contour_length=length
    )
    data = prepare_task(TASKS["pathfinder"], LraArguments(task="pathfinder"), generators)
    assert f"({name})" in data.source


def test_that_retrieval_is_of_bytes_and_in_two_towers_is_said(tmp_path):
    """20 points lie between one way and another (google-research/long-range-arena#18)."""
    for part in ("train", "eval", "test"):
        (tmp_path / f"new_aan_pairs.{part}.tsv").write_text("0\ta\tb\tx\ty\n1\ta\tb\tx\tz\n")
    args = LraArguments(task="retrieval", data_dir=str(tmp_path))
    data = prepare_task(TASKS["retrieval"], args, GeneratorArguments())
    assert data.source.startswith("Bytes of pairs of ACL papers, one tower each")


def test_drawn_examples_are_kept_under_their_parameters_and_found_again(tmp_path, monkeypatch):
    generators = GeneratorArguments(generated_dir=str(tmp_path), **SMALL)
    folder = drawn_folder("listops", generators, None)
    other = dataclasses.replace(generators, generator_seed=1)
    assert drawn_folder("listops", other, None) != folder
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    monkeypatch.setattr("hf_linear_attn.training.lra.generated.generate_listops", None)
    assert drawn_folder("listops", generators, 2) == folder
    (folder / "generator.json").write_text("{}")
    with pytest.raises(ValueError, match="not a folder of drawn examples with these parameters"):
        drawn_folder("listops", generators, None)


def test_what_was_left_behind_is_removed_when_its_process_is_gone(tmp_path, monkeypatch):
    host = generated._host()
    digest = "listops-0123456789ab"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = {
        f".{digest}.{host}.{gone.pid}": False,
        f".pathfinder-0123456789ab.{host}.{gone.pid}": False,
        f".{digest}.{host}.{os.getppid()}": True,
        f".{digest}.elsewhere.{gone.pid}": True,
        f".own-notes.{host}.{gone.pid}": True,
        digest: True,
    }
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "half.tsv").write_text("x")
    generators = GeneratorArguments(generated_dir=str(tmp_path), **SMALL)
    folder = drawn_folder("listops", generators, None)
    assert {name: (tmp_path / name).exists() for name in names} == names
    assert folder.is_dir()


@pytest.mark.parametrize("task", ["listops", "pathfinder"])
def test_the_expected_time_is_said_before_drawing(tmp_path, monkeypatch, capsys, task):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(generated, f"generate_{task}", stop)
    monkeypatch.setattr(drawing_time, "_seconds_each", lambda trial: trial(0) and 0.25)
    monkeypatch.setattr(processes, "usable_cores", lambda: 8)
    generators = GeneratorArguments(
        generated_dir=str(tmp_path), pathfinder_images=4000, pathfinder_contour_length=6,
        **{**SMALL, "listops_train": 3970},
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        drawn_folder(task, generators, None)
    what = {"listops": "ListOps expressions", "pathfinder": "Pathfinder images"}[task]
    assert f"Drawing 4,000 {what}, about 2 min on 8 processes, into " in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        drawn_folder(task, generators, 1)
    assert f"Drawing 4,000 {what}, about 17 min on 1 process, into " in capsys.readouterr().out


def test_a_trial_takes_the_mean_of_a_few():
    assert 0 < drawing_time._seconds_each(lambda number: None) < 0.1
    texts = [drawing_time.duration(seconds) for seconds in (0.1, 89, 91, 5399, 5401)]
    assert texts == ["1 s", "89 s", "2 min", "90 min", "1.5 h"]


def test_all_usable_cores_are_the_default_where_there_is_work_for_them(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    assert processes.usable_cores() == 6
    assert processes.worthwhile_processes(None, 1000, least=100) == 6
    assert processes.worthwhile_processes(None, 399, least=100) == 3
    assert processes.worthwhile_processes(None, 199, least=100) is None
    assert processes.worthwhile_processes(2, 199, least=100) == 2
    assert processes.worthwhile_processes(1, 1000, least=100) is None
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(90)), raising=False)
    assert processes.usable_cores() == 16


def test_a_drawing_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    def fail(folder, *args):
        (folder / "half.tsv").write_text("x")
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_linear_attn.training.lra.generated.generate_listops", fail)
    generators = GeneratorArguments(generated_dir=str(tmp_path), **SMALL)
    with pytest.raises(KeyboardInterrupt):
        drawn_folder("listops", generators, None)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_found_by_itself_or_inside_a_download(tmp_path, monkeypatch):
    inner = tmp_path / "lra_release" / "listops-1000"
    inner.mkdir(parents=True)
    (inner / "basic_train.tsv").write_text("x")
    listops = TASKS["listops"]
    assert find_folder(listops, str(inner)) == inner
    assert find_folder(listops, str(tmp_path)) == inner
    monkeypatch.setenv("HF_LINEAR_ATTN_DATA", str(tmp_path.parent))
    assert find_folder(listops, tmp_path.name) == inner


def test_the_files_of_another_task_are_named(tmp_path):
    (tmp_path / "basic_train.tsv").write_text("x")
    with pytest.raises(ValueError, match=r"no files of the task retrieval .* files of listops"):
        find_folder(TASKS["retrieval"], str(tmp_path))
    with pytest.raises(ValueError, match="is no folder"):
        find_folder(TASKS["retrieval"], str(tmp_path / "nothing"))
