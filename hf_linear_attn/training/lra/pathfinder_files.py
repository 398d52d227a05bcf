"""Pathfinder images in the released layout, written and read.

`<difficulty>/imgs/<k>/sample_<i>.png` and `<difficulty>/metadata/<k>.npy`, which is plain text for
all its name: a line an image, `imgs/0 sample_0.png 0 LABEL 1.0 14 4 2 0.5 1 1` (folder, file,
number, label, continuity, dashes in a curve and in a distractor, length and thickness of a dash,
margin, number of contrasts).
"""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from hf_linear_attn.training.lra.damaged import reading
from hf_linear_attn.training.lra.pathfinder import PathfinderParameters, draw_scene
from hf_linear_attn.training.lra.pathfinder_check import connected
from hf_linear_attn.training.lra.pathfinder_image import render
from hf_linear_attn.training.lra.splits import RawSplit, hold_out, single
from hf_linear_attn.training.processes import worthwhile_processes

FOLDERS = {6: "curv_baseline", 9: "curv_contour_length_9", 14: "curv_contour_length_14"}
"""Of each difficulty, by the number of dashes in a long curve: easy, intermediate, hard."""
_IMAGES_A_FOLDER = 1000
_FIELDS = 11
# So many images to draw, or to read, are worth the start of a process.
_DRAWN = 100
_READ = 5000
_SHARES = (0.1, 0.1)


def difficulty_folder(contour_length: int) -> str:
    """Name of the folder of images with so many dashes in a long curve."""
    return FOLDERS.get(contour_length, f"curv_contour_length_{contour_length}")


def generate_pathfinder(
    folder: Path,
    parameters: Sequence[PathfinderParameters],
    count: int,
    seed: int,
    processes: int | None = None,
) -> None:
    """Draw images and write them; every label is found a second time and compared.

    Args:
        folder: exists; the difficulty's folder is made in it.
        parameters: one of them, by chance, for each image.
        count: number of images.
        seed: the same one gives the same images, on any number of processes.
        processes: that draw; None = all usable cores.

    Raises:
        ValueError: parameters under which curves find no room, before anything is written.
    """
    from datasets import Dataset

    for candidate in parameters:
        draw_scene(candidate, (seed, 0))
    images = Dataset.from_dict({"number": list(range(count))}).map(
        draw_images,
        batched=True,
        batch_size=50,
        fn_kwargs={"parameters": list(parameters), "seed": seed},
        num_proc=pathfinder_processes(processes, count),
        load_from_cache_file=False,
        desc="Drawing Pathfinder images",
    )
    target = folder / difficulty_folder(parameters[0].contour_length)
    _write(target, cast(Iterable[Any], images), parameters)


def _write(target: Path, images: Iterable[Any], parameters: Sequence[PathfinderParameters]) -> None:
    """Images of `draw_images`, and their metadata."""
    lines: dict[int, list[str]] = {}
    for row in images:
        piece, number = divmod(row["number"], _IMAGES_A_FOLDER)
        path = target / "imgs" / str(piece) / f"sample_{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row["png"])
        p = parameters[row["chosen"]]
        lines.setdefault(piece, []).append(
            f"imgs/{piece} sample_{number}.png {number} {row['label']} {p.continuity} "
            f"{p.contour_length} {p.distractor_length} {p.paddle_length} {p.paddle_thickness} "
            f"{p.margin} 1"
        )
    (target / "metadata").mkdir()
    for piece, content in lines.items():
        (target / "metadata" / f"{piece}.npy").write_text("\n".join(content) + "\n")


def pathfinder_processes(wanted: int | None, images: int) -> int | None:
    """How many processes draw so many images; None = this one alone."""
    return worthwhile_processes(wanted, images, _DRAWN)


def draw_images(
    batch: dict[str, list[Any]], parameters: list[PathfinderParameters], seed: int
) -> dict[str, list[Any]]:
    """PNG, label and the parameters chosen of images; each image has a seed of its own.

    Args:
        batch: column `number`.
        parameters: to choose from.
        seed: of all images.
    """
    drawn: dict[str, list[Any]] = {"png": [], "label": [], "chosen": []}
    for number in batch["number"]:
        chosen = int(np.random.default_rng((seed, number, 0)).integers(len(parameters)))
        scene = draw_scene(parameters[chosen], (seed, number))
        if connected(scene, parameters[chosen]) != scene.label:
            raise RuntimeError(f"two ways to the label of image {number} differ: {scene}")
        buffer = io.BytesIO()
        Image.fromarray(render(scene, parameters[chosen])).save(buffer, format="PNG")
        drawn["png"].append(buffer.getvalue())
        drawn["label"].append(scene.label)
        drawn["chosen"].append(chosen)
    return drawn


