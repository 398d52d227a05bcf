r"""Convert a softmax checkpoint to linear attention; on request fit the new attention to the old.

    python scripts/convert.py FacebookAI/roberta-base --to cosformer --output runs/roberta-cosformer
    python scripts/convert.py HuggingFaceTB/SmolLM2-135M --to cosformer --output runs/smollm2 \
        --config_overrides cos_horizon=2048 --distill text.txt --steps 200

Reads RoBERTa, BERT, DistilBERT, GPT-2, Llama, Mistral, Qwen2 and Qwen3 checkpoints and models of
this package. The weights stay what they were, except where --distill fits the attention; what a
new attention makes of them has to be finetuned. The folder holds model, tokenizer, generation
config, and `conversion.md`, which accounts for every tensor. The source is never changed.
"""

import argparse
import dataclasses
import importlib.util
import math
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from transformers import PreTrainedTokenizerBase

from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.integrations.config_card import config_card
from hf_linear_attn.integrations.distill import AttentionTransfer, transfer_attention
from hf_linear_attn.integrations.hub import write_folder
from hf_linear_attn.integrations.hub_errors import hub_errors
from hf_linear_attn.integrations.saved_model import PLOT, REPORT
from hf_linear_attn.integrations.source_tokenizer import (
    fit_length,
    fit_vocabulary,
    read_tokenizer,
)
from hf_linear_attn.integrations.transfer_layers import PROJECTIONS
from hf_linear_attn.integrations.transfer_report import (
    mark_fitted,
    plot_transfer,
    transfer_markdown,
    transfer_table,
)
from hf_linear_attn.models import CONFIG_CLASSES, LinearAttnConfig
from hf_linear_attn.models.convert import convert
from hf_linear_attn.models.foreign import read_config
from hf_linear_attn.models.foreign_config import foreign_fields
from hf_linear_attn.models.saved_weights import check_no_pickle
from hf_linear_attn.models.weight_maps import head_of_class
from hf_linear_attn.training.arguments import parse_overrides
from hf_linear_attn.training.model_setup import check_block_size
from hf_linear_attn.training.new_folder import new_folder
from hf_linear_attn.training.program import ProgramParser, run_program
from hf_linear_attn.training.saved_files import DamagedFileError, read_json
from hf_linear_attn.training.text_files import find_file

RECIPES = {"ForMaskedLM": "mlm.py", "ForCausalLM": "clm.py"}


def read_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = ProgramParser(__doc__, prog="python scripts/convert.py")
    add = parser.add_argument
    add("source", help="folder of a checkpoint, or its name on the Hub")
    add("--to", required=True, help=f"attention: {', '.join(CONFIG_CLASSES)}")
    add("--output", required=True, type=Path, help="folder to make; it must not exist yet")
    add("--max_positions", type=int, help="positions of the new model; a learned table is extended "
        "by repeating it")  # fmt: skip
    add("--config_overrides", default="", help="config fields as field=value,field=value, such as "
        "'layer_attention=[softmax,cosformer],cos_horizon=1024'")  # fmt: skip
    add("--unused_vocab", choices=["keep", "drop"], help="what to do with rows of the vocabulary "
        "that the tokenizer has no token for; without it they are an error")  # fmt: skip
    add("--revision", help="branch, tag or commit on the Hub (default: main)")
    add("--gguf_file", help="file in the folder, if the checkpoint is in GGUF format")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="default: the checkpoint's")
    add("--seed", type=int, default=0, help="of what is drawn anew and of the order of the text "
        "(default: 0)")  # fmt: skip
    transfer = parser.add_argument_group(
        "attention transfer", "fit each new attention to the output of the old one, layer by layer"
    )
    add = transfer.add_argument
    add("--distill", nargs="+", metavar="FILE", help="text without labels: .txt, .jsonl, …")
    add("--steps", type=int, help="optimiser steps; needed with --distill")
    add("--text_column", help="of files that have columns (default: text)")
    add("--block_size", type=int, help="tokens of an example (default: 512)")
    add("--batch_size", type=int, help="examples a step (default: 8)")
    add("--learning_rate", type=float, help="peak (default: 0.01)")
    add("--trained", help="projections to fit, letters of qkvo (default: qk)")
    add("--device", help="where to fit (default: a GPU if there is one)")
    args = parser.parse_args(argv)
    if not 0 <= args.seed < 2**32:
        raise ValueError(f"--seed: got {args.seed}, expected at least 0 and below 2**32")
    _settle_transfer(args)
    return args


