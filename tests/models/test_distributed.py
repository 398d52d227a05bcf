"""Two processes on one machine: every kind and head, with the defaults of the field."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.models.task_models import HEADS, IS_DECODER
from tests.models.test_accumulation import data, norm_of_gradient, trained_model

ROOT = Path(__file__).parents[2]
# They meet in a file: a port that is free now may be somebody else's when they have started.
MEETING = """
import os, sys, torch
from torch import distributed
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
"""
# Who leaves first closes connections in which the other may still be reading.
# Everything is said and done then; the threads of gloo now and then abort the end of a process.
PARTING = """
end = distributed.FileStore(sys.argv[1] + "_end", 2)
end.set(str(rank), "done")
end.wait(["0", "1"])
sys.stdout.flush()
os._exit(0)
"""
SYNCHRONISED = """
from torch.nn.parallel import DistributedDataParallel
from tests.conftest import CAUSAL_VARIANTS, OWN, TINY, VARIANTS
from tests.models.task_models import HEADS, IS_DECODER, batch, build

def language_model(config_class, model_class, own):
    torch.manual_seed(0)
    return model_class(config_class(**TINY, **own))

def tokens():
    ids = torch.randint(3, 90, (4, 12))
    return {"input_ids": ids, "labels": ids}

for variant in VARIANTS:
    config_class, _, masked_lm = VARIANTS[variant]
    own = OWN.get(variant, {})
    models = {"MaskedLM": (language_model(config_class, masked_lm, own), tokens)}
    if variant in CAUSAL_VARIANTS:
        models["CausalLM"] = (language_model(*CAUSAL_VARIANTS[variant]), tokens)
    for is_decoder in IS_DECODER:
        if is_decoder and variant not in CAUSAL_VARIANTS:
            continue
        for head in HEADS:
            model = build(variant, head, is_decoder=is_decoder)
            models[head, is_decoder] = (model, lambda head=head: batch(head))
    for name, (model, draw) in models.items():
        parallel = DistributedDataParallel(model.train(), find_unused_parameters=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = torch.cat([p.detach().flatten() for p in model.parameters()])
        torch.manual_seed(rank)
        for _ in range(2):
            parallel(**draw()).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        both = [torch.empty_like(after) for _ in range(2)]
        distributed.all_gather(both, after)
        assert torch.equal(*both), (variant, name)
        assert not torch.equal(before, after), (variant, name)
        if rank == 0:
            print(variant, name)
"""


TRAINER = """
import json
from tests.models.task_models import HEADS, IS_DECODER
from tests.models.test_accumulation import data, train_one_step, trained_model

found = {}
for is_decoder in IS_DECODER:
    for head in HEADS:
        torch.manual_seed(0)
        rows, _ = data(head)
        model = trained_model(head, is_decoder)
        found[f"{head} {is_decoder}"] = train_one_step(sys.argv[2], model, rows, 4, 1)
print(json.dumps(found))
"""


def launch(program, folder):
    """Run the program in two processes; what each printed."""
    whole = MEETING + program + PARTING
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
        "ACCELERATE_USE_CPU": "true", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
    }  # fmt: skip
    running = [
        subprocess.Popen(
            [sys.executable, "-c", whole, str(folder / "meeting"), str(folder)],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=240) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], outputs[0][1] + outputs[1][1]
    return [out for out, _ in outputs]


@pytest.mark.slow
def test_b41_two_processes_end_with_equal_weights(tmp_path):
    first, _ = launch(SYNCHRONISED, tmp_path)
    assert "softmax MaskedLM" in first
    assert "cosformer ('MultipleChoice', False)" in first


@pytest.mark.slow
def test_two_processes_have_the_loss_and_gradient_of_one(tmp_path):
    outputs = launch(TRAINER, tmp_path)
    for output in outputs:
        found = json.loads(output.splitlines()[-1])
        for is_decoder in IS_DECODER:
            for head in HEADS:
                torch.manual_seed(0)
                _, whole = data(head)
                model = trained_model(head, is_decoder)
                loss = model(**whole).loss
                loss.backward()
                wanted = [loss.item(), norm_of_gradient(model)]
                assert found[f"{head} {is_decoder}"] == pytest.approx(wanted, rel=1e-5), head
