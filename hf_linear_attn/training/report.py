"""What a masked-LM run says at its end: results, a filled mask, the commands to run next."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from transformers import Trainer
from transformers.trainer_pt_utils import get_model_param_count
from transformers.trainer_utils import TrainOutput

from hf_linear_attn.training.fill_mask import FilledMask
from hf_linear_attn.training.metrics import Unigram, perplexity
from hf_linear_attn.training.run_folder import RUN_FILE

RESULT_COLUMNS = ("", "before training", "after training", "unigram model")


@dataclass(frozen=True)
class RunResults:
    """What was measured.

    Attributes:
        before: metrics of the evaluation before training, keys `eval_…`; None if there is none.
        after: metrics of the evaluation after training.
        unigram: the unigram model on the same tokens.
        attention: as given to `--attention`.
        parameters: number of weights.
        steps: optimiser steps in all.
        tokens_per_second: of training; None where nothing was trained in this session.
    """

    before: dict[str, Any] | None
    after: dict[str, Any]
    unigram: Unigram
    attention: str
    parameters: int
    steps: int
    tokens_per_second: float | None


def evaluation_before_training(history: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The evaluation at step 0 of a Trainer's log history, None if absent."""
    return next((e for e in history if "eval_loss" in e and e["step"] == 0), None)


def gather_results(
    trainer: Trainer, trained: TrainOutput, after: dict[str, Any], unigram: Unigram, attention: str
) -> RunResults:
    """What a finished run has measured.

    Args:
        trainer: after training; its history holds the evaluation before training.
        trained: what its `train` returned.
        after: metrics of the evaluation after training.
        unigram: the unigram model on the same tokens.
        attention: as given to `--attention`.
    """
    return RunResults(
        before=evaluation_before_training(trainer.state.log_history),
        after=after,
        unigram=unigram,
        attention=attention,
        parameters=get_model_param_count(trainer.model),
        steps=trained.global_step,
        tokens_per_second=trained.metrics.get("train_tokens_per_second"),
    )


def result_rows(results: RunResults) -> list[list[str]]:
    """The cells of the results table: name, before, after, unigram model."""
    unigram = results.unigram
    rows = []
    for name, key, pattern, plain in (
        ("evaluation loss (nats)", "eval_loss", "{:.4f}", unigram.loss),
        ("perplexity", "eval_perplexity", "{:.4g}", perplexity(unigram.loss)),
        ("masked accuracy", "eval_masked_accuracy", "{:.2%}", unigram.accuracy),
    ):
        before = pattern.format(results.before[key]) if results.before else "–"
        rows.append([name, before, pattern.format(results.after[key]), pattern.format(plain)])
    return rows


def results_table(results: RunResults) -> Table:
    """The table at the end of a run."""
    rate = results.tokens_per_second
    facts = [
        f"{results.attention}, {results.parameters:,} parameters",
        f"{results.steps:,} steps",
        f"{results.unigram.tokens:,} masked tokens evaluated",
    ]
    if rate is not None:
        facts.insert(2, f"{rate:,.0f} tokens/s in training")
    table = Table(title="Masked language modelling", caption="; ".join(facts))
    for column in RESULT_COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for row in result_rows(results):
        table.add_row(*row)
    return table


def next_commands(
    program: str,
    output_dir: Path,
    *,
    longer: tuple[str, float] | None,
    other_attention: str | None,
) -> list[tuple[str, str]]:
    """Commands that go on from a finished run, each with what it does.

    Args:
        program: path of the recipe.
        output_dir: where the run lives.
        longer: the argument that makes the run longer and its new value; None for a run without
            checkpoints, which cannot go on.
        other_attention: one that takes the same config fields; None if there is none.
    """
    launch = ["accelerate", "launch", program, "--config", str(output_dir / RUN_FILE)]
    commands = [("load the model in Python", _loading(str(output_dir)))]
    if longer is not None:
        name, value = longer
        commands.append(("go on after an interruption, from its checkpoint", shlex.join(launch)))
        purpose = "train longer (the learning-rate schedule is stretched over the new length)"
        commands.append((purpose, shlex.join([*launch, f"--{name}", f"{value:.12g}"])))
    if other_attention is not None:
        target = f"{output_dir}-{other_attention}"
        extra = ["--attention", other_attention, "--output_dir", target]
        commands.append(("the same run with another attention", shlex.join([*launch, *extra])))
    return commands


def show_report(
    console: Console,
    results: RunResults,
    example: FilledMask,
    commands: Sequence[tuple[str, str]],
    output_dir: Path,
) -> None:
    """Print table, filled mask and commands; commands are never wrapped, so they can be copied."""
    console.print(results_table(results))
    console.print(Text("\nA filled mask, from the evaluation text:", style="bold"))
    console.print(Text(f"  {example.sentence}"), soft_wrap=True)
    guesses = ", ".join(f"{token!r} {p:.1%}" for token, p in example.guesses)
    console.print(Text(f"  masked was {example.truth!r}; guesses: {guesses}"), soft_wrap=True)
    console.print(Text(f"\nSaved in {output_dir}: model, tokenizer, card (README.md), loss curve"))
    for purpose, command in commands:
        console.print(Text(f"\n# {purpose}", style="dim"), soft_wrap=True)
        console.print(Text(command), soft_wrap=True)


def _loading(output_dir: str) -> str:
    code = (
        "import hf_linear_attn; from transformers import pipeline; "
        f"fill_mask = pipeline('fill-mask', model={output_dir!r}); "
        # Short enough for the shortest model.
        "print(fill_mask(f'The {fill_mask.tokenizer.mask_token}'))"
    )
    # In double quotes it reads more easily, where the path has nothing that a shell would replace.
    plain = re.fullmatch(r"[\w./-]+", output_dir)
    return f'python -c "{code}"' if plain else shlex.join(["python", "-c", code])