def _settle_transfer(args: argparse.Namespace) -> None:
    """Fill in what was not given, and refuse what can be known to be wrong before any work."""
    defaults = {
        "text_column": "text", "block_size": 512, "batch_size": 8, "learning_rate": 1e-2,
        "trained": "qk", "device": "cuda" if torch.cuda.is_available() else "cpu",
    }  # fmt: skip
    if args.distill is None:
        for name in ("steps", *defaults):
            if getattr(args, name) is not None:
                raise ValueError(f"--{name} is for the attention transfer: add --distill FILE")
        return
    if args.steps is None:
        raise ValueError("--distill needs --steps: how many steps to fit")
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    for name in ("steps", "block_size", "batch_size"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name}: got {getattr(args, name)}, expected 1 or more")
    if not args.trained or set(args.trained) - set(PROJECTIONS):
        raise ValueError(f"--trained: got {args.trained!r}, expected letters of {PROJECTIONS}")
    if not 0 < args.learning_rate < math.inf:
        raise ValueError(f"--learning_rate: got {args.learning_rate}, expected a number above 0")
    _check_device(args.device)
    for file in args.distill:
        if Path(file).is_dir():
            raise ValueError(f"--distill: {file} is a folder; name its files")
        find_file(file)
    for package in ("datasets", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"--distill needs the package {package}: pip install 'hf-linear-attn[recipes]'"
            )


def _check_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"--device: {name!r} cannot be used here ({error})") from error


def main(argv: list[str]) -> None:
    """Convert, fit, save, and say what was done."""
    args = read_arguments(argv)
    _check_places(args)
    console = Console()
    # Entered first: a place that cannot be written to shows before the work.
    with new_folder(args.output) as folder:
        conversion = _convert(args, console)
        _save(folder, args, conversion)
    if conversion.transfer is not None:
        # Last, and into the finished folder: a picture must not cost the model.
        plot_transfer(conversion.transfer, args.output / PLOT)
    _show(console, args, conversion)


@dataclass
class Conversion:
    """What was made.

    Attributes:
        model: with its `conversion_report`.
        tokenizer: None where the source has none.
        transfer: what the attention transfer did; None without one.
    """

    model: Any
    tokenizer: PreTrainedTokenizerBase | None
    transfer: AttentionTransfer | None = None


def _convert(args: argparse.Namespace, console: Console) -> Conversion:
    torch.manual_seed(args.seed)
    where = {k: v for k in ("revision", "gguf_file") if (v := getattr(args, k)) is not None}
    fields = _fields(args)
    with hub_errors(args.source, args.revision):
        source: Any = read_config(args.source, where)
        tokenizer = read_tokenizer(args.source, where)
        load = {**where, **({} if args.dtype is None else {"dtype": args.dtype})}
        if args.gguf_file is None:
            check_no_pickle(args.source)
            load["use_safetensors"] = True  # never a pickle, which is a program
        model = convert(args.source, args.to, **load, **fields)
    report = model.conversion_report
    if tokenizer is None:
        report.notes.append("the source has no tokenizer; none is saved.")
    else:
        report.notes += fit_vocabulary(model, tokenizer, args.unused_vocab)
        before = foreign_fields(source, LinearAttnConfig)[0]["max_position_embeddings"]
        report.notes += fit_length(tokenizer, before, model.config.max_position_embeddings)
    made = Conversion(model, tokenizer)
    if args.distill is not None:
        made.transfer = _transfer(args, made, source, load, console)
        mark_fitted(report, made.transfer)
    return made


def _check_places(args: argparse.Namespace) -> None:
    """Raise ValueError for a source that is no checkpoint or lies outside, or an output inside."""
    file = Path(args.gguf_file or "")
    if file.is_absolute() or ".." in file.parts:
        raise ValueError(f"--gguf_file {file} leads out of the checkpoint's folder; name one in it")
    source = Path(args.source)
    local = args.source.startswith(("/", ".", "~")) or source.exists()
    if not local:
        return
    needed = args.gguf_file or "config.json"
    if not (source / needed).is_file():
        raise ValueError(f"{source} is no folder with a checkpoint: it holds no {needed}")
    if needed == "config.json":
        try:
            read_json(source / needed)
        except DamagedFileError as error:
            raise ValueError(f"{error}; save or download the checkpoint again") from error
    if args.output.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"output {args.output} lies in the source, which is never changed")


def _fields(args: argparse.Namespace) -> dict[str, Any]:
    """Config fields of the command line."""
    fields = parse_overrides(args.config_overrides)
    known = {f.name for c in CONFIG_CLASSES.values() for f in dataclasses.fields(c)}
    known = (known | {"num_labels"}) - {"architectures", "dtype", "transformers_version"}
    for name in fields:
        if name not in known:
            raise ValueError(f"config_overrides: no field {name!r}.{did_you_mean(name, known)}")
    if args.max_positions is not None:
        if fields.get("max_position_embeddings", args.max_positions) != args.max_positions:
            raise ValueError("max_positions and config_overrides name different numbers")
        fields["max_position_embeddings"] = args.max_positions
    return fields


