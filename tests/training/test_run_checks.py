"""Training arguments that cannot be honoured are refused, each by its name."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig
from transformers.trainer_utils import SchedulerType

from hf_linear_attn.training import optimization_checks, run_checks
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_checks import (
    check_best_metric,
    check_finite,
    check_has_batches,
    check_has_trained,
    check_training_arguments,
    longer_run,
    parse_arguments,
)
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.training.tiny_run import make_trainer, rows


def check(folder, **fields):
    args = TrainingArguments(output_dir=str(folder), use_cpu=True)
    for name, value in fields.items():
        setattr(args, name, value)
    check_training_arguments(args)


def accelerated(**how: Any):
    return AcceleratorConfig(**how)


def accumulating(**how: Any):
    return AcceleratorConfig(gradient_accumulation_kwargs=how)


def test_the_defaults_pass(tmp_path):
    check(tmp_path)


@pytest.mark.parametrize(
    ("fields", "accepted"),
    [
        ({"weight_decay": 0.0, "max_grad_norm": 0.0, "warmup_steps": 0}, True),
        ({"save_total_limit": None}, True),
        ({"save_total_limit": 1, "seed": 0, "adam_beta1": 0.0}, True),
        ({"save_strategy": "no", "save_steps": 0}, True),
        ({"eval_strategy": "no", "eval_steps": 0}, True),
        ({"eval_strategy": "steps", "eval_steps": 0.1}, True),
        ({"max_steps": 5, "num_train_epochs": 0}, True),
        ({"bf16": True}, True),
        ({"per_device_train_batch_size": 0}, False),
        ({"per_device_eval_batch_size": 0}, False),
        ({"learning_rate": 0.0}, False),
        ({"learning_rate": float("nan")}, False),
        ({"learning_rate": float("inf")}, False),
        ({"learning_rate": -1e-3}, False),
        ({"adam_beta1": 1.0}, False),
        ({"adam_beta2": -0.1}, False),
        ({"adam_epsilon": 0.0}, False),
        ({"weight_decay": -0.1}, False),
        ({"max_grad_norm": -1.0}, False),
        ({"max_grad_norm": float("nan")}, False),
        ({"gradient_accumulation_steps": 0}, False),
        ({"dataloader_num_workers": -1}, False),
        ({"seed": -1}, False),
        ({"seed": 2**32}, False),
        ({"data_seed": -1}, False),
        ({"logging_steps": -1}, False),
        ({"eval_steps": 0, "eval_strategy": "steps"}, False),
        ({"save_steps": -5}, False),
        ({"save_total_limit": 0}, False),
        ({"max_steps": 0}, False),
        ({"max_steps": -3}, False),
        ({"num_train_epochs": 0.0}, False),
        ({"num_train_epochs": float("nan")}, False),
        ({"use_liger_kernel": True}, False),
        ({"save_only_model": True}, False),
        ({"fp16": True}, False),
        ({"fp16_full_eval": True}, False),
        ({"bf16_full_eval": True}, False),
        ({"do_predict": True}, False),
        ({"resume_from_checkpoint": "x"}, False),
        ({"log_level": "loud"}, False),
        ({"log_level_replica": "loud"}, False),
        ({"max_steps": 2**31}, False),
        ({"num_train_epochs": 1e300, "max_steps": -1}, False),
        ({"per_device_train_batch_size": 2**31}, False),
        ({"dataloader_num_workers": 1025}, False),
        ({"logging_steps": 1e300}, False),
        ({"neftune_noise_alpha": 5.0}, True),
        ({"neftune_noise_alpha": float("nan")}, False),
        ({"optim_args": "momentum=0.9, nesterov=true", "optim": "sgd"}, True),
        ({"optim_args": "momentum=-1", "optim": "sgd"}, False),
        ({"optim_args": "momentum=much", "optim": "rmsprop"}, False),
        ({"optim_args": "nesterov=true", "optim": "sgd"}, False),
        ({"optim_args": "weight_decay=0.1", "optim": "sgd"}, False),
        ({"optim_args": "lr_decay=0.1", "optim": "adagrad"}, True),
        ({"optim_args": "betas=0.1"}, False),
        ({"optim_args": "foo=1", "optim": "adafactor"}, False),
        ({"optim_args": "betas"}, False),
        ({"torch_compile_mode": "max-autotune", "torch_compile_backend": "inductor"}, True),
        ({"torch_compile_mode": "foo", "torch_compile_backend": "inductor"}, False),
        ({"torch_compile_mode": "max-autotune", "torch_compile_backend": "eager"}, False),
        ({"label_names": ["labels"]}, True),
        ({"label_names": ["foo"]}, False),
        ({"include_num_input_tokens_seen": "non_padding"}, True),
        ({"include_num_input_tokens_seen": "foo"}, False),
        ({"deepspeed": {}}, False),
        ({"accelerator_config": accelerated(split_batches=False)}, True),
        ({"accelerator_config": accelerated(split_batches="x")}, False),
        ({"accelerator_config": accelerated(dispatch_batches=3)}, False),
        ({"accelerator_config": accumulating(sync_each_batch=True)}, True),
        ({"accelerator_config": accumulating(sync_each_batch="x")}, False),
        ({"accelerator_config": accumulating(num_steps=2)}, False),
        ({"accelerator_config": accumulating(a=1)}, False),
        ({"lr_scheduler_kwargs": {"power_of": 3}}, False),
        ({"gradient_checkpointing_kwargs": {"use_reentrant": False}}, True),
        ({"gradient_checkpointing_kwargs": {"a": 1}}, False),
    ],
    ids=str,
)
def test_a_field_out_of_range_is_named(tmp_path, fields, accepted):
    if accepted:
        return check(tmp_path, **fields)
    with pytest.raises(ValueError, match=f"^{next(iter(fields))}"):
        check(tmp_path, **fields)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "push_to_hub needs hub_model_id as user/name"),
        ("model", "push_to_hub needs hub_model_id as user/name"),
        ("me/my model", "hub_model_id: got 'me/my model', which the Hub refuses"),
    ],
)
def test_a_model_that_is_shared_has_its_whole_name(tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        check(tmp_path, push_to_hub=True, hub_model_id=name)
    check(tmp_path, push_to_hub=True, hub_model_id="me/model")
    check(tmp_path, hub_model_id=name)


def test_a_reporter_that_is_not_installed_or_unknown_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(run_checks, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="report_to wandb needs the package wandb"):
        check(tmp_path, report_to=["wandb"])
    with pytest.raises(ValueError, match=r"got 'tensorbord', .*did you mean 'tensorboard'"):
        check(tmp_path, report_to=["tensorbord"])
    with pytest.raises(ValueError, match="report_to trackio needs the package trackio"):
        check(tmp_path, report_to=["trackio"])
    monkeypatch.setattr(run_checks, "find_spec", lambda name: name == "tensorboardX" or None)
    check(tmp_path, report_to=["tensorboard"])
    monkeypatch.setattr(run_checks, "find_spec", lambda name: name == "trackio" or None)
    check(tmp_path, report_to=["trackio"])


@pytest.mark.parametrize(
    ("optim", "package"),
    [
        ("adamw_torch", None),
        ("adamw_torch_fused", None),
        ("adafactor", None),
        ("sgd", None),
        ("rmsprop", None),
        ("adamw_bnb_8bit", "bitsandbytes"),
        ("galore_adamw_8bit", "galore_torch"),
        ("adamw_torch_8bit", "torchao"),
        ("adalomo", "lomo_optim"),
    ],
)
def test_an_optimiser_that_is_not_installed_is_named(tmp_path, monkeypatch, optim, package):
    monkeypatch.setattr(optimization_checks, "find_spec", lambda name: None)
    if package is None:
        return check(tmp_path, optim=optim)
    with pytest.raises(ValueError, match=f"optim {optim} needs the package {package}"):
        check(tmp_path, optim=optim)


@pytest.mark.parametrize("kind", list(SchedulerType))
def test_every_schedule_can_be_had(tmp_path, kind):
    needs = {
        SchedulerType.COSINE_WITH_MIN_LR: {"min_lr": 0.1},
        SchedulerType.COSINE_WARMUP_WITH_MIN_LR: {"min_lr": 0.1},
        SchedulerType.WARMUP_STABLE_DECAY: {"num_decay_steps": 3},
    }
    check(tmp_path, lr_scheduler_type=kind, lr_scheduler_kwargs=needs.get(kind))


def schedule(tmp_path, kind, **kwargs):
    check(
        tmp_path, lr_scheduler_type=kind, lr_scheduler_kwargs=kwargs, warmup_steps=3,
        eval_strategy="steps", eval_steps=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "kwargs", "message"),
    [
        # Wrong behind the warm-up only, at the end only, by the sign, by what it is.
        ("cosine", {"num_cycles": "x"}, "which the schedule cosine refuses: could not convert"),
        ("cosine", {"num_cycles": math.nan}, "cosine gives no learning rate above 0"),
        ("cosine", {"num_cycles": "NaN"}, "cosine gives no learning rate above 0"),
        ("cosine", {"num_cycles": math.inf}, "which the schedule cosine refuses"),
        ("polynomial", {"power": "x"}, "which the schedule polynomial refuses: unsupported"),
        ("polynomial", {"power": math.nan}, "learning rate of nan at step 4"),
        ("polynomial", {"power": -1}, "which the schedule polynomial refuses: 0.0 cannot be"),
        ("polynomial", {"lr_end": 1e-3}, r"lr_end \(0\.001\) must be smaller than initial lr"),
        ("inverse_sqrt", {"timescale": -3}, "which the schedule inverse_sqrt refuses"),
        (
            "warmup_stable_decay", {"num_decay_steps": 3, "min_lr_ratio": -1.0},
            r"gives a learning rate of -5e-05 at step 10,000 of 10,000; expected finite rates",
        ),
        ("reduce_lr_on_plateau", {"factor": -1.0, "min_lr": -1.0}, "rate of -5e-05 at step 11"),
        ("reduce_lr_on_plateau", {"patience": "x"}, "which the schedule reduce_lr_on_plateau"),
    ],
)  # fmt: skip
def test_a_schedule_is_looked_at_in_all_its_phases(tmp_path, kind, kwargs, message):
    with pytest.raises(ValueError, match=f"^lr_scheduler_kwargs: .*{message}"):
        schedule(tmp_path, kind, **kwargs)


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        ("cosine", {"num_cycles": 2}),
        ("polynomial", {"power": 2.0, "lr_end": 0.0}),
        ("inverse_sqrt", {"timescale": 30}),
        ("cosine_with_restarts", {"num_cycles": 3}),
        # Longer than any run that was asked for: of no harm.
        ("warmup_stable_decay", {"num_decay_steps": 10**6}),
        ("reduce_lr_on_plateau", {"patience": 3, "factor": 0.5}),
        ("greedy", {"patience": 3}),
    ],
)
def test_sound_settings_of_a_schedule_pass(tmp_path, kind, kwargs):
    schedule(tmp_path, kind, **kwargs)


@pytest.mark.parametrize(("steps", "warmup"), [(10, 10), (1, 1), (1, 0.1), (2, 1), (10, 9)])
def test_a_run_may_be_all_warm_up(tmp_path, steps, warmup):
    """The last rate is 0, and nothing is trained with it."""
    check(tmp_path, max_steps=steps, warmup_steps=warmup, lr_scheduler_type="linear")
    check(tmp_path, max_steps=steps, warmup_steps=warmup, lr_scheduler_type="cosine")


def test_a_schedule_that_fails_at_the_end_of_the_warm_up_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"^lr_scheduler_type: got polynomial.*\(10 of 10\)"):
        check(tmp_path, max_steps=10, warmup_steps=10, lr_scheduler_type="polynomial")


@pytest.mark.parametrize("given", ["settings.json", "x"])
def test_settings_of_checkpointing_are_a_mapping(tmp_path, given):
    with pytest.raises(ValueError, match=r"activation_checkpointing_kwargs\): got .*a mapping"):
        check(tmp_path, gradient_checkpointing_kwargs=given, gradient_checkpointing=True)


def test_a_run_that_is_shorter_than_its_warm_up_has_a_schedule(tmp_path):
    check(tmp_path, max_steps=5, warmup_steps=10, lr_scheduler_type="cosine")
    check(tmp_path, max_steps=-1, warmup_steps=10**5, lr_scheduler_type="cosine")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"use_reentrant": "x"}, "use_reentrant: got 'x', expected True or False"),
        ({"use_reentrant": 1}, "use_reentrant: got 1, expected True or False"),
        ({"preserve_rng_state": None}, "preserve_rng_state: got None, expected True or False"),
        ({"determinism_check": "x"}, "determinism_check: got 'x', expected default or none"),
        ({"every_n_layers": 0}, "every_n_layers: got 0, expected a number of layers, 1 or more"),
        ({"every_n_layers": True}, "every_n_layers: got True"),
        ({"offload": "no"}, "offload: got 'no', expected True or False"),
        ({"use_reentrant": True, "debug": True}, "expected it with use_reentrant False only"),
    ],
)
def test_settings_of_checkpointing_have_values_that_it_takes(tmp_path, kwargs, message):
    with pytest.raises(ValueError, match=f"^gradient_checkpointing_kwargs .*: .*{message}"):
        check(tmp_path, gradient_checkpointing_kwargs=kwargs)
    sound = {"use_reentrant": False, "determinism_check": "none", "every_n_layers": 2}
    check(tmp_path, gradient_checkpointing_kwargs=sound)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--save_steps", "inf"], "save_steps: cannot convert float infinity"),
        (["--accelerator_config", '{"split": 1}'], "accelerator_config: .*'split'"),
    ],
)
def test_what_training_arguments_cannot_take_is_one_error(tmp_path, argv, message):
    parser = RecipeParser((TrainingArguments,))
    with pytest.raises(ValueError, match=message):
        parse_arguments(parser, ["--output_dir", str(tmp_path), *argv], None)


def test_the_best_is_chosen_by_what_is_measured(tmp_path):
    for name, good in ((None, True), ("loss", True), ("eval_loss", True), ("bleu", False)):
        args = TrainingArguments(str(tmp_path), metric_for_best_model=name, use_cpu=True)
        if good:
            check_best_metric(args, ("loss", "perplexity"))
            continue
        with pytest.raises(ValueError, match="got 'bleu', expected one of loss, perplexity"):
            check_best_metric(args, ("loss", "perplexity"))


def test_a_missing_package_is_one_error(tmp_path, monkeypatch):
    def needs(*_, **__):
        raise ModuleNotFoundError("No module named 'deepspeed'", name="deepspeed")

    parser = RecipeParser((TrainingArguments,))
    monkeypatch.setattr(parser, "parse_recipe", needs)
    with pytest.raises(ValueError, match="not installed: deepspeed; install it"):
        parse_arguments(parser, [], tmp_path / "config.yaml")


def test_a_stream_needs_a_number_of_steps(tmp_path):
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(ValueError, match="streaming needs max_steps"):
        check_training_arguments(args, streaming=True)


def test_a_loader_without_a_batch_is_refused(tmp_path):
    tokenizer = load_or_train_tokenizer(None, ["some text"], 261, 64)
    fields = {"per_device_train_batch_size": 8, "dataloader_drop_last": True}
    check_has_batches(make_trainer(tmp_path, tokenizer, rows(8), **fields))
    trainer = make_trainer(tmp_path, tokenizer, rows(7), **fields)
    with pytest.raises(ValueError, match="7 training examples give no batch of 8"):
        check_has_batches(trainer)
    with pytest.raises(ValueError, match="nothing was trained"):
        check_has_trained(trainer)


def test_a_diverged_training_is_named():
    check_finite(3.0)
    for loss in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"diverged: the final evaluation loss is {loss}"):
            check_finite(loss)


def test_a_run_is_made_longer_by_what_bounds_it():
    def run(**fields):
        given = {"save_strategy": "steps", "max_steps": -1}
        return longer_run(SimpleNamespace(**{**given, "num_train_epochs": 3.0, **fields}))  # pyright: ignore

    assert run() == ("num_train_epochs", 6.0)
    assert run(max_steps=5) == ("max_steps", 10)
    assert run(save_strategy="no") is None
