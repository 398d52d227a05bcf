"""Two processes on one machine: the losses of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys, torch
torch.set_num_threads(1)
from datasets import disable_progress_bars
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.training.tiny_run import make_trainer, rows
disable_progress_bars()
batch = int(sys.argv[1])
tokenizer = load_or_train_tokenizer(None, ["some text"], 261, 64)
trainer = make_trainer(
    sys.argv[2], tokenizer, rows(16), max_steps=4, per_device_train_batch_size=batch,
    per_device_eval_batch_size=2, eval_on_start=True, ddp_find_unused_parameters=False,
)
trainer.use_peak(1e-3)
trainer.train()
trainer.evaluate()
flops = trainer._over_processes(trainer.utilisation.flops)
if trainer.is_world_process_zero():
    print(json.dumps([
        trainer.args.world_size,
        [e["loss"] for e in trainer.state.log_history if "loss" in e],
        [e["eval_loss"] for e in trainer.state.log_history if "eval_loss" in e],
        [e["eval_masked_accuracy"] for e in trainer.state.log_history if "eval_loss" in e],
        int(trainer._tokens_of_all_processes()),
        flops,
    ]))
else:
    trainer._tokens_of_all_processes()
trainer.end()
"""


def launch(folder: Path, processes: int, batch: int) -> list:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29731",
        "GLOO_SOCKET_IFNAME": "lo",
        "ACCELERATE_USE_CPU": "true",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    if processes == 1:
        for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            del environment[name]
    running = []
    for rank in range(processes):
        own = environment if processes == 1 else environment | {"RANK": str(rank)}
        own = own if processes == 1 else own | {"LOCAL_RANK": str(rank)}
        command = [sys.executable, "-c", PROGRAM, str(batch), str(folder)]
        running.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return json.loads(outputs[0].splitlines()[-1])


@pytest.mark.slow
def test_two_processes_train_and_evaluate_as_one(tmp_path):
    # Seven evaluation rows in batches of two: the last batch of one process is filled up with
    # rows that were seen before, which must not count.
    one = launch(tmp_path / "one", 1, 4)
    two = launch(tmp_path / "two", 2, 2)
    assert (one[0], two[0]) == (1, 2)
    for a, b in zip(one[1:4], two[1:4], strict=True):
        assert b == pytest.approx(a, rel=1e-5)
    assert one[4] == two[4]
    assert one[5] == pytest.approx(two[5], rel=1e-12)