def _transfer(
    args: argparse.Namespace, made: Conversion, source: Any, load: dict[str, Any],
    console: Console,
) -> AttentionTransfer:  # fmt: skip
    """Fit the model's attention to that of the source."""
    from hf_linear_attn.training.transfer_data import transfer_data

    if made.tokenizer is None:
        raise ValueError(f"--distill reads text, and {args.source} has no tokenizer")
    # The old attention on the same trunk: the source's own, or softmax in every layer.
    own = [name for name, config in CONFIG_CLASSES.items() if config is type(source)]
    positions = {"max_position_embeddings": made.model.config.max_position_embeddings}
    teacher = convert(args.source, own[0] if own else "softmax", **load, **positions)
    if args.unused_vocab == "drop":
        teacher.resize_token_embeddings(made.model.config.vocab_size)
    check_block_size(made.model.config, args.block_size, "--block_size")
    data = transfer_data(
        args.distill, made.tokenizer, block_size=args.block_size, batch_size=args.batch_size,
        seed=args.seed, text_column=args.text_column,
    )  # fmt: skip
    console.print(f"Fitting on {data.description}, on {args.device}", markup=False)
    home, device = made.model.device, torch.device(args.device)
    result = transfer_attention(
        teacher.to(device), made.model.to(device), data.train, steps=args.steps,
        evaluation=data.evaluation, learning_rate=args.learning_rate, trained=args.trained,
        callback=_lines(console, args.steps),
    )  # fmt: skip
    made.model.to(home)
    return result


def _lines(console: Console, steps: int) -> Any:
    """On a terminal there is a bar; a log gets some twenty lines."""
    if sys.stderr.isatty():
        return None

    def say(step: int, losses: dict[int, float]) -> None:
        if step == steps or step % max(1, steps // 20) == 0:
            mean = sum(losses.values()) / len(losses)
            console.print(f"step {step} of {steps}: mean loss {mean:.4f}", highlight=False)

    return say


def _save(folder: Path, args: argparse.Namespace, made: Conversion) -> None:
    card = config_card(
        made.model, str(args.output), with_code=False, has_tokenizer=made.tokenizer is not None,
        origin=args.source,
    )  # fmt: skip
    write_folder(
        folder, made.model, made.tokenizer, where=str(args.output), with_code=False, card=card
    )
    page = made.model.conversion_report.to_markdown()
    if made.transfer is not None:
        page += f"\n{transfer_markdown(made.transfer)}\n![Losses over the steps]({PLOT})\n"
    (folder / REPORT).write_text(page, encoding="utf-8")


def _show(console: Console, args: argparse.Namespace, made: Conversion) -> None:
    """What was made, and what to do with it."""
    model, report = made.model, made.model.conversion_report
    if made.transfer is not None:
        console.print(transfer_table(made.transfer))
    table = Table(title=f"{report.source} → {report.target}", show_header=False)
    names = model.config.attention_names
    counts = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    tokenizer = "none" if made.tokenizer is None else type(made.tokenizer).__name__
    for fact, value in (
        ("attention", ", ".join(counts)),
        ("parameters", f"{model.num_parameters():,}"),
        ("positions", f"{model.config.max_position_embeddings:,}"),
        ("tensors filled", f"{len(report.filled):,}"),
        ("tensors new", _names(report.new)),
        ("of the source dropped", _names(report.dropped)),
        ("tokenizer", tokenizer),
        *(("note", note) for note in report.notes),
    ):
        table.add_row(fact, Text(value))
    console.print(table)
    said = [f"Saved in {args.output}; {REPORT} there accounts for every tensor."]
    recipe = RECIPES.get(head_of_class(type(model)))
    if recipe is not None and made.tokenizer is not None:
        recipe = os.path.relpath(Path(__file__).parents[1] / "recipes" / recipe)
        said += [
            "Finetune it:",
            f"  accelerate launch {shlex.quote(recipe)} --attention {args.to} --model_name_or_path "
            f"{shlex.quote(str(args.output))} --train_file text.txt --output_dir runs/finetuned",
        ]
    for line in said:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _names(explained: dict[str, str]) -> str:
    shown = ", ".join(list(explained)[:3])
    return f"{len(explained)}{': ' if shown else ''}{shown}{', …' if len(explained) > 3 else ''}"


if __name__ == "__main__":
    run_program(main, sys.argv[1:])
