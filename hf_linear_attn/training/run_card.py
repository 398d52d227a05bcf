"""What the model card says about any run: model, optimiser, batches, hardware.

What only its task knows comes in a `TaskCard`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult
from transformers import PreTrainedModel, TrainingArguments
from transformers.trainer_pt_utils import get_model_param_count

from hf_linear_attn.integrations.model_card import CardFacts, Loading, ResultTable
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.training.hardware import hardware_facts

_CONFIG_FACTS = (
    "layer_attention",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "norm_position",
    "position_embedding_type",
    "max_position_embeddings",
    "vocab_size",
)
_TRAINING_FACTS = (
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "optim",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "weight_decay",
    "max_grad_norm",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "bf16",
    "fp16",
    "seed",
)


@dataclass(frozen=True)
class TaskCard:
    """What a task has to say on a card.

    Attributes:
        purpose: such as "masked language modelling".
        loading: see `Loading`.
        tags: such as "masked-lm".
        data: where they come from and how many there are, one item each.
        results: see `ResultTable`.
        eval_results: the same for the Hub.
        settings: of the task, beside those of the optimiser.
        limits: one sentence each.
        datasets: names on the Hub.
    """

    purpose: str
    loading: Loading
    tags: Sequence[str]
    data: Sequence[str]
    results: ResultTable
    eval_results: Sequence[EvalResult]
    settings: Mapping[str, Any]
    limits: Sequence[str]
    datasets: Sequence[str] = field(default_factory=tuple)


def run_card(
    model: PreTrainedModel,
    training: TrainingArguments,
    task: TaskCard,
    *,
    steps: int,
    tokens_per_second: float | None = None,
    started_from: str | None = None,
) -> CardFacts:
    """All facts of a finished run.

    Args:
        model: the trained model.
        training: arguments of the run; folders are named without the machine's own path.
        task: what only the task knows.
        steps: optimiser steps in all.
        tokens_per_second: of training, where it was measured.
        started_from: the saved model that training began with, a folder or a name on the Hub.
    """
    folder = Path(str(training.output_dir))
    if folder.name in ("", ".."):
        folder = folder.resolve()
    on_hub = training.hub_model_id if training.push_to_hub else None
    from_hub = started_from is not None and not Path(started_from).is_dir()
    # What the card says must hold on other machines.
    local = folder.name if folder.is_absolute() else str(folder)
    return CardFacts(
        name=folder.name,
        path=on_hub or local,
        model_type=model.config.model_type,
        purpose=task.purpose,
        parameters=get_model_param_count(model),
        loading=task.loading,
        tags=task.tags,
        mechanisms=_mechanisms(model),
        model_facts=model_facts(model),
        data=task.data,
        results=task.results,
        eval_results=task.eval_results,
        summary=_summary(steps, tokens_per_second, started_from),
        hyper_parameters={**_hyper_parameters(training), **task.settings},
        hardware=hardware_facts(training),
        limits=[*task.limits, *_LIMITS],
        datasets=task.datasets,
        base_model=started_from if from_hub else None,
    )


_LIMITS = (
    "The licence and the wording of the training data are for whoever uses the model to look at; "
    "nothing was done here about errors or prejudices in them.",
)


def model_facts(model: PreTrainedModel) -> dict[str, str]:
    """The trunk's main fields and all fields of the variant's own, as text."""
    config = model.config.to_dict()
    trunk = {f.name for f in dataclasses.fields(LinearAttnConfig)}
    own = [f.name for f in dataclasses.fields(model.config) if f.name not in trunk]
    names = [*_CONFIG_FACTS, *own]
    return {name: _shown(config[name]) for name in names if config.get(name) is not None}


def _mechanisms(model: PreTrainedModel) -> list[str]:
    return list(dict.fromkeys(model.config.attention_names))


def _hyper_parameters(training: TrainingArguments) -> dict[str, Any]:
    values = training.to_dict()
    shown = {k: f"{v:g}" if isinstance(v, float) else v for k, v in values.items()}
    return {**{name: shown[name] for name in _TRAINING_FACTS}, "processes": training.world_size}


def _summary(steps: int, rate: float | None, started_from: str | None) -> str:
    speed = f" at {rate:,.0f} tokens per second" if rate else ""
    begun = ""
    if started_from is not None:
        source = Path(started_from).name if Path(started_from).is_dir() else started_from
        begun = f" Training began with the weights of {source}."
    return f"{steps:,} optimiser steps{speed}.{begun}"


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(set(value)) == 1:
        return f"{value[0]} (all {len(value)} layers)"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
