"""What the model card says about a Long Range Arena run."""

import dataclasses

from transformers import TrainingArguments

from hf_linear_attn.integrations.model_card import CardFacts
from hf_linear_attn.models.lra import LraForSequenceClassification
from hf_linear_attn.training.classification_card import MetricResult, classification_task_card
from hf_linear_attn.training.lra.data import CHANCE, LraData
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.results import LraResults
from hf_linear_attn.training.lra.usage import loading
from hf_linear_attn.training.run_card import model_facts, run_card

_HEAD_FACTS = ("task", "preset", "pooling", "interaction", "head_layers", "initialization")


def lra_card(
    model: LraForSequenceClassification,
    training: TrainingArguments,
    data: LraData,
    results: LraResults,
    *,
    schedule: str | None,
    tokens_per_second: float | None,
    started_from: str | None,
) -> CardFacts:
    """All facts of a finished run.

    Args:
        model: the tested model.
        training: arguments of the run.
        data: of the task.
        results: what was measured.
        schedule: name of the harness's own schedule, or None.
        tokens_per_second: of training.
        started_from: the saved model that training began with.
    """
    seed, preset = training.seed, PRESETS[results.preset]
    validation = len(data.splits["validation"])
    accuracy = results.test_accuracy
    task = classification_task_card(
        task=results.task,
        purpose=f"the task {data.task.title} of Long Range Arena",
        loading=loading(data.task, data.max_length),
        data=data.describe(),
        results=[
            MetricResult(
                "accuracy", "test", results.test_examples, {seed: accuracy}, results.chance_level
            ),
            MetricResult(
                "accuracy", "validation", validation, {seed: results.best_validation_accuracy}
            ),
        ],
        dataset=(f"lra-{results.task}", f"Long Range Arena, {data.task.title}"),
        settings={
            "preset": results.preset,
            **({} if schedule is None else {"lr_schedule (instead of the type)": schedule}),
            "max_length": data.max_length,
            "over-long examples": data.rule,
            "symbols": f"{data.task.symbols.name}, {data.task.symbols.size} ids",
        },
        tags=["long-range-arena", model.config.model_type],
        chance=f"The chance level is that of {CHANCE}.",
        limits=[
            f"Protocol: {preset.title}, with padding masked. Results of other harnesses, and at "
            "another scale, cannot be compared.",
            *(f"Not as published: {text}." for text in results.differences),
        ],
        notes=[
            "The checkpoint that was best on the validation split "
            f"(step {results.best_step:,}) was tested once, on {results.tested}."
        ],
    )
    facts = run_card(
        model, training, task, steps=results.steps, tokens_per_second=tokens_per_second,
        started_from=started_from,
    )  # fmt: skip
    head = {name: getattr(model.config, name) for name in _HEAD_FACTS}
    known = {name: str(value) for name, value in head.items() if value is not None}
    return dataclasses.replace(
        facts,
        # People look for the attention; the head's own type is in the tags.
        model_type=model.config.encoder.model_type,
        model_facts={**known, **model_facts(model.model)},
    )
