"""What the model card says about a masked-LM run, gathered from its arguments and results."""

import dataclasses
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from hf_linear_attn.integrations.model_card import CardFacts
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.training.arguments import DataArguments, MaskingArguments
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.report import RunResults, result_rows

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


def card_facts(
    model: PreTrainedModel,
    args: MaskedLMArguments,
    results: RunResults,
    data_description: str,
    example: str,
) -> CardFacts:
    """Gather the facts of a finished run.

    Args:
        model: the trained model.
        args: of the run; files are named without their folders.
        results: what was measured.
        data_description: counts of the prepared data.
        example: a sentence with the mask token.
    """
    rate = results.tokens_per_second
    speed = f" at {rate:,.0f} tokens per second" if rate else ""
    return CardFacts(
        name=args.output_dir.name,
        # What the card says must hold on other machines.
        path=args.output_dir.name if args.output_dir.is_absolute() else str(args.output_dir),
        model_type=model.config.model_type,
        parameters=results.parameters,
        model_facts=_model_facts(model),
        data="\n- ".join([f"{data_source(args.data)}\n", *data_description.splitlines()]),
        masked_tokens=results.unigram.tokens,
        results=result_rows(results),
        summary=f"{results.steps:,} optimiser steps{speed}.",
        hyper_parameters=_hyper_parameters(args),
        example=example,
    )


def data_source(args: DataArguments) -> str:
    """One sentence on where the text comes from, without folders of the machine."""
    if args.dataset_name is not None:
        is_folder = Path(args.dataset_name).is_dir()
        name = Path(args.dataset_name).name if is_folder else args.dataset_name
        part = args.dataset_config_name
        return f"Data set {name}, configuration {part}." if part else f"Data set {name}."
    if args.train_file is not None:
        return f"Text files: {', '.join(Path(file).name for file in args.train_file)}."
    return "The embedded corpus: Python's reference topics and the standard library's docstrings."


def _model_facts(model: PreTrainedModel) -> dict[str, str]:
    config = model.config.to_dict()
    trunk = {field.name for field in dataclasses.fields(LinearAttnConfig)}
    own = [f.name for f in dataclasses.fields(model.config) if f.name not in trunk]
    names = [*_CONFIG_FACTS, *own]
    return {name: _shown(config[name]) for name in names if config.get(name) is not None}


def _hyper_parameters(args: MaskedLMArguments) -> dict[str, Any]:
    training, masking = args.training.to_dict(), args.masking
    shown = {k: f"{v:g}" if isinstance(v, float) else v for k, v in training.items()}
    return {
        **{name: shown[name] for name in _TRAINING_FACTS},
        "processes": args.training.world_size,
        "masking": masking.masking,
        "mlm_probability": masking.mlm_probability,
        "eval_mlm_probability": masking.eval_mlm_probability or masking.mlm_probability,
        "mask / random / kept": _replacement_shares(masking),
        "block_size": args.data.block_size,
    }


def _replacement_shares(args: MaskingArguments) -> str:
    kept = 1 - args.mask_replace_prob - args.random_replace_prob
    return f"{args.mask_replace_prob:g} / {args.random_replace_prob:g} / {max(kept, 0):.3g}"


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(set(value)) == 1:
        return f"{value[0]} (all {len(value)} layers)"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
