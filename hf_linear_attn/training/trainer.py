"""Trainers: what every recipe needs of one, and what language models need more."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import DataLoader
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import EvalLoopOutput, TrainOutput

from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.callbacks import EpochMasks, LossCurve, Throughput
from hf_linear_attn.training.collators import (
    COLUMNS,
    IGNORED,
    CausalLMCollator,
    MaskedLMCollator,
)
from hf_linear_attn.training.engine_trainer import EngineTrainer
from hf_linear_attn.training.metrics import LanguageModelMetrics, row_statistics
from hf_linear_attn.training.run_checks import check_no_smoothing
from hf_linear_attn.training.saved_files import DamagedFileError, read_json
from hf_linear_attn.training.utilisation import build_utilisation


class RecipeTrainer(EngineTrainer):
    """Transformers' Trainer as the recipes use it.

    A run resumed on one process goes on bit for bit, evaluation leaves the random state alone, and
    training logs carry `tokens_per_second`: real tokens of all processes in the time of training
    alone. Beside it stands `mfu` where the peak of the device is known, see `use_peak`.

    Args:
        model: the model to train.
        args: Transformers' training arguments.
        callbacks: what they do at a save is not counted as training.
        kwargs: further arguments of `Trainer`.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        args: TrainingArguments,
        *,
        callbacks: Sequence[TrainerCallback] = (),
        **kwargs: Any,
    ) -> None:
        self.throughput = Throughput()
        # The clock comes last: what the others do at a save is not training.
        callbacks = [*callbacks, self.throughput]
        super().__init__(model=model, args=args, callbacks=callbacks, **kwargs)
        self.utilisation = build_utilisation(model, args, None)

    def use_peak(self, peak_tflops: float | None) -> None:
        """Log `mfu` against this peak.

        Args:
            peak_tflops: of one device; None looks the device up, and logs none if it is unknown.

        Raises:
            ValueError: a peak is given for a model whose work is not known.
        """
        self.utilisation = build_utilisation(self.trained_model, self.args, peak_tflops)

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any
    ) -> TrainOutput:
        """Train, from a checkpoint if one is given; adds `train_tokens_per_second`."""
        if isinstance(resume_from_checkpoint, str):
            state = TrainerState.load_from_json(f"{resume_from_checkpoint}/trainer_state.json")
            # Resumed at its last step, Trainer would take one step more than asked for.
            if state.global_step >= self._planned_steps():
                return self.take_over(resume_from_checkpoint, state)
        output = super().train(resume_from_checkpoint, *args, **kwargs)
        rate = self._tokens_of_all_processes() / max(self.throughput.seconds, 1e-9)
        output.metrics["train_tokens_per_second"] = round(rate, 1)
        if self.utilisation is not None:
            flops = self._over_processes(self.utilisation.flops)
            share = self.utilisation.share(flops, self.throughput.seconds)
            output.metrics["train_mfu"] = float(f"{share:.4g}")
        return output

    def final_evaluation(self) -> dict[str, Any]:
        """The evaluation of the model as it stands after `train`; done now unless it was logged."""
        logged = [entry for entry in self.state.log_history if "eval_loss" in entry]
        best_was_loaded = self.args.load_best_model_at_end
        if logged and logged[-1]["step"] == self.state.global_step and not best_was_loaded:
            return logged[-1]
        return self.evaluate()

    def get_train_dataloader(self) -> DataLoader:
        """Trainer's loader, with a generator of its own.

        Each iterator draws a seed for its workers, from the global generator where there is no
        other: what dropout draws would then depend on how often a loader was started.
        """
        loader = super().get_train_dataloader()
        # accelerate wraps the loader that makes the iterators.
        inner = getattr(loader, "base_dataloader", loader)
        inner.generator = torch.Generator().manual_seed(self.args.seed)
        return loader

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Trainer's loop; it leaves the global generator as it was."""
        with torch.random.fork_rng(devices=[]):
            return super().evaluation_loop(*args, **kwargs)

    def training_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """Trainer's step, counting the real tokens that pass."""
        tokens = self.real_tokens(inputs)
        self.throughput.add(tokens)
        if self.utilisation is not None:
            self.utilisation.add(tokens, inputs.get("labels"), inputs.get("seq_idx"))
        return super().training_step(model, inputs, num_items_in_batch)

    def real_tokens(self, inputs: dict[str, Any]) -> torch.Tensor:
        """A tensor `(rows, …)` whose sum over a row is its number of tokens that are no padding."""
        return inputs["attention_mask"]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Trainer's log; a training entry gets the tokens per second since the last one."""
        if "loss" in logs:
            rate = self.throughput.since_last_log(self._tokens_of_all_processes())
            logs["tokens_per_second"] = round(rate, 1)
            if self.utilisation is not None:
                flops = self._over_processes(self.utilisation.flops)
                share = self.utilisation.since_last_log(flops, self.throughput.seconds)
                logs["mfu"] = float(f"{share:.4g}")
        super().log(logs, start_time)

    @property
    def trained_model(self) -> PreTrainedModel:
        """The model itself, without what an engine wraps around it.

        A sharded one is in parts until `take_whole_model`.
        """
        return cast(PreTrainedModel, self.accelerator.unwrap_model(self.model))

    def save_metrics(self, split: str, metrics: dict[str, Any], combined: bool = True) -> None:
        """Trainer's `<split>_results.json` and `all_results.json`, each there as a whole.

        Cut off by a kill, Trainer's own would keep every later start from ending.
        """
        if not self.is_world_process_zero():
            return
        folder = Path(str(self.args.output_dir))
        _write_results(folder / f"{split}_results.json", metrics)
        if combined:
            everything = folder / "all_results.json"
            try:
                earlier = read_json(everything) if everything.is_file() else {}
            except DamagedFileError:
                earlier = {}  # what it held is measured again before a run ends
            _write_results(everything, earlier | metrics)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the card of `integrations.model_card` is not to be replaced by a draft."""

    def _tokens_of_all_processes(self) -> float:
        return self._over_processes(self.throughput.tokens)

    def _over_processes(self, count: torch.Tensor) -> float:
        """The sum of a scalar over all processes."""
        return float(torch.as_tensor(self.accelerator.gather(count.to(self.args.device))).sum())

    def _planned_steps(self) -> int:
        *_, steps = self.set_initial_training_values(self.args, self.get_train_dataloader())
        return int(steps or 0)


def _write_results(file: Path, metrics: dict[str, Any]) -> None:
    write_atomically(file, json.dumps(metrics, indent=4, sort_keys=True))


class LanguageModelTrainer(RecipeTrainer):
    """What masked and causal language models share: an exact evaluation, token by token.

    `eval_loss` is the summed loss of all predicted evaluation tokens over their number, with
    `eval_perplexity`, `eval_<accuracy_name>` and `eval_unigram_loss` beside it; no more than one
    batch's logits are held.

    Args:
        model: a language model of this package.
        args: Transformers' training arguments.
        collator: makes batches of rows.
        train_dataset: tokenised rows; None only evaluates.
        eval_dataset: rows with `labels`.
        tokenizer: saved with the model.
        unigram_loss: of `metrics.unigram_baseline`, in nats; None leaves it and the curve out.
        callbacks: further ones; what they do at a save is not counted as training.

    Raises:
        ValueError: for label smoothing, which the models' loss does not have.
    """

    accuracy_name = "accuracy"

    def __init__(
        self,
        model: torch.nn.Module,
        args: TrainingArguments,
        collator: MaskedLMCollator | CausalLMCollator,
        train_dataset: Any,
        eval_dataset: Any,
        tokenizer: PreTrainedTokenizerBase | None,
        unigram_loss: float | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        check_no_smoothing(args)
        masks = [EpochMasks(collator)] if isinstance(collator, MaskedLMCollator) else []
        curve = [] if unigram_loss is None else [LossCurve(unigram_loss)]
        super().__init__(
            model,
            args,
            data_collator=collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
            compute_metrics=LanguageModelMetrics(unigram_loss, self.accuracy_name),
            callbacks=[*masks, *curve, *callbacks],
        )

    def prediction_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[None, torch.Tensor, torch.Tensor]:
        """Sums of each row instead of logits: `(None, (batch, 3), one dummy label a row)`."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            statistics = self.row_statistics(model, inputs)
        return None, statistics, inputs["labels"].new_zeros(len(statistics))

    def row_statistics(self, model: torch.nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        """`metrics.row_statistics` of one batch."""
        raise NotImplementedError

    def _set_signature_columns_if_needed(self) -> None:
        if self._signature_columns is None:
            super()._set_signature_columns_if_needed()
            # What the collators read, beside what the model's forward reads.
            self._signature_columns = sorted(COLUMNS)


class MaskedLMTrainer(LanguageModelTrainer):
    """Trains and evaluates a masked language model; the output layer sees masked positions only.

    Its collator masks the training rows; evaluation rows are masked beforehand by `mask_once`.
    """

    accuracy_name = "masked_accuracy"

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Trainer's loss, with the output layer on masked positions only."""
        inputs = {**inputs, "sparse_prediction": True}
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def row_statistics(self, model: torch.nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        """`metrics.row_statistics` of one batch, logits of masked positions only."""
        logits = model(**inputs, sparse_prediction=True).logits
        return row_statistics(logits, inputs["labels"])


class CausalLMTrainer(LanguageModelTrainer):
    """Trains and evaluates a causal language model; its collator sets the labels."""

    def row_statistics(self, model: torch.nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        """`metrics.row_statistics` of one batch: each token from the ones before it."""
        inputs = dict(inputs)
        # A token predicts the next one; a row's first token is predicted by none.
        targets = inputs.pop("labels")[:, 1:]
        logits = model(**inputs, use_cache=False).logits[:, :-1]
        return row_statistics(logits[targets != IGNORED], targets)
