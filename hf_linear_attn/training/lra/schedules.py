"""Learning-rate schedules of the harnesses that Transformers has not.

`constant * linear_warmup * rsqrt_decay` of Long Range Arena is Transformers' own `inverse_sqrt`:
lr · min(1, t/w) / √max(t, w) peaks at lr/√w, which is the `learning_rate` to give.
"""

import math
from functools import partial
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR


def build_schedule(name: str, optimizer: Optimizer, warmup: int, steps: int) -> LRScheduler:
    """A schedule by its name in `--lr_schedule`.

    Args:
        name: "one_cycle" or "cosine_cycle".
        optimizer: with its peak learning rate.
        warmup: steps of warm-up.
        steps: of the whole run.

    Raises:
        ValueError: one_cycle without two steps of warm-up, or with nothing else.
    """
    if name == "cosine_cycle":
        return LambdaLR(optimizer, partial(cosine_cycle, warmup=warmup, steps=steps))
    check_schedule(name, warmup, steps)
    return _OneCycle(
        optimizer,
        max_lr=[group["lr"] for group in optimizer.param_groups],
        pct_start=warmup / steps,
        anneal_strategy="linear",
        total_steps=steps,
    )


def check_schedule(name: str | None, warmup: int, steps: int) -> None:
    """Raise ValueError for one_cycle without two steps of warm-up, or with nothing else."""
    if name == "one_cycle" and not 1 < warmup < steps:
        raise ValueError(
            f"lr_schedule one_cycle needs warmup_steps above 1 and below the {steps} steps of the "
            f"run; got {warmup}"
        )


def cosine_cycle(step: int, warmup: int, steps: int) -> float:
    """Factor of the peak rate: min(1, t/w) · (1 + cos(π · max(0, t − w)/T)) / 2.

    Source: create_learning_rate_scheduler of google-research/long-range-arena, whose cycle is the
    whole run (T steps) although it begins after the warm-up.

    Args:
        step: t, steps done.
        warmup: w.
        steps: T.
    """
    warm = min(1.0, step / warmup) if warmup else 1.0
    progress = max(0.0, (step - warmup) / steps)
    return warm * 0.5 * (1 + math.cos(math.pi * (progress % 1.0)))


class _OneCycle(OneCycleLR):
    """torch's schedule; a run that is made longer keeps its place but not its old length."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the place alone; the shape is that of this run."""
        super().load_state_dict({"last_epoch": state_dict["last_epoch"],
                                 "_step_count": state_dict["_step_count"],
                                 "_last_lr": state_dict["_last_lr"]})  # fmt: skip
