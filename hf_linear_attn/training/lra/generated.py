"""Drawn examples are kept in a folder that says what they are, and are found again."""

import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hf_linear_attn.training.lra.arguments import GeneratorArguments
from hf_linear_attn.training.lra.drawing_time import say_expected_time
from hf_linear_attn.training.lra.listops_files import generate_listops
from hf_linear_attn.training.lra.pathfinder_files import generate_pathfinder

# Goes up when the same parameters give other examples.
_VERSION = 1
_FACTS_FILE = "generator.json"
# A task and a digest, a machine and a process.
_UNFINISHED = re.compile(r"\.(listops|pathfinder|pathx)-[0-9a-f]{12}\.[\w-]+\.\d+$")


def drawn_folder(task: str, args: GeneratorArguments, processes: int | None) -> Path:
    """The folder with a task's drawn examples, in the released layout; drawn where there is none.

    It appears all at once, when everything in it is written.

    Args:
        task: listops, pathfinder or pathx.
        args: what is drawn, and where it is kept.
        processes: that draw, None = all usable cores; they change nothing but the time.

    Raises:
        ValueError: parameters that give no examples, or a folder of that name with other content.
    """
    facts = _facts(task, args)
    digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=6).hexdigest()
    folder = _base(args) / f"{task}-{digest}"
    if folder.exists():
        _check_facts(folder, facts)
        return folder
    if folder.parent.exists() and not folder.parent.is_dir():
        raise ValueError(f"generated_dir {folder.parent} is a file; choose a folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(folder.parent)
    unfinished = folder.with_name(f".{folder.name}.{_host()}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        say_expected_time(task, args, processes, folder)
        _generator(task, args, processes)(unfinished)
        (unfinished / _FACTS_FILE).write_text(json.dumps(facts, indent=1) + "\n")
        _rename(unfinished, folder, facts)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def remove_stale(base: Path) -> None:
    """Remove what processes of this machine were drawing when they were killed.

    Args:
        base: where drawn examples are kept. Folders of processes that still run, or run on another
            machine, stay.
    """
    for path in base.glob(f".*-*.{_host()}.*"):
        number = path.name.rpartition(".")[2]
        if _UNFINISHED.match(path.name) and number.isdecimal() and not _runs(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _host() -> str:
    return re.sub(r"[^\w-]", "_", socket.gethostname())


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _base(args: GeneratorArguments) -> Path:
    if args.generated_dir is not None:
        return Path(args.generated_dir)
    from datasets import config

    return Path(config.HF_DATASETS_CACHE) / "hf_linear_attn"


def _facts(task: str, args: GeneratorArguments) -> dict[str, Any]:
    facts: dict[str, Any] = {"version": _VERSION, "task": task, "seed": args.generator_seed}
    if task == "listops":
        return {**facts, "counts": args.listops_counts, "parameters": asdict(args.listops)}
    scenes = [asdict(parameters) for parameters in args.scenes(task)]
    return {**facts, "images": args.pathfinder_images, "parameters": scenes}


def _generator(
    task: str, args: GeneratorArguments, processes: int | None
) -> Callable[[Path], None]:
    seed = args.generator_seed
    if task == "listops":
        counts = args.listops_counts
        return lambda path: generate_listops(path, args.listops, counts, seed, processes)
    scenes, images = args.scenes(task), args.pathfinder_images
    return lambda path: generate_pathfinder(path, scenes, images, seed, processes)


def _rename(unfinished: Path, folder: Path, facts: dict[str, Any]) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        # Another run has drawn the same in the meantime.
        if not folder.exists():
            raise
        _check_facts(folder, facts)


def _check_facts(folder: Path, facts: dict[str, Any]) -> None:
    file = folder / _FACTS_FILE
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        found = None
    if found != facts:
        raise ValueError(
            f"{folder} is not a folder of drawn examples with these parameters; delete it, or "
            "choose another generated_dir"
        )
