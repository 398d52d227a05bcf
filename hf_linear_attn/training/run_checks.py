"""Training arguments that a recipe cannot honour are refused before anything is read."""

from transformers import TrainingArguments

from hf_linear_attn.training.arguments import DataArguments


def check_training_arguments(args: TrainingArguments, data_args: DataArguments) -> None:
    """Raise ValueError for a combination under which a recipe could not do what is asked."""
    if args.max_steps == 0 or args.max_steps < -1:
        raise ValueError(
            f"max_steps is a positive number of optimiser steps; got {args.max_steps} "
            "(-1, the default, trains for num_train_epochs)"
        )
    if args.max_steps < 0 and args.num_train_epochs <= 0:
        raise ValueError(f"num_train_epochs is positive; got {args.num_train_epochs}")
    if data_args.streaming and args.max_steps < 0:
        raise ValueError("a stream has no known length: streaming needs max_steps")
    if args.resume_from_checkpoint is not None:
        raise ValueError(
            "resume_from_checkpoint is not needed: a run goes on from the newest checkpoint in its "
            "output_dir by itself; leave it out"
        )
    if args.do_predict:
        raise ValueError("do_predict: there is no test set in this recipe; leave it out")


def longer_run(args: TrainingArguments) -> tuple[str, float] | None:
    """The argument that makes a run twice as long and its new value; None without checkpoints."""
    if args.save_strategy == "no" or args.save_only_model:
        return None
    if args.max_steps > 0:
        return "max_steps", 2 * args.max_steps
    return "num_train_epochs", 2 * args.num_train_epochs
