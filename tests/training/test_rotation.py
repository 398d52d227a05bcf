"""Old checkpoints are removed, a complete one never for one that is not."""

import os
import shutil

import pytest

from hf_linear_attn.training import rotation
from hf_linear_attn.training.checkpoints import unfinished_checkpoints
from hf_linear_attn.training.checksums import write_checksums
from hf_linear_attn.training.rotation import remove_old_checkpoints
from tests.training.run_arguments import snapshot


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


@pytest.mark.parametrize("steps", [4, 8])
def test_a_removal_that_is_killed_leaves_one_that_counts_as_interrupted(run, monkeypatch, steps):
    """The oldest one, too, which would count as complete without checksums alone."""
    folder = run([4, 8, 12])
    shutil.rmtree(folder / f"checkpoint-{12 - steps}")
    for path in folder.glob("checkpoint-*"):
        (path / "trainer_state.json").write_text("{}")
        write_checksums(path)
    monkeypatch.setattr(rotation.shutil, "rmtree", lambda path: None)
    remove_old_checkpoints(folder, 1, 12, None)
    assert unfinished_checkpoints(folder) == [folder / f"checkpoint-{steps}"]
    monkeypatch.undo()
    remove_old_checkpoints(folder, 1, 12, None)
    assert left(folder) == [12]


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_link_is_left_and_what_is_behind_it(run, tmp_path_factory, caplog, is_sealed):
    folder, elsewhere = run([4, 8, 12]), tmp_path_factory.mktemp("elsewhere") / "checkpoint-4"
    (folder / "checkpoint-4").rename(elsewhere)
    (folder / "checkpoint-4").symlink_to(elsewhere)
    if not is_sealed:
        (elsewhere / "checksums.json").unlink()
    before = snapshot(elsewhere)
    for _ in range(2):
        remove_old_checkpoints(folder, 1, 12, None)
    assert left(folder) == [4, 12]
    assert (folder / "checkpoint-4").is_symlink()
    assert snapshot(elsewhere) == before
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"{folder / 'checkpoint-4'} is more than save_total_limit asks for" in told
    assert f"it is a link to {elsewhere}" in told


def test_a_folder_that_cannot_be_removed_is_told(run, monkeypatch, caplog):
    folder = run([4, 8])

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(rotation.shutil, "rmtree", refuse)
    remove_old_checkpoints(folder, 1, 8, None)
    assert "checkpoint-4 is more than" in caplog.text
    assert "left, maybe in part: Permission denied" in caplog.text
