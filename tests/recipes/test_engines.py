"""Recipes on two processes: every engine trains, resumes and saves like one process.

The engines' settings are those of `recipes/accelerate`, given to the processes as the launcher
would.
"""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from safetensors import safe_open

from hf_linear_attn.training.preemption import EXIT_CODE
from hf_linear_attn.training.program import run_program
from tests import processes
from tests.recipes.long_run import history, train, write_config
from tests.recipes.mlm_recipe import MLM, load_recipe
from tests.recipes.test_mlm import interrupt, same, weights

ENGINES = ["ddp-cpu", "zero1", "zero2", "zero3", "fsdp2"]
pytestmark = pytest.mark.slow
STILL = ["--config_overrides", "hidden_dropout_prob=0"]


def together(engine, *more):
    """Parameters of a test that runs in the worker where the engine's finished run is."""
    return pytest.param(engine, *more, marks=pytest.mark.xdist_group(engine))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Arguments of a run of 16 steps with a checkpoint after 8."""
    config = write_config(tmp_path_factory.mktemp("text"))

    def arguments(*more, batch=4):
        return ["--config", str(config), "--per_device_train_batch_size", str(batch), *more]

    return arguments


@pytest.fixture(scope="module")
def one_process(whole, tmp_path_factory):
    """Runs of one process without dropout, one a recipe."""
    folders = {}

    def finish(recipe):
        if recipe not in folders:
            folders[recipe] = tmp_path_factory.mktemp(recipe)
            processes.run(train, recipe, whole(*STILL, batch=8), folder=folders[recipe])
        return folders[recipe]

    return finish


@pytest.mark.parametrize(
    ("engine", "recipe"),
    [
        *(together(engine, "mlm") for engine in ENGINES),
        *(together(engine, "clm") for engine in ("ddp-cpu", "zero3")),
    ],
)
def test_two_processes_have_the_losses_of_one(engine, recipe, one_process, whole, tmp_path):
    argv = whole(*STILL, batch=4)
    processes.run(train, recipe, argv, folder=tmp_path, processes=2, engine=engine)
    for key in ("loss", "eval_loss"):
        one, two = history(one_process(recipe), key), history(tmp_path, key)
        assert 16 in one
        assert two == pytest.approx(one, abs=1e-4)


@pytest.fixture(scope="module")
def finished(whole, tmp_path_factory):
    """Runs of two processes with dropout, one an engine."""
    folders = {}

    def finish(engine):
        if engine not in folders:
            folders[engine] = tmp_path_factory.mktemp(engine)
            where = {"folder": folders[engine], "processes": 2, "engine": engine}
            processes.run(train, "mlm", whole(), **where)
        return folders[engine]

    return finish


@pytest.fixture
def stopped(finished, tmp_path):
    """A copy of a finished run as a kill after the given checkpoint would have left it."""

    def stop(engine, checkpoint):
        shutil.copytree(finished(engine) / "run", tmp_path / "run")
        interrupt(tmp_path / "run", checkpoint)
        return tmp_path

    return stop


@pytest.mark.parametrize(
    ("engine", "checkpoint"),
    [
        *(together(engine, "checkpoint-8") for engine in ENGINES),
        # Behind the last step only the final save is left, of weights that are shared out.
        *(together(engine, "checkpoint-16") for engine in ("zero3", "fsdp2")),
    ],
)
def test_b36_two_processes_resume_to_the_same_digits(engine, checkpoint, finished, stopped, whole):
    folder = stopped(engine, checkpoint)
    processes.run(train, "mlm", whole(), folder=folder, processes=2, engine=engine)
    for key in ("loss", "eval_loss", "grad_norm"):
        assert history(folder, key) == history(finished(engine), key)
    assert same(weights(folder / "run"), weights(finished(engine) / "run"))


def reload_loss(argv):
    """The first evaluation of a run that begins with the saved weights."""
    MLM.main(argv)
    state = json.loads(Path("again/trainer_state.json").read_text())
    return state["log_history"][0]["eval_loss"]


def names(folder):
    with safe_open(folder / "run" / "model.safetensors", framework="pt") as tensors:
        return set(tensors.keys())


@pytest.mark.parametrize("engine", map(together, ENGINES))
def test_the_saved_model_has_the_final_evaluation_loss(
    engine, finished, one_process, whole, tmp_path
):
    folder = finished(engine)
    assert same(weights(folder / "run"), weights(folder / "run" / "checkpoint-16"))
    # Tied weights are written once.
    assert names(folder) == names(one_process("mlm"))
    changes = ["--model_name_or_path", str(folder / "run"), "--output_dir", "again"]
    argv = whole("--max_steps", "1", *changes)
    [loss] = processes.run(reload_loss, argv, folder=tmp_path)
    assert loss == pytest.approx(history(folder, "eval_loss")[16], abs=1e-6)


@pytest.mark.parametrize("engine", ["zero3", "fsdp2"])
def test_the_best_weights_are_found_again_after_the_last_save(engine, whole, tmp_path):
    # By a measure by which an earlier evaluation is the best.
    best = ["--load_best_model_at_end", "--greater_is_better", "true"]
    argv, where = whole(*best), {"processes": 2, "engine": engine}
    processes.run(train, "mlm", argv, folder=tmp_path / "whole", **where)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    for path in (tmp_path / "again" / "run").iterdir():
        if path.is_file() and path.name not in ("run.yaml", "data.json"):
            path.unlink()
    processes.run(train, "mlm", argv, folder=tmp_path / "again", **where)
    found = weights(tmp_path / "again" / "run")
    assert same(found, weights(tmp_path / "whole" / "run"))
    assert same(found, weights(tmp_path / "whole" / "run" / "checkpoint-8"))


def refusal(argv):
    """The one line with which the recipe refuses to run."""
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stderr(said), pytest.raises(SystemExit) as stop:
        run_program(load_recipe("mlm").main, argv)
    assert stop.value.code == 2
    return [line for line in said.getvalue().splitlines() if line.startswith("error")]


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        together("ddp-cpu", {}),
        together("zero2", {"processes": 2, "engine": "zero3"}),
        together("fsdp2", {"processes": 2, "engine": "ddp-cpu"}),
    ],
)
def test_another_engine_does_not_take_a_checkpoint_up(saved, now, stopped, whole):
    folder = stopped(saved, "checkpoint-8")
    before = sorted((p, p.stat().st_mtime_ns) for p in (folder / "run").rglob("*"))
    for lines in processes.run(refusal, whole(), folder=folder, **now):
        (line,) = lines
        name = saved.removesuffix("-cpu")
        assert f"checkpoint-8 was saved by 2 processes ({name})" in line
    assert sorted((p, p.stat().st_mtime_ns) for p in (folder / "run").rglob("*")) == before


def stop_in_step(argv, step, told):
    """Train, and let one process be asked to stop in a step; the code with which it leaves."""
    from transformers import Trainer

    original, calls = Trainer.training_step, []

    def training_step(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == step and self.args.process_index == told:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *args, **kwargs)

    Trainer.training_step = training_step
    with pytest.raises(SystemExit) as stop:
        MLM.main(argv)
    return stop.value.code


@pytest.mark.parametrize("engine", map(together, ["ddp-cpu", "zero3", "fsdp2"]))
def test_sigterm_to_one_process_stops_all_and_nothing_is_lost(engine, finished, whole, tmp_path):
    where = {"folder": tmp_path, "processes": 2, "engine": engine}
    codes = processes.run(stop_in_step, whole(), 5, 1, **where)
    assert codes == [EXIT_CODE, EXIT_CODE]
    assert (tmp_path / "run" / "checkpoint-5" / "checksums.json").is_file()
    processes.run(train, "mlm", whole(), **where)
    for key in ("loss", "eval_loss"):
        assert history(tmp_path, key) == history(finished(engine), key)
    assert same(weights(tmp_path / "run"), weights(finished(engine) / "run"))


def loaded_in_parts(folder):
    """Load and widen a model whose parts lie on two processes; how far it is from the whole one."""
    import deepspeed
    import torch
    from transformers import AutoModelForMaskedLM, TrainingArguments
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

    from hf_linear_attn.training.engines import built_whole, keep_deepspeed_from_compiling

    keep_deepspeed_from_compiling()
    args = TrainingArguments(use_cpu=True, report_to="none")
    assert is_deepspeed_zero3_enabled()
    with built_whole(args):
        whole = AutoModelForMaskedLM.from_pretrained(folder)
        assert all(p.numel() for p in whole.parameters())
    assert is_deepspeed_zero3_enabled()
    parts = AutoModelForMaskedLM.from_pretrained(folder)
    # Each process keeps its part elsewhere: the parameters themselves are empty.
    assert not any(p.numel() for p in parts.parameters())

    def distance():
        with deepspeed.zero.GatheredParameters(list(parts.parameters())):
            pairs = zip(parts.parameters(), whole.parameters(), strict=True)
            return max(float((a - b[: len(a)]).abs().max()) for a, b in pairs)

    loaded = distance()
    # No new rows at random: what is compared must be what was there.
    parts.resize_token_embeddings(256)
    whole.resize_token_embeddings(256)
    sizes = [parts.config.vocab_size, parts.get_output_embeddings().out_features]
    tied = parts.get_output_embeddings().weight is parts.get_input_embeddings().weight
    with deepspeed.zero.GatheredParameters(list(parts.parameters())):
        sizes.append(len(parts.get_input_embeddings().weight))
        sizes += [len(p) for n, p in parts.named_parameters() if n.endswith("lm_head.bias")]
    torch.distributed.barrier()
    return {"loaded": loaded, "resized": distance(), "sizes": sizes, "tied": tied}


def test_zero3_loads_and_resizes_models_with_empty_shards(one_process, tmp_path):
    folder = one_process("mlm") / "run"
    where = {"folder": tmp_path, "processes": 2, "engine": "zero3"}
    for found in processes.run(loaded_in_parts, str(folder), **where):
        assert found["loaded"] == 0
        assert found["resized"] == 0
        assert set(found["sizes"]) == {256}
        assert len(found["sizes"]) >= 3
        assert found["tied"]
