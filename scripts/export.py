r"""Write a model with its code into one folder, which loads where this package is not installed.

    python scripts/export.py runs/mlm-tiny-cpu --output exported/tiny
    python scripts/export.py runs/mlm-tiny-cpu --push_to_hub --hub_model_id me/tiny --private

MODEL is a folder with a model of this package, such as a recipe's output, or its name on the Hub.
The folder gets weights, config, tokenizer, card and code; who loads it says trust_remote_code=True,
or `import hf_linear_attn` first. The Hub takes the token of `hf auth login` or HF_TOKEN.
"""

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hf_linear_attn.integrations.config_card import auto_class_of, place
from hf_linear_attn.integrations.hub import upload, write_folder
from hf_linear_attn.integrations.hub_access import check_access
from hf_linear_attn.integrations.moved_card import moved_card
from hf_linear_attn.integrations.saved_model import SavedModel, load_saved_model
from hf_linear_attn.training.new_folder import new_folder
from hf_linear_attn.training.program import ProgramParser, run_program
from hf_linear_attn.training.run_file import RUN_FILE
from hf_linear_attn.training.yaml_files import read_yaml_mapping


def main(argv: list[str]) -> None:
    """Load the model, write the folder, upload it."""
    args = read_arguments(argv)
    console = Console()
    target = None if args.output is None else Path(args.output)
    name = check_access(args.hub_model_id, None) if args.push_to_hub else None
    where = name or str(target)
    with _folder(target) as folder:
        with console.status(f"Loading {args.model}"):
            saved = load_saved_model(args.model, args.revision)
        card = moved_card(
            saved, args.model, where, with_code=True, revision=args.hub_revision,
            shared_as=_shared_as(Path(args.model)),
        )  # fmt: skip
        write_folder(
            folder, saved.model, saved.tokenizer, where=where, with_code=True, card=card,
            revision=args.hub_revision,
        )  # fmt: skip
        for page in saved.pages:
            shutil.copyfile(page, folder / page.name)
        _show(console, folder, saved)
        if target is None:
            _publish(console, folder, args, name, card)
    if target is not None:
        console.print(f"Written to {target}", soft_wrap=True, markup=False)
        _publish(console, target, args, name, card)
    _show_next(console, where, args.hub_revision, saved)


def read_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line.

    Raises:
        ValueError: what was given does not go together.
    """
    parser = ProgramParser(__doc__, prog="python scripts/export.py")
    parser.add_argument("model", metavar="MODEL", help="a folder, or a name on the Hub")
    parser.add_argument("--revision", help="branch, tag or commit of a MODEL on the Hub")
    parser.add_argument("--output", metavar="DIR", help="folder to write; new, or empty")
    hub = parser.add_argument_group("the Hub")
    hub.add_argument("--push_to_hub", action="store_true", help="upload the folder, in one commit")
    hub.add_argument("--hub_model_id", metavar="ME/NAME", help="where to; made if it is missing")
    hub.add_argument(
        "--private",
        action=argparse.BooleanOptionalAction,
        help="who sees a new repository (default: as your account has it)",
    )
    hub.add_argument("--hub_revision", metavar="BRANCH", help="branch (default: the main one)")
    hub.add_argument("--commit_message", help="default: one that names the model")
    args = parser.parse_args(argv)
    if not (args.output or args.push_to_hub):
        raise ValueError("give --output DIR, --push_to_hub with --hub_model_id ME/NAME, or both")
    if args.push_to_hub and not args.hub_model_id:
        raise ValueError("--push_to_hub needs --hub_model_id ME/NAME")
    for option in ("hub_model_id", "private", "hub_revision", "commit_message"):
        if not args.push_to_hub and getattr(args, option) is not None:
            raise ValueError(f"--{option} is for the Hub: add --push_to_hub, or leave it out")
    source = Path(args.model)
    if args.output and source.is_dir() and source.resolve() in Path(args.output).resolve().parents:
        raise ValueError(f"output {args.output} is inside of {source}: choose a place beside it")
    return args


@contextmanager
def _folder(target: Path | None) -> Iterator[Path]:
    """Where the model is written to before it is shown to anyone."""
    if target is not None:
        with new_folder(target) as folder:
            yield folder
    else:
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch)


def _shared_as(folder: Path) -> list[str]:
    """Names on the Hub that a recipe's run has had."""
    file = folder / RUN_FILE
    arguments = read_yaml_mapping(file) if file.is_file() else {}
    name = arguments.get("hub_model_id")
    return [name] if isinstance(name, str) else []


def _publish(
    console: Console, folder: Path, args: argparse.Namespace, name: str | None, card: str | None
) -> None:
    if name is None:
        return
    address = upload(
        folder, name, private=args.private, revision=args.hub_revision, token=None,
        commit_message=args.commit_message or f"Model exported from {Path(args.model).name}",
        keep_card=card is None,
    )  # fmt: skip
    console.print(f"Uploaded: {address}", soft_wrap=True, markup=False)


def _show(console: Console, folder: Path, saved: SavedModel) -> None:
    files = [file for file in folder.rglob("*") if file.is_file()]
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    config: Any = saved.model.config
    table = Table(show_header=False)
    for fact, value in (
        ("model", type(saved.model).__name__),
        ("parameters", f"{saved.model.num_parameters():,}"),
        ("dtype", str(saved.model.dtype).removeprefix("torch.")),
        ("attention", ", ".join(dict.fromkeys(config.attention_names))),
        ("tokenizer", "none" if saved.tokenizer is None else type(saved.tokenizer).__name__),
        ("loads as", auto_class_of(saved.model)),
        ("files", f"{len(files)}, of them code {len(list(folder.glob('*.py')))}"),
        ("size", f"{megabytes:.1f} MB"),
        *([("left out", _left_out(saved.left_out))] if saved.left_out else []),
    ):
        table.add_row(fact, Text(value))
    console.print(table)


def _left_out(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3]) + (", …" if names[3:] else "")
    tensors = f"{len(names)} saved tensor{'s' if names[1:] else ''}"
    return f"{tensors} that the model has no place for: {shown}"


def _show_next(console: Console, where: str, revision: str | None, saved: SavedModel) -> None:
    auto = auto_class_of(saved.model)
    console.print("\n# load it in any environment with Transformers", markup=False)
    code = (
        f"from transformers import {auto}; "
        f"print({auto}.from_pretrained({place(where, revision)}, trust_remote_code=True))"
    )
    console.print(f"python -c {shlex.quote(code)}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    run_program(main, sys.argv[1:])
