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
import os
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from hf_linear_attn.integrations.config_card import config_card
from hf_linear_attn.integrations.hub import write_folder
from hf_linear_attn.integrations.hub_errors import hub_errors
from hf_linear_attn.models import CONFIG_CLASSES
from hf_linear_attn.models.convert import variant_class
from hf_linear_attn.models.weight_maps import head_of
from hf_linear_attn.training.arguments import parse_overrides
from hf_linear_attn.training.new_folder import check_new_folder, new_folder
from hf_linear_attn.training.program import ProgramParser, run_program

REPORT = "conversion.md"
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "tokenizer.model",
    "spiece.model", "sentencepiece.bpe.model",
)  # fmt: skip
PLOT = "attention_transfer.png"
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
    add("--block_size", type=int, default=512, help="tokens of an example (default: 512)")
    add("--batch_size", type=int, default=8, help="examples a step (default: 8)")
    add("--learning_rate", type=float, default=1e-3, help="peak (default: 0.001)")
    add("--trained", default="qk", help="projections to fit, letters of qkvo (default: qk)")
    args = parser.parse_args(argv)
    if (args.distill is None) != (args.steps is None):
        raise ValueError("--distill and --steps go together: give both or neither")
    return args


def main(argv: list[str]) -> None:
    """Convert, fit, save, and say what was done."""
    args = read_arguments(argv)
    check_new_folder(args.output)
    console = Console()
    torch.manual_seed(args.seed)
    where = {k: v for k in ("revision", "gguf_file") if (v := getattr(args, k)) is not None}
    head = _head(args.source, where)
    fields = parse_overrides(args.config_overrides)
    if args.max_positions is not None:
        if fields.get("max_position_embeddings", args.max_positions) != args.max_positions:
            raise ValueError("max_positions and config_overrides name different numbers")
        fields["max_position_embeddings"] = args.max_positions
    tokenizer = _tokenizer(args.source, where)
    load = {**where, **({} if args.dtype is None else {"dtype": args.dtype})}
    with hub_errors(args.source, args.revision):
        model = variant_class(args.to, head).from_pretrained(args.source, **load, **fields)
    report = model.conversion_report
    report.notes += _fit_vocabulary(model, tokenizer, args.unused_vocab)
    result = None
    if args.distill is not None:
        result = _transfer(args, model, tokenizer, head, load, fields)
    with new_folder(args.output) as folder:
        card = config_card(
            model, str(args.output), with_code=False, has_tokenizer=tokenizer is not None,
            origin=args.source,
        )  # fmt: skip
        write_folder(folder, model, tokenizer, where=str(args.output), with_code=False, card=card)
        (folder / REPORT).write_text(report.to_markdown(), encoding="utf-8")
        if result is not None:
            from hf_linear_attn.integrations.transfer_report import plot_transfer

            plot_transfer(result, folder / PLOT)
    _show(console, args, model, tokenizer, result)


def _head(source: str, where: dict[str, Any]) -> str:
    """The head of a checkpoint, by its config.

    Raises:
        ValueError: there is no such checkpoint.
    """
    local = source.startswith(("/", ".", "~")) or Path(source).exists()
    if local and not (Path(source) / where.get("gguf_file", "config.json")).is_file():
        raise ValueError(f"{source} is no folder with a checkpoint: it holds no config.json")
    with hub_errors(source, where.get("revision")):
        config = AutoConfig.from_pretrained(source, **where)
    return head_of((config.architectures or ["Model"])[0])


def _tokenizer(source: str, where: dict[str, Any]) -> PreTrainedTokenizerBase | None:
    """The checkpoint's tokenizer; None if it has none."""
    if "gguf_file" not in where and not any(_has_file(source, n, where) for n in TOKENIZER_FILES):
        # Transformers would make an empty one of the model's type.
        return None
    try:
        return AutoTokenizer.from_pretrained(source, **where)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"the tokenizer of {source} cannot be read: {error}") from error


def _has_file(source: str, name: str, where: dict[str, Any]) -> bool:
    found = cached_file(source, name, _raise_exceptions_for_missing_entries=False, **where)
    return found is not None


