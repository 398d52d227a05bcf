"""What a classification run says at its end: its metrics beside the constant answer's."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hf_linear_attn.integrations.model_card import Loading
from hf_linear_attn.training.classification_card import MetricResult, classification_task_card
from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.data import TaskData
from hf_linear_attn.training.glue.sources import NamedDataset, Sources, describe_sources
from hf_linear_attn.training.run_card import TaskCard

SAMPLE_SIGN = "*"
SAMPLE_NOTE = "* a sample of the rows: not comparable with results on all of them"


@dataclass(frozen=True)
class TaskResults:
    """What was measured.

    Attributes:
        metrics: split -> metric -> value, in the order in which they are shown.
        baseline: the same of the constant answer, where it was measured.
        examples: split -> number of rows.
        constant: that answer.
        positive: the class that F1 is about; None without F1.
        samples: splits that are not all the official rows.
        seed: of the run.
        steps: optimiser steps in all.
        tokens_per_second: of training; None where the training was complete already.
        parameters: number of weights.
    """

    metrics: Mapping[str, Mapping[str, float]]
    baseline: Mapping[str, Mapping[str, float]]
    examples: Mapping[str, int]
    constant: str
    positive: str | None
    samples: frozenset[str]
    seed: int
    steps: int
    tokens_per_second: float | None
    parameters: int


def metric_prefix(split: str) -> str:
    """What the metrics of a split begin with: `eval` for the main one, as Trainer has it."""
    return split.replace("validation", "eval", 1) if split.startswith("validation") else split


def metric_title(metric: str, positive: str | None) -> str:
    """A metric's name for people; of F1, with the class that it is about."""
    return f"f1 (of {positive})" if metric == "f1" else metric.replace("_", " ")


def results_table(title: str, results: TaskResults) -> Table:
    """The table at the end of a run."""
    facts = [f"{results.parameters:,} parameters", f"{results.steps:,} steps"]
    if results.tokens_per_second is not None:
        facts.append(f"{results.tokens_per_second:,.0f} tokens/s in training")
    facts.append(f"seed {results.seed}")
    if results.samples:
        facts.append(SAMPLE_NOTE)
    table = Table(title=title, caption="; ".join(facts))
    table.add_column("")
    table.add_column("rows", justify="right")
    table.add_column("result", justify="right")
    table.add_column(f"always {results.constant}", justify="right")
    for split, measured in results.metrics.items():
        for name, value in measured.items():
            plain = results.baseline.get(split, {}).get(name)
            table.add_row(
                f"{split.replace('_', ' ')}: {metric_title(name, results.positive)}",
                f"{results.examples[split]:,}{SAMPLE_SIGN * (split in results.samples)}",
                f"{value:.4f}",
                "–" if plain is None else f"{plain:.4f}",
            )
    return table


def show_report(
    console: Console,
    title: str,
    results: TaskResults,
    files: Sequence[Path],
    commands: Sequence[tuple[str, str]],
    output_dir: Path,
) -> None:
    """Print table, files and commands; commands are never wrapped, so they can be copied."""
    console.print(results_table(title, results))
    console.print(Text(f"\nSaved in {output_dir}: model, tokenizer, card (README.md), loss curve"))
    for file in files:
        console.print(Text(f"Predictions of the test rows: {file}"), soft_wrap=True)
    for purpose, command in commands:
        console.print(Text(f"\n# {purpose}", style="dim"), soft_wrap=True)
        console.print(Text(command), soft_wrap=True)


def loading_command(output_dir: str, pair: bool) -> str:
    """A command line that classifies a text, or a pair, with the saved model."""
    given = "{'text': 'One text', 'text_pair': 'and another'}" if pair else "'A text to classify'"
    code = (
        "import hf_linear_attn; from transformers import pipeline; "
        f"classify = pipeline('text-classification', model={output_dir!r}); "
        f"print(classify({given}))"
    )
    # In double quotes it reads more easily, where the path has nothing that a shell would replace.
    plain = re.fullmatch(r"[\w./-]+", output_dir)
    return f'python -c "{code}"' if plain else shlex.join(["python", "-c", code])


def task_card(
    args: TaskArguments, sources: Sources, data: TaskData, results: TaskResults, example: str
) -> TaskCard:
    """What the model card says about the task.

    Args:
        args: of the task.
        sources: where the rows come from; a data set is named, files without their folders.
        data: prepared.
        results: what was measured.
        example: a text of the evaluation rows.
    """
    task = data.task
    on_hub = isinstance(sources, NamedDataset) and not Path(sources.name).is_dir()
    name = sources.name if isinstance(sources, NamedDataset) and on_hub else f"local-{task.name}"
    pair = ['Of a pair, the pipeline takes `{"text": …, "text_pair": …}`.']
    notes = pair if len(task.text_columns) > 1 else []
    notes += [f"F1 is about the class {task.positive}."] if task.positive else []
    return classification_task_card(
        task=task.name,
        purpose=f"text classification ({task.title})",
        loading=Loading(
            "AutoModelForSequenceClassification", pipeline="text-classification", example=example
        ),
        data=list(data.description),
        results=_metric_results(results),
        dataset=(name, describe_sources(sources)),
        settings=_settings(args, data),
        config=sources.config if isinstance(sources, NamedDataset) else None,
        on_hub=on_hub,
        limits=[f"Longer inputs than {args.max_length} tokens lose their end."],
        notes=notes,
    )


def _settings(args: TaskArguments, data: TaskData) -> dict[str, Any]:
    classes = ", ".join(data.order) or "none, a regression"
    settings: dict[str, Any] = {"max_length": args.max_length, "classes": classes}
    for name in ("max_train_examples", "max_eval_examples", "validation_fraction"):
        if getattr(args, name) is not None:
            settings[name] = getattr(args, name)
    return settings


def _metric_results(results: TaskResults) -> list[MetricResult]:
    return [
        MetricResult(
            metric=name,
            split=split,
            examples=results.examples[split],
            by_seed={results.seed: value},
            chance=results.baseline.get(split, {}).get(name),
        )
        for split, measured in results.metrics.items()
        for name, value in measured.items()
    ]
