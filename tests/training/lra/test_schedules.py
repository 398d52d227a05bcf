"""The harnesses' learning rates, step by step."""

import math

import pytest
import torch
from transformers import get_scheduler

from hf_linear_attn.training.lra.schedules import build_schedule


def optimizer(rate):
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=rate)


def rates(schedule, used, steps):
    found = []
    for _ in range(steps):
        found.append(used.param_groups[0]["lr"])
        used.step()
        schedule.step()
    return found


def test_transformers_inverse_sqrt_is_long_range_arenas_rsqrt_decay():
    base, warmup = 0.05, 10
    used = optimizer(base / math.sqrt(warmup))
    schedule = get_scheduler("inverse_sqrt", used, num_warmup_steps=warmup)
    expected = [base * min(1, t / warmup) / math.sqrt(max(t, warmup)) for t in range(40)]
    assert rates(schedule, used, 40) == pytest.approx(expected)


def test_the_cosine_begins_after_the_warm_up_and_is_as_long_as_the_run():
    used = optimizer(2.0)
    got = rates(build_schedule("cosine_cycle", used, 5, 20), used, 20)
    warm = [2.0 * t / 5 for t in range(5)]
    cosine = [1 + math.cos(math.pi * (t - 5) / 20) for t in range(5, 20)]
    assert got == pytest.approx(warm + cosine)


def test_one_cycle_is_torchs_and_moves_beta1():
    used, reference = optimizer(1e-4), optimizer(1e-4)
    schedule = build_schedule("one_cycle", used, 4, 20)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        reference, 1e-4, total_steps=20, pct_start=0.2, anneal_strategy="linear"
    )
    assert rates(schedule, used, 20) == pytest.approx(rates(theirs, reference, 20))
    assert used.param_groups[0]["betas"] == reference.param_groups[0]["betas"]
    assert used.param_groups[0]["betas"] != (0.9, 0.999)


def test_a_run_made_longer_takes_the_longer_shape():
    used = optimizer(1e-4)
    short = build_schedule("one_cycle", used, 4, 20)
    rates(short, used, 10)
    longer_optimizer = optimizer(1e-4)
    longer = build_schedule("one_cycle", longer_optimizer, 4, 40)
    longer.load_state_dict(short.state_dict())
    rest = rates(longer, longer_optimizer, 30)
    fresh = optimizer(1e-4)
    whole = rates(build_schedule("one_cycle", fresh, 4, 40), fresh, 40)
    assert rest[1:] == pytest.approx(whole[11:])


@pytest.mark.parametrize("warmup", [0, 1, 20])
def test_one_cycle_needs_a_warm_up_within_the_run(warmup):
    with pytest.raises(ValueError, match="needs warmup_steps above 1 and below the 20"):
        build_schedule("one_cycle", optimizer(1.0), warmup, 20)