def read_pathfinder(
    folder: Path, size: int, contour_length: int, processes: int | None = None
) -> tuple[dict[str, RawSplit], str]:
    """Read a difficulty's images, 80 % for training and 10 % each to validate and to test.

    The split is drawn once and for all. Empty files, of which the release has one, are left out.

    Args:
        folder: holds the folder of the difficulty.
        size: side of an image.
        contour_length: tells the difficulty.
        processes: that read; None = all usable cores.

    Returns:
        The splits, and a sentence on the difficulty and on what was left out.

    Raises:
        ValueError: no such difficulty, or a line of the metadata or an image that is wrong.
    """
    base = folder / difficulty_folder(contour_length)
    if not (base / "metadata").is_dir():
        there = sorted(path.parent.name for path in folder.glob("*/metadata"))
        raise ValueError(
            f"{folder} has no {base.name}/metadata, the Pathfinder images with "
            f"{contour_length} dashes in a curve; it has {', '.join(there) or 'none at all'}; "
            "choose another pathfinder_contour_length (6 easy, 9 intermediate, 14 hard)"
        )
    files = [line for path in _by_number(base / "metadata") for line in _read_metadata(path)]
    full = [(name, label) for name, label in files if (base / name).stat().st_size]
    if not full:
        raise ValueError(f"{base}: the metadata name no image; put the released folder there")
    rows = _read_rows(base, [name for name, _ in full], size, processes)
    whole = single(rows, [label for _, label in full])
    empty = len(files) - len(full)
    about = f"images of {base.name}" + (f"; {empty:,} empty files are left out" if empty else "")
    names = ("train", "validation", "test")
    return dict(zip(names, hold_out(whole, _SHARES, base), strict=True)), about


def _read_rows(base: Path, names: list[str], size: int, processes: int | None) -> list[np.ndarray]:
    from datasets import Dataset

    pixels = Dataset.from_dict({"name": names}).map(
        read_images,
        batched=True,
        fn_kwargs={"folder": str(base), "size": size},
        remove_columns=["name"],
        num_proc=worthwhile_processes(processes, len(names), _READ),
        load_from_cache_file=False,
        desc="Reading Pathfinder images",
    )
    return [np.frombuffer(row["pixels"], dtype=np.uint8) for row in cast(Iterable[Any], pixels)]


def read_images(batch: dict[str, list[Any]], folder: str, size: int) -> dict[str, list[Any]]:
    """The bytes of images, row by row.

    Args:
        batch: column `name`.
        folder: which they are in.
        size: side of an image.

    Raises:
        ValueError: no image, another size, or no grey levels.
    """
    pixels = []
    for name in batch["name"]:
        file = Path(folder) / name
        with reading(file, "a PNG image"), Image.open(file) as image:
            image.load()
        if image.size != (size, size) or image.mode != "L":
            raise ValueError(
                f"{file}: got {image.size[0]} x {image.size[1]} pixels of mode {image.mode}, "
                f"expected {size} x {size} grey levels (L)"
            )
        pixels.append(image.tobytes())
    return {"pixels": pixels}


def _by_number(folder: Path) -> list[Path]:
    files = [path for path in folder.glob("*.npy") if path.stem.isdecimal()]
    return sorted(files, key=lambda path: int(path.stem))


def _read_metadata(path: Path) -> list[tuple[str, int]]:
    """File below the difficulty's folder, and label, of each line."""
    found = []
    with reading(path, "lines of text"):
        lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if len(fields) != _FIELDS or fields[3] not in ("0", "1"):
            raise ValueError(
                f"{path}, line {number}: got {line[:60]!r}, expected {_FIELDS} fields, the fourth "
                "of which is the label, 0 or 1"
            )
        name = f"{fields[0]}/{fields[1]}"
        if fields[0].startswith("/") or ".." in name.split("/"):
            raise ValueError(f"{path}, line {number}: the image {name} lies outside of the folder")
        if not (path.parents[1] / name).is_file():
            raise ValueError(f"{path}, line {number}: the image {name} is not there")
        found.append((name, int(fields[3])))
    return found
