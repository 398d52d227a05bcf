"""What a language model's run says at its end: results, an example, the commands to run next."""

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

from hf_linear_attn.training.continuation import Continuation
from hf_linear_attn.training.fill_mask import FilledMask
from hf_linear_attn.training.metrics import Unigram, perplexity
from hf_linear_attn.training.run_file import RUN_FILE


@dataclass(frozen=True)
class LanguageTask:
    """The words of a task.

    Attributes:
        title: of the table.
        accuracy: what the share of right first guesses is called.
        metric: the same in the metrics, behind `eval_`.
        tokens: what is predicted.
        usage: Python code that loads a folder, `{path}`, and uses the model.
    """

    title: str
    accuracy: str
    metric: str
    tokens: str
    usage: str


MASKED_LM = LanguageTask(
    "Masked language modelling",
    "masked accuracy",
    "masked_accuracy",
    "masked tokens",
    "fill_mask = pipeline('fill-mask', model={path}); "
    # Short enough for the shortest model.
    "print(fill_mask(f'The {{fill_mask.tokenizer.mask_token}}'))",
)
CAUSAL_LM = LanguageTask(
    "Causal language modelling",
    "next-token accuracy",
    "accuracy",
    "tokens",
    "generate = pipeline('text-generation', model={path}); "
    "print(generate('The', max_new_tokens=20))",
)
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
        tokens_per_second: of training; None where this process trained nothing.
        task: its words.
    """

    before: dict[str, Any] | None
    after: dict[str, Any]
    unigram: Unigram
    attention: str
    parameters: int
    steps: int
    tokens_per_second: float | None
    task: LanguageTask = MASKED_LM


def evaluation_before_training(history: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The evaluation at step 0 of a Trainer's log history, None if absent."""
    return next((e for e in history if "eval_loss" in e and e["step"] == 0), None)


def gather_results(
    trainer: Trainer,
    trained: TrainOutput,
    after: dict[str, Any],
    unigram: Unigram,
    attention: str,
    task: LanguageTask,
) -> RunResults:
    """What a finished run has measured.

    Args:
        trainer: after training; its history holds the evaluation before training.
        trained: what its `train` returned.
        after: metrics of the evaluation after training.
        unigram: the unigram model on the same tokens.
        attention: as given to `--attention`.
        task: masked or causal language modelling.
    """
    return RunResults(
        before=evaluation_before_training(trainer.state.log_history),
        after=after,
        unigram=unigram,
        attention=attention,
        parameters=get_model_param_count(trainer.model),
        steps=trained.global_step,
        tokens_per_second=trained.metrics.get("train_tokens_per_second"),
        task=task,
    )


def result_rows(results: RunResults) -> list[list[str]]:
    """The cells of the results table: name, before, after, unigram model."""
    unigram, task = results.unigram, results.task
    rows = []
    for name, key, pattern, plain in (
        ("evaluation loss (nats)", "eval_loss", "{:.4f}", unigram.loss),
        ("perplexity", "eval_perplexity", "{:.4g}", perplexity(unigram.loss)),
        (task.accuracy, f"eval_{task.metric}", "{:.2%}", unigram.accuracy),
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
        f"{results.unigram.tokens:,} {results.task.tokens} evaluated",
    ]
    if rate is not None:
        facts.insert(2, f"{rate:,.0f} tokens/s in training")
    table = Table(title=results.task.title, caption="; ".join(facts))
    for column in RESULT_COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for row in result_rows(results):
        table.add_row(*row)
    return table


def next_commands(
    launch: Sequence[str],
    output_dir: Path,
    task: LanguageTask,
    *,
    longer: tuple[str, float] | None,
    other_attention: str | None,
) -> list[tuple[str, str]]:
    """Commands that go on from a finished run, each with what it does.

    Args:
        launch: what starts the recipe, as `engines.launch_words` gives it.
        output_dir: where the run lives.
        task: of the run.
        longer: the argument that makes the run longer and its new value; None for a run without
            checkpoints, which cannot go on.
        other_attention: one that takes the same config fields; None if there is none.
    """
    loading = ("load the model in Python", _loading(str(output_dir), task))
    going_on = commands_to_go_on(launch, output_dir, longer, other_attention)
    return [loading, *going_on]


def commands_to_go_on(
    launch: Sequence[str],
    output_dir: Path,
    longer: tuple[str, float] | None,
    other_attention: str | None,
) -> list[tuple[str, str]]:
    """The commands of `next_commands` that run the recipe again, for any recipe."""
    launch = [*launch, "--config", str(output_dir / RUN_FILE)]
    commands = []
    if longer is not None:
        name, value = longer
        commands.append(("go on after an interruption, from its checkpoint", shlex.join(launch)))
        purpose = "train longer (the learning-rate schedule is stretched over the new length)"
        commands.append((purpose, shlex.join([*launch, f"--{name}", f"{value:.12g}"])))
    if other_attention is not None:
        # "." has no name to put something behind.
        folder = output_dir.resolve() if output_dir.name in ("", "..") else output_dir
        target = f"{folder}-{other_attention}"
        extra = ["--attention", other_attention, "--output_dir", target]
        commands.append(("the same run with another attention", shlex.join([*launch, *extra])))
    return commands


def show_report(
    console: Console,
    results: RunResults,
    example: Sequence[Text],
    commands: Sequence[tuple[str, str]],
    output_dir: Path,
) -> None:
    """Print table, example and commands; commands are never wrapped, so they can be copied.

    Args:
        console: to print to.
        results: of the run.
        example: lines that show what the model can do.
        commands: of `next_commands`.
        output_dir: where the run lives.
    """
    console.print(results_table(results))
    for line in example:
        console.print(line, soft_wrap=True)
    console.print(Text(f"\nSaved in {output_dir}: model, tokenizer, card (README.md), loss curve"))
    for purpose, command in commands:
        console.print(Text(f"\n# {purpose}", style="dim"), soft_wrap=True)
        console.print(Text(command), soft_wrap=True)


def filled_mask_lines(example: FilledMask) -> list[Text]:
    """A filled mask, to be printed."""
    guesses = ", ".join(f"{token!r} {p:.1%}" for token, p in example.guesses)
    return [
        Text("\nA filled mask, from the evaluation text:", style="bold"),
        Text(f"  {example.sentence}"),
        Text(f"  masked was {example.truth!r}; guesses: {guesses}"),
    ]


def continuation_lines(continuations: Sequence[Continuation]) -> list[Text]:
    """Continued texts, to be printed; what the model wrote is bold."""
    if not continuations:
        return []
    lines = [Text("\nWhat the model goes on with (its own words in bold):", style="bold")]
    for one in continuations:
        # Breaks and other white space as it stands in code: a line stays a line.
        prompt, written = (repr(text)[1:-1] for text in (one.prompt, one.written))
        lines.append(Text("  ").append(prompt).append(written, style="bold"))
    return lines


def _loading(output_dir: str, task: LanguageTask) -> str:
    code = "import hf_linear_attn; from transformers import pipeline; " + task.usage.format(
        path=repr(output_dir)
    )
    # In double quotes it reads more easily, where the path has nothing that a shell would replace.
    plain = re.fullmatch(r"[\w./-]+", output_dir)
    return f'python -c "{code}"' if plain else shlex.join(["python", "-c", code])
