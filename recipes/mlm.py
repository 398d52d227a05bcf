"""Pretrain an encoder as a masked language model.

    accelerate launch recipes/mlm.py
    accelerate launch recipes/mlm.py --config recipes/configs/mlm/cosformer-base.yaml \
        --train_file text.txt --output_dir runs/mine

Without `--config` it does what `recipes/configs/mlm/tiny-cpu.yaml` says: a small cosFormer on the
embedded corpus, two minutes on a CPU. The same command again goes on where the run stopped.
"""

import os
from pathlib import Path

from rich.console import Console
from transformers import PreTrainedModel, set_seed

from hf_linear_attn.integrations.model_card import write_model_card
from hf_linear_attn.training import model_setup
from hf_linear_attn.training.callbacks import write_loss_curve
from hf_linear_attn.training.card_facts import card_facts, data_source
from hf_linear_attn.training.fill_mask import fill_one_mask
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.masked_lm_data import MaskedLMData, prepare_masked_lm
from hf_linear_attn.training.program import run_program
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.report import RunResults, gather_results, next_commands, show_report
from hf_linear_attn.training.run_checks import (
    check_finite,
    check_has_batches,
    check_has_trained,
    check_training_arguments,
    longer_run,
    parse_arguments,
)
from hf_linear_attn.training.run_files import RunFiles, check_same_data, save_final_state
from hf_linear_attn.training.run_folder import RunFolder, open_run_folder, resolve_arguments
from hf_linear_attn.training.trainer import MaskedLMTrainer

RECIPE = os.path.relpath(__file__)
DEFAULT_CONFIG = Path(RECIPE).parent / "configs" / "mlm" / "tiny-cpu.yaml"


def main(argv: list[str]) -> None:
    """Check the arguments and the output folder, prepare data and model, train, report."""
    parser = RecipeParser(tuple(MaskedLMArguments.__annotations__.values()))
    args = MaskedLMArguments(*parse_arguments(parser, argv, DEFAULT_CONFIG))
    check_training_arguments(args.training, args.data)
    draft = model_setup.build_config(args.model)
    model_setup.check_block_size(draft, args.data.block_size)
    resolved = resolve_arguments(*args)
    folder = open_run_folder(args.output_dir, resolved)
    console = Console(quiet=args.training.process_index > 0)
    if folder.finished:
        console.print(f"{folder.path} holds this run, finished; nothing was changed. To go on:")
        for purpose, command in commands(args):
            console.print(f"\n# {purpose}\n{command}", soft_wrap=True, markup=False)
        return
    for path in folder.unfinished:
        console.print(f"Passing over {path}: its saving was interrupted", soft_wrap=True)
    data = prepare(args, folder, draft.max_position_embeddings)
    check_same_data(folder, data.fingerprint)
    console.print(data_source(args.data), data.description, sep="\n", soft_wrap=True)
    set_seed(args.training.seed)
    config = model_setup.build_config(args.model, data.tokenizer)
    model = model_setup.build_model(args.model, config)
    run_files = RunFiles(folder, resolved, data.fingerprint)
    trainer = make_trainer(args, folder, model, data, run_files)
    if folder.checkpoint is not None:
        console.print(f"Going on from {folder.checkpoint}", soft_wrap=True)
    results = train(trainer, args, folder, data)
    if trainer.is_world_process_zero():
        run_files.write()  # a complete checkpoint is taken over without any training
        finish(args, data, model, trainer, results, console)
    trainer.end()
    check_finite(results.after["eval_loss"])


def prepare(args: MaskedLMArguments, folder: RunFolder, max_length: int) -> MaskedLMData:
    """Data and tokenizer; a run that goes on keeps the tokenizer it has."""
    tokenizer = folder.checkpoint or args.model.tokenizer_name or args.model.model_name_or_path
    with args.training.main_process_first(desc="data preparation"):
        return prepare_masked_lm(
            args.data,
            args.masking,
            tokenizer_name=None if tokenizer is None else str(tokenizer),
            vocab_size=args.model.vocab_size,
            max_length=max_length,
            seed=args.training.seed,
        )


def make_trainer(
    args: MaskedLMArguments,
    folder: RunFolder,
    model: PreTrainedModel,
    data: MaskedLMData,
    run_files: RunFiles,
) -> MaskedLMTrainer:
    """The trainer of a run that begins or goes on."""
    # A run that goes on has its first evaluation in the history.
    args.training.eval_on_start = folder.checkpoint is None
    trainer = MaskedLMTrainer(
        model,
        args.training,
        data.collator,
        data.train,
        data.evaluation,
        data.tokenizer,
        data.unigram.loss,
        callbacks=[run_files],
    )
    check_has_batches(trainer)
    return trainer


def train(
    trainer: MaskedLMTrainer, args: MaskedLMArguments, folder: RunFolder, data: MaskedLMData
) -> RunResults:
    """Train from the beginning or from the checkpoint; save the model and the measurements."""
    trained = trainer.train(None if folder.checkpoint is None else str(folder.checkpoint))
    check_has_trained(trainer)
    after = trainer.final_evaluation()
    trainer.save_model()
    trainer.save_metrics("train", trained.metrics)
    trainer.save_metrics("eval", after)
    return gather_results(trainer, trained, after, data.unigram, args.model.attention)


def finish(
    args: MaskedLMArguments,
    data: MaskedLMData,
    model: PreTrainedModel,
    trainer: MaskedLMTrainer,
    results: RunResults,
    console: Console,
) -> None:
    """Write card and loss curve; print table, filled mask and commands."""
    example = fill_one_mask(model, data.tokenizer, data.evaluation_texts, args.data.block_size)
    facts = card_facts(model, args, results, data.description, example.sentence)
    write_model_card(args.output_dir, facts)
    write_loss_curve(trainer.state.log_history, args.output_dir, data.unigram.loss)
    if args.training.push_to_hub:
        trainer.push_to_hub()
    save_final_state(args.output_dir, trainer.state)  # last of all: it marks the run as finished
    show_report(console, results, example, commands(args), args.output_dir)


def commands(args: MaskedLMArguments) -> list[tuple[str, str]]:
    """What to run next."""
    return next_commands(
        RECIPE,
        args.output_dir,
        longer=longer_run(args.training),
        other_attention=next(iter(model_setup.attentions_for(args.model)), None),
    )


if __name__ == "__main__":
    run_program(main)
