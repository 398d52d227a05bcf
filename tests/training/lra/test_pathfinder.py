"""Pathfinder: labels found twice, balance, brightness, layout."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from hf_linear_attn.training.lra import pathfinder_files
from hf_linear_attn.training.lra.arguments import GeneratorArguments
from hf_linear_attn.training.lra.pathfinder import PathfinderParameters, draw_scene
from hf_linear_attn.training.lra.pathfinder_check import connected
from hf_linear_attn.training.lra.pathfinder_files import generate_pathfinder, read_pathfinder
from hf_linear_attn.training.lra.pathfinder_image import render
from tests.training.lra.real_data import needs, real

EASY = GeneratorArguments(pathfinder_contour_length=6).scenes("pathfinder")
HARD = GeneratorArguments().scenes("pathfinder")


def scenes(parameters, count):
    return [draw_scene(parameters, (11, number)) for number in range(count)]


def test_labels_agree_with_the_walk_over_the_gaps_and_are_balanced():
    drawn = scenes(EASY[0], 200)
    assert [connected(scene, EASY[0]) for scene in drawn] == [scene.label for scene in drawn]
    assert 0.4 < np.mean([scene.label for scene in drawn]) < 0.6


def test_the_walk_sees_a_curve_that_is_cut():
    scene = next(scene for scene in scenes(EASY[0], 20) if scene.label)
    begin, end = scene.markers
    # The marked curve is one of the two that come first, dash after dash.
    first = next(n for n in (0, 6) if np.allclose(scene.begins[n], begin))
    assert np.allclose(scene.ends[first + 5], end)
    kept = np.arange(len(scene.begins)) != first + 3
    cut = dataclasses.replace(scene, begins=scene.begins[kept], ends=scene.ends[kept])
    assert connected(cut, EASY[0]) == 0


def test_dashes_of_different_curves_keep_clear():
    p = HARD[0]
    for scene in scenes(p, 3):
        tips = np.stack([scene.begins, scene.ends], axis=1)
        distance = np.linalg.norm(tips[:, None, :, None] - tips[None, :, None, :], axis=-1)
        nearest = distance.min((2, 3))
        chain = np.arange(len(tips))
        follows = np.abs(chain[:, None] - chain) == 1
        assert (nearest[~follows & ~np.eye(len(tips), dtype=bool)] >= p.clearance - 1e-9).all()
        inner = (tips >= p.padding) & (tips <= p.size - 1 - p.padding)
        assert inner.all()


def test_a_picture_shows_two_discs_on_black():
    image = render(draw_scene(HARD[0], (0, 1)), HARD[0])
    assert image.shape == (32, 32)
    assert image.dtype == np.uint8
    assert image.max() == 255
    assert 0.5 < (image == 0).mean() < 0.8
    scene = draw_scene(HARD[0], (0, 1))
    for x, y in np.round(scene.markers).astype(int):
        # Inside a disc of radius 1.5 all is bright.
        assert image[y, x] > 150


@needs("lra/pathfinder32")
@pytest.mark.slow
@pytest.mark.parametrize("length", [6, 14])
def test_pictures_are_as_bright_as_the_original_generators(length):
    splits, _ = read_pathfinder(real("lra/pathfinder32"), 32, length)
    theirs = np.stack([row[0] for split in splits.values() for row in split.rows])
    parameters = GeneratorArguments(pathfinder_contour_length=length).scenes("pathfinder")[0]
    ours = np.stack([render(scene, parameters) for scene in scenes(parameters, 150)])
    assert (ours == 0).mean() == pytest.approx((theirs == 0).mean(), abs=0.05)
    assert ours.mean() == pytest.approx(theirs.mean(), rel=0.2)
    assert (ours > 127).mean() == pytest.approx((theirs > 127).mean(), rel=0.2)


def test_files_are_the_same_on_any_number_of_processes(tmp_path):
    contents = []
    for processes in (None, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        generate_pathfinder(folder, EASY, 60, seed=5, processes=processes)
        contents.append(
            {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        )
    assert contents[0] == contents[1]
    base = "curv_baseline"
    assert len(contents[0]) == 61
    assert f"{base}/imgs/0/sample_59.png" in contents[0]
    line = contents[0][f"{base}/metadata/0.npy"].decode().splitlines()[0].split()
    assert line[:3] == ["imgs/0", "sample_0.png", "0"]
    assert line[4:] == ["1.0", "6", "2", "2", "0.5", "1", "1"]


def test_splits_are_eight_one_one_and_empty_files_are_left_out_and_counted(tmp_path):
    generate_pathfinder(tmp_path, EASY, 40, seed=5)
    (tmp_path / "curv_baseline/imgs/0/sample_7.png").write_bytes(b"")
    splits, about = read_pathfinder(tmp_path, 32, 6)
    assert "1 empty files are left out" in about
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [31, 4, 4]
    seen = {row[0].tobytes() for split in splits.values() for row in split.rows}
    assert len(seen) == 39
    again, _ = read_pathfinder(tmp_path, 32, 6)
    assert np.array_equal(splits["test"].labels, again["test"].labels)
    with Image.open(tmp_path / "curv_baseline/imgs/0/sample_0.png") as image:
        first = np.asarray(image).tobytes()
    assert first in seen


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda base: (base / "imgs/0/sample_3.png").unlink(), "sample_3.png is not there"),
        (lambda base: (base / "metadata/0.npy").write_text("imgs/0 a 0\n"), "expected 11 fields"),
        (
            lambda base: Image.new("L", (16, 16)).save(base / "imgs/0/sample_0.png"),
            "sample_0.png: got 16 x 16 pixels",
        ),
    ],
)
def test_what_is_wrong_in_a_folder_is_named(tmp_path, damage, message):
    generate_pathfinder(tmp_path, EASY, 10, seed=5)
    damage(tmp_path / "curv_baseline")
    with pytest.raises(ValueError, match=message):
        read_pathfinder(tmp_path, 32, 6)


def test_another_difficulty_is_not_taken_instead(tmp_path):
    generate_pathfinder(tmp_path, EASY, 10, seed=5)
    with pytest.raises(ValueError, match="it has curv_baseline; choose another"):
        read_pathfinder(tmp_path, 32, 14)


def test_curves_that_find_no_room_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="do not fit into 32 x 32"):
        GeneratorArguments(pathfinder_contour_length=200)
    monkeypatch.setattr("hf_linear_attn.training.lra.pathfinder._TRIES_OF_SCENE", 3)
    crowded = PathfinderParameters(contour_length=60)
    with pytest.raises(ValueError, match="found no room"):
        generate_pathfinder(tmp_path, [crowded], 10, seed=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changed", [{"size": 4}, {"margin": 0}, {"continuity": 0.0}, {"paddle_thickness": 0.3}]
)
def test_parameters_out_of_range_are_refused(changed):
    with pytest.raises(ValueError, match=f"pathfinder {next(iter(changed))}"):
        PathfinderParameters(**changed)


def test_a_label_that_the_walk_does_not_find_stops_the_drawing(tmp_path, monkeypatch):
    monkeypatch.setattr(pathfinder_files, "connected", lambda scene, p: 1 - scene.label)
    with pytest.raises(RuntimeError, match="two ways to the label"):
        generate_pathfinder(tmp_path, EASY, 2, seed=0)


def test_path_x_images_are_large_and_have_one_of_two_margins():
    parameters = GeneratorArguments(pathfinder_contour_length=6).scenes("pathx")
    batch = pathfinder_files.draw_images({"number": list(range(6))}, parameters, seed=0)
    assert set(batch["chosen"]) == {0, 1}
    assert set(batch["label"]) == {0, 1}
    assert parameters[0].size == 128
