"""What the model card says about the run of a language model, masked or causal."""

from pathlib import Path
from typing import Any, cast

from huggingface_hub import EvalResult
from transformers import PreTrainedModel, TrainingArguments

from hf_linear_attn.integrations.model_card import CardFacts, Loading, ResultTable
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.training.arguments import DataArguments, MaskingArguments
from hf_linear_attn.training.causal_lm_arguments import CausalLMArguments
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.model_setup import longest_input
from hf_linear_attn.training.report import RESULT_COLUMNS, RunResults, result_rows
from hf_linear_attn.training.run_card import TaskCard, run_card

_UNIGRAM = "The unigram model knows nothing but how frequent each token is in the training data."


def card_facts(
    model: PreTrainedModel,
    args: MaskedLMArguments,
    results: RunResults,
    data_description: str,
    example: str,
) -> CardFacts:
    """Gather the facts of a finished masked-LM run.

    Args:
        model: the trained model.
        args: of the run; files are named without their folders.
        results: what was measured.
        data_description: counts of the prepared data.
        example: a sentence with the mask token.
    """
    after = results.after
    task = TaskCard(
        purpose="masked language modelling",
        loading=Loading("AutoModelForMaskedLM", pipeline="fill-mask", example=example),
        tags=["masked-lm", "fill-mask"],
        data=[data_source(args.data), *data_description.splitlines()],
        results=ResultTable(
            RESULT_COLUMNS,
            result_rows(results),
            f"Evaluation on {results.unigram.tokens:,} masked tokens, the same ones before and "
            f"after training. {_UNIGRAM}",
        ),
        eval_results=[
            _eval_result(args.data, "fill-mask", "perplexity", after["eval_perplexity"]),
            _eval_result(args.data, "fill-mask", "accuracy", after["eval_masked_accuracy"]),
        ],
        settings={**_masking_settings(args.masking), "block_size": args.data.block_size},
        limits=_limits(args.data, args.training),
        datasets=_hub_datasets(args.data),
    )
    return _card(model, args, results, task)


def causal_lm_facts(
    model: PreTrainedModel,
    args: CausalLMArguments,
    results: RunResults,
    data_description: str,
    prompt: str,
) -> CardFacts:
    """Gather the facts of a finished causal-LM run.

    Args:
        model: the trained model.
        args: of the run; files are named without their folders.
        results: what was measured.
        data_description: counts of the prepared data.
        prompt: a beginning for the model to continue.
    """
    task = TaskCard(
        purpose="causal language modelling",
        loading=Loading(
            "AutoModelForCausalLM",
            pipeline="text-generation",
            example=prompt,
            options={"max_new_tokens": _room(model, prompt)},
        ),
        tags=["causal-lm", "text-generation"],
        data=[data_source(args.data), *data_description.splitlines()],
        results=ResultTable(
            RESULT_COLUMNS,
            result_rows(results),
            f"Evaluation on {results.unigram.tokens:,} predicted tokens, the same ones before and "
            f"after training. {_UNIGRAM}",
        ),
        eval_results=[
            _eval_result(
                args.data, "text-generation", "perplexity", results.after["eval_perplexity"]
            )
        ],
        settings={
            "block_size": args.data.block_size,
            "keep_documents_apart": args.task.keep_documents_apart,
            "stride": args.task.stride or "none: evaluated block by block",
        },
        limits=_limits(args.data, args.training),
        datasets=_hub_datasets(args.data),
    )
    return _card(model, args, results, task)


def _card(
    model: PreTrainedModel,
    args: MaskedLMArguments | CausalLMArguments,
    results: RunResults,
    task: TaskCard,
) -> CardFacts:
    return run_card(
        model,
        args.training,
        task,
        steps=results.steps,
        tokens_per_second=results.tokens_per_second,
        started_from=args.model.model_name_or_path,
    )


def _room(model: PreTrainedModel, prompt: str) -> int:
    """So many new tokens surely fit behind a prompt, 20 at most; no token is less than a byte."""
    limit = longest_input(cast(LinearAttnConfig, model.config))
    if limit is None:
        return 20
    return max(1, min(20, limit - len(prompt.encode("utf-8")) - 1))


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


def _hub_datasets(args: DataArguments) -> list[str]:
    name = args.dataset_name
    return [name] if name is not None and not Path(name).is_dir() else []


def _eval_result(args: DataArguments, task: str, metric: str, value: float) -> EvalResult:
    hub = _hub_datasets(args)
    local = "local-text" if args.train_file or args.dataset_name else "embedded-corpus"
    return EvalResult(
        task_type=task,
        dataset_type=hub[0] if hub else local,
        dataset_name=data_source(args).rstrip("."),
        dataset_config=args.dataset_config_name,
        dataset_split="validation",
        metric_type=metric,
        metric_value=value,
    )


def _limits(data: DataArguments, training: TrainingArguments) -> list[str]:
    return [
        f"Trained on examples of at most {data.block_size:,} tokens; longer ones were not tried.",
        f"The results are those of one seed ({training.seed}); how much they vary between seeds "
        "was not measured.",
    ]


def _masking_settings(args: MaskingArguments) -> dict[str, Any]:
    kept = 1 - args.mask_replace_prob - args.random_replace_prob
    shares = f"{args.mask_replace_prob:g} / {args.random_replace_prob:g} / {max(kept, 0):.3g}"
    return {
        "masking": args.masking,
        "mlm_probability": args.mlm_probability,
        "eval_mlm_probability": args.eval_mlm_probability or args.mlm_probability,
        "mask / random / kept": shares,
    }
