"""Old checkpoints are removed, a complete one never for one that is not."""

import os

import pytest

from hf_linear_attn.training import rotation
from hf_linear_attn.training.checksums import write_checksums
from hf_linear_attn.training.rotation import remove_old_checkpoints


@pytest.fixture
def run(tmp_path):
    """Makes a folder with checkpoints, sealed and interrupted ones."""

    def make(sealed, torn=()):
        for steps in (*sealed, *torn):
            checkpoint = tmp_path / f"checkpoint-{steps}"
            checkpoint.mkdir()
            (checkpoint / "model.safetensors").write_text("weights")
        for steps in sealed:
            write_checksums(tmp_path / f"checkpoint-{steps}")
        return tmp_path

    return make


def left(folder):
    return sorted(int(path.name.partition("-")[2]) for path in folder.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("limit", "best", "expected"),
    [
        (None, None, [4, 8, 12, 16]),
        (0, None, [4, 8, 12, 16]),
        (1, None, [16]),
        (3, None, [8, 12, 16]),
        (9, None, [4, 8, 12, 16]),
        (1, 8, [8, 16]),
        (2, 4, [4, 16]),
        (3, 4, [4, 12, 16]),
        (2, 16, [12, 16]),
    ],
)
def test_the_newest_and_the_best_stay(run, limit, best, expected):
    folder = run([4, 8, 12, 16])
    path = None if best is None else f"elsewhere/checkpoint-{best}"
    remove_old_checkpoints(folder, limit, 16, path)
    assert left(folder) == expected


def test_the_time_of_the_last_change_says_nothing(run):
    folder = run([4, 8, 12])
    # A removal that was killed has changed the oldest one last.
    for age, steps in enumerate([4, 8, 12]):
        os.utime(folder / f"checkpoint-{steps}", (1e9 - 1e3 * age,) * 2)
    remove_old_checkpoints(folder, 2, 12, None)
    assert left(folder) == [8, 12]


def test_interrupted_ones_count_for_nothing_however_many_steps_they_have(run):
    folder = run([4, 8, 12], torn=[6, 16])
    remove_old_checkpoints(folder, 2, 12, None)
    assert left(folder) == [8, 12]


def test_a_removal_that_is_killed_leaves_one_that_counts_as_interrupted(run, monkeypatch):
    folder = run([4, 8])
    monkeypatch.setattr(rotation.shutil, "rmtree", lambda path, **_: None)
    remove_old_checkpoints(folder, 1, 8, None)
    assert not (folder / "checkpoint-4" / "checksums.json").exists()
    monkeypatch.undo()
    remove_old_checkpoints(folder, 1, 8, None)
    assert left(folder) == [8]
