"""What the model card says about a classifier or a regression, on GLUE, LRA or files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from huggingface_hub import EvalResult

from hf_linear_attn.integrations.model_card import Loading, ResultTable
from hf_linear_attn.training.run_card import TaskCard
from hf_linear_attn.training.spread import spread

_COLUMNS = ("metric", "split", "examples", "result", "chance level")


@dataclass(frozen=True)
class MetricResult:
    """One metric on one split.

    Attributes:
        metric: its id on the Hub, such as "accuracy", "matthews_correlation" or "f1".
        split: such as "validation" or "test".
        examples: how many were evaluated.
        by_seed: value by the seed of the run; the model on the card is one of them.
        chance: what a model reaches that gives every example the same answer; None if the metric
            has no such level.
    """

    metric: str
    split: str
    examples: int
    by_seed: Mapping[int, float]
    chance: float | None = None


def classification_task_card(
    *,
    task: str,
    purpose: str,
    loading: Loading,
    data: Sequence[str],
    results: Sequence[MetricResult],
    dataset: tuple[str, str],
    settings: Mapping[str, Any],
    config: str | None = None,
    on_hub: bool = False,
    tags: Sequence[str] = (),
    limits: Sequence[str] = (),
    notes: Sequence[str] = (),
    chance: str = "The chance level is what one and the same answer to every example reaches.",
) -> TaskCard:
    """What a finetuned or from-scratch classifier says on its card; hand it to `run_card`.

    Args:
        task: such as "sst2" or "listops".
        purpose: such as "classifying sentences (SST-2)".
        loading: see `Loading`; one without a pipeline for inputs that are not text.
        data: where they come from and how many there are, one item each.
        results: one or more metrics, as fractions (not per cent).
        dataset: id and pretty name, such as ("nyu-mll/glue", "GLUE SST-2").
        settings: of the task, such as the longest input.
        config: configuration of the data set, such as "sst2".
        on_hub: whether the data set's id is its name on the Hub.
        tags: further ones.
        limits: one sentence each, beside the one on seeds.
        notes: below the table, such as the footnotes of published results.
        chance: what the chance level is.

    Raises:
        ValueError: no result, or one without a seed.
    """
    if not results or not all(result.by_seed for result in results):
        raise ValueError(f"the card of {task} needs one result or more, each with its seed")
    return TaskCard(
        purpose=purpose,
        loading=loading,
        tags=["text-classification", task, *tags] if loading.pipeline else [task, *tags],
        data=data,
        results=ResultTable(
            _COLUMNS,
            [_row(result) for result in results],
            chance,
            notes,
        ),
        eval_results=[_eval_result(task, r, dataset, config, loading) for r in results],
        settings=settings,
        limits=[*limits, _seed_limit(results)],
        datasets=[dataset[0]] if on_hub else (),
    )


def _row(result: MetricResult) -> list[str]:
    chance = "–" if result.chance is None else f"{result.chance:.4f}"
    return [result.metric, result.split, f"{result.examples:,}", _value(result.by_seed), chance]


def _value(by_seed: Mapping[int, float]) -> str:
    """One seed: `0.9000 (seed 1)`; several: mean ± sample deviation and every one of them."""
    each = ", ".join(f"{seed}: {value:.4f}" for seed, value in by_seed.items())
    if len(by_seed) == 1:
        seed, value = next(iter(by_seed.items()))
        return f"{value:.4f} (seed {seed})"
    return f"{spread(list(by_seed.values())).show('{:.4f}')} (seeds {each})"


def _seed_limit(results: Sequence[MetricResult]) -> str:
    seeds = list(dict.fromkeys(seed for result in results for seed in result.by_seed))
    if len(seeds) == 1:
        return (
            f"The results are those of one seed ({seeds[0]}); how much they vary between seeds was "
            "not measured."
        )
    return f"The results are of {len(seeds)} seeds; the weights here are those of one of them."


def _eval_result(
    task: str,
    result: MetricResult,
    dataset: tuple[str, str],
    config: str | None,
    loading: Loading,
) -> EvalResult:
    return EvalResult(
        task_type=loading.pipeline or "text-classification",
        task_name=task,
        dataset_type=dataset[0],
        dataset_name=dataset[1],
        dataset_config=config,
        dataset_split=result.split,
        metric_type=result.metric,
        metric_value=spread(list(result.by_seed.values())).mean,
    )