def _fit_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, unused: str | None
) -> list[str]:
    """See that model and tokenizer agree; what was done, in sentences."""
    if tokenizer is None:
        return ["the source has no tokenizer; none is saved."]
    rows, tokens = model.config.vocab_size, len(tokenizer)
    if tokens > rows:
        raise ValueError(
            f"the tokenizer has {tokens} tokens, the model a vocabulary of {rows}: ids from {rows} "
            "on would be outside its table. The folder mixes two models"
        )
    if tokens == rows:
        return []
    if unused is None:
        raise ValueError(
            f"the model's vocabulary of {rows} is larger than the tokenizer's {tokens} tokens: "
            "pass --unused_vocab keep (as the source has it) or --unused_vocab drop (cut the "
            "rows that no token uses)"
        )
    if unused == "keep":
        return [f"{rows - tokens} rows of the vocabulary have no token and are kept."]
    model.resize_token_embeddings(tokens)
    return [f"{rows - tokens} rows of the vocabulary that no token uses were cut off."]


def _transfer(
    args: argparse.Namespace, model: Any, tokenizer: Any, head: str, load: dict[str, Any],
    fields: dict[str, Any],
) -> Any:  # fmt: skip
    """Fit the model's attention to that of the source."""
    from hf_linear_attn.integrations.distill import transfer_attention
    from hf_linear_attn.training.transfer_data import transfer_data

    if tokenizer is None:
        raise ValueError(f"--distill reads text, and {args.source} has no tokenizer")
    mechanism = {"layer_attention", "attention_kwargs"}
    shape = {k: v for k, v in fields.items() if k in _trunk_fields() - mechanism}
    # The trunk with the old attention: the same weights, softmax in every layer.
    teacher = variant_class("softmax", head).from_pretrained(args.source, **load, **shape)
    if args.unused_vocab == "drop":
        teacher.resize_token_embeddings(len(tokenizer))
    data = transfer_data(
        args.distill, tokenizer, block_size=args.block_size, batch_size=args.batch_size,
        seed=args.seed,
    )  # fmt: skip
    return transfer_attention(
        teacher, model, data.train, steps=args.steps, evaluation=data.evaluation,
        learning_rate=args.learning_rate, trained=args.trained,
    )  # fmt: skip


def _trunk_fields() -> set[str]:
    return set(CONFIG_CLASSES["softmax"]().to_dict())


def _show(
    console: Console, args: argparse.Namespace, model: Any, tokenizer: Any, result: Any
) -> None:
    """What was made, and what to do with it."""
    report = model.conversion_report
    if result is not None:
        from hf_linear_attn.integrations.transfer_report import transfer_table

        console.print(transfer_table(result))
    table = Table(title=f"{report.source} → {report.target}", show_header=False)
    names = model.config.attention_names
    counts = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    table.add_row("attention", ", ".join(counts))
    table.add_row("parameters", f"{model.num_parameters():,}")
    table.add_row("positions", f"{model.config.max_position_embeddings:,}")
    table.add_row("tensors filled", f"{len(report.filled):,}")
    table.add_row("tensors new", _names(report.new))
    table.add_row("of the source dropped", _names(report.dropped))
    table.add_row("tokenizer", "none" if tokenizer is None else type(tokenizer).__name__)
    for note in report.notes:
        table.add_row("note", note)
    console.print(table)
    console.print(f"Saved in {args.output}; every tensor is accounted for in {REPORT}.")
    head = report.target.removeprefix(type(model).__name__[: -len(head_of(report.target))])
    if head in RECIPES and tokenizer is not None:
        recipe = os.path.relpath(Path(__file__).parents[1] / "recipes" / RECIPES[head])
        console.print(
            "Finetune it:\n  accelerate launch "
            f"{recipe} --attention {args.to} --model_name_or_path {args.output} "
            "--train_file text.txt --output_dir runs/finetuned",
            soft_wrap=True,
        )


def _names(explained: dict[str, str]) -> str:
    shown = ", ".join(list(explained)[:3])
    return f"{len(explained)}{': ' if shown else ''}{shown}{', …' if len(explained) > 3 else ''}"


if __name__ == "__main__":
    run_program(main, sys.argv[1:])
