"""Attention transfer: a new mechanism learns, layer by layer, to do what the old one did.

A model converted from softmax to linear attention keeps its weights but computes another function.
Before it is finetuned, each new self-attention is fitted to the output of the old one on the same
input, on text without labels (Zhang et al. 2024, "LoLCATs: On Low-Rank Linearizing of Large
Language Models", 2410.10254, §3.2). What differs from the paper: it fits a learned feature map;
here the projections around the mechanism are fitted, and the error is relative to the target, so
that layers of any scale share one learning rate. Layers do not see each other: each has its own
loss, gradient and clipping, and one layer's graph is held at a time.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel, get_cosine_schedule_with_warmup

from hf_linear_attn.integrations.evaluation_mode import evaluation_mode
from hf_linear_attn.integrations.transfer_layers import (
    TransferLayer,
    changed_layers,
    check_pair,
    mechanism_names,
    self_attention,
    trunk_of,
)

Batch = Mapping[str, Any]
Callback = Callable[[int, dict[int, float]], None]


@dataclass(frozen=True)
class AttentionTransfer:
    """What a transfer did.

    A loss is ‖student − teacher‖² / ‖teacher‖² of a layer's self-attention output, over all real
    tokens of a batch: 0 is perfect, 1 is what an output of zeros would have.

    Attributes:
        losses: by layer, one a step, of that step's batch.
        before, after: by layer, mean loss on the evaluation batches, of the weights that the layer
            ends with.
        undone: layers that were no better behind the last step and have their old weights.
        mechanisms: by changed layer, registry names of the teacher's and the student's.
        left_alone: layers that are alike in both models and were not touched.
        steps, learning_rate, trained: as they were given.
    """

    losses: dict[int, list[float]]
    before: dict[int, float]
    after: dict[int, float]
    undone: list[int]
    mechanisms: dict[int, tuple[str, str]]
    left_alone: list[int]
    steps: int
    learning_rate: float
    trained: str


@dataclass(frozen=True)
class _Settings:
    steps: int
    learning_rate: float
    warmup_share: float
    max_grad_norm: float

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps: got {self.steps}, expected 1 or more.")
        for name in ("learning_rate", "max_grad_norm"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name}: got {value}, expected a number above 0.")
        if not 0 <= self.warmup_share < 1:
            raise ValueError(
                f"warmup_share: got {self.warmup_share}, expected at least 0 and below 1."
            )


def transfer_attention(
    teacher: PreTrainedModel,
    student: PreTrainedModel,
    batches: Iterable[Batch],
    *,
    steps: int,
    evaluation: Sequence[Batch] | None = None,
    learning_rate: float = 1e-2,
    warmup_share: float = 0.1,
    max_grad_norm: float = 1.0,
    trained: str = "qk",
    callback: Callback | None = None,
) -> AttentionTransfer:
    """Fit the student's self-attention to the teacher's, in each layer whose mechanism differs.

    The teacher runs without gradients and dropout and does not change. Of the student only
    self-attention of those layers changes, and only when all steps are done: after an error it is
    as it was, and a layer that is no better behind the last step keeps its weights. 16-bit weights
    are trained as fp32 copies and rounded at the end, before `after` is measured. Nothing is drawn
    at random: the same batches give the same student. On a terminal a bar shows the mean loss.

    Args:
        teacher, student: models of this package on one trunk, with the same weights outside
            attention, such as one checkpoint converted twice; with or without a head.
        batches: keywords of the model's forward: input_ids, attention_mask, seq_idx, …; `labels`
            are left out, for nothing is predicted. What can be read again is, an iterator has to
            last.
        steps: updates, one a batch.
        evaluation: batches for `before` and `after`; None = the first of `batches`.
        learning_rate: of AdamW, without weight decay, after warm-up; it falls to 0 as a cosine.
        warmup_share: share of the steps in which the rate rises from 0.
        max_grad_norm: a layer's longer gradients are cut to this length.
        trained: which projections, letters of "qkvo"; "q" and "k" take their norms along. A
            mechanism's own parameters (Nyström's convolution, LRPE) are trained in any case.
        callback: called after each step with its number, from 1, and the losses by layer.

    Raises:
        ValueError: models that are not two of ours on one trunk or have nothing to transfer, a
            batch the student cannot take, too few batches, or a loss that is no number.
    """
    settings = _Settings(steps, learning_rate, warmup_share, max_grad_norm)
    check_pair(teacher, student)
    changed = changed_layers(teacher, student)
    layers = {i: TransferLayer(self_attention(student, i), trained) for i in changed}
    source = _endless(batches)
    if evaluation is None:
        first = _next(source, 0, steps)
        source, evaluation = chain([first], source), [first]
    # Read twice: an iterator would be at its end the second time.
    evaluation = list(evaluation)
    lesson = _Lesson(teacher, layers)
    with evaluation_mode(trunk_of(teacher)):
        before = _measure(lesson, evaluation)
        losses = _train(lesson, source, settings, callback)
        for layer in layers.values():
            layer.round()
        after = _measure(lesson, evaluation)
    undone = [i for i in layers if after[i] >= before[i]]
    for i, layer in layers.items():
        if i not in undone:
            layer.write_back()
    after |= {i: before[i] for i in undone}
    old, new = mechanism_names(teacher), mechanism_names(student)
    return AttentionTransfer(
        losses=losses,
        before=before,
        after=after,
        undone=undone,
        mechanisms={i: (old[i], new[i]) for i in changed},
        left_alone=[i for i in range(len(new)) if i not in layers],
        steps=steps,
        learning_rate=learning_rate,
        trained=trained,
    )


class _Lesson:
    """The teacher's way through a batch; each layer's input and output are shown on the way."""

    def __init__(self, teacher: PreTrainedModel, layers: dict[int, TransferLayer]):
        self.teacher, self.layers = teacher, layers

    @torch.no_grad()
    def give(self, batch: Batch, study: Callable[[TransferLayer, Tensor], Tensor]) -> Tensor:
        """What `study` makes of each layer and its loss, fp64 (layers, …).

        Args:
            batch: keywords of the forward pass.
            study: takes a layer and its loss with its graph, which is dropped behind it.
        """
        found: list[Tensor] = []

        def look(layer: TransferLayer, module: nn.Module, args: Any, output: Any) -> None:
            x, tokens = args[:2]
            with torch.enable_grad():
                found.append(study(layer, layer.loss(x, tokens, output[0])).double().cpu())

        hooks = [
            self_attention(self.teacher, i).register_forward_hook(
                lambda *call, layer=layer: look(layer, *call)
            )
            for i, layer in self.layers.items()
        ]
        trunk = trunk_of(self.teacher)
        inputs = {
            name: value.to(trunk.device) if isinstance(value, Tensor) else value
            for name, value in batch.items()
            if name != "labels"
        }
        try:
            trunk(**inputs, use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(found)


def _measure(lesson: _Lesson, batches: Sequence[Batch]) -> dict[int, float]:
    """Mean loss by layer."""
    found = [lesson.give(batch, lambda layer, loss: loss.detach()) for batch in batches]
    if not found:
        raise ValueError("evaluation holds no batch; leave it out, or give one.")
    means = torch.stack(found).mean(0)
    _check_finite(lesson, means, "on the evaluation batches")
    return dict(zip(lesson.layers, means.tolist(), strict=True))


def _train(
    lesson: _Lesson, source: Iterator[Batch], settings: _Settings, callback: Callback | None
) -> dict[int, list[float]]:
    """Losses by layer, one a step."""
    parameters = [p for layer in lesson.layers.values() for p in layer.trained.values()]
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.0)
    schedule = get_cosine_schedule_with_warmup(
        optimizer, round(settings.warmup_share * settings.steps), settings.steps
    )

    def learn(layer: TransferLayer, loss: Tensor) -> Tensor:
        loss.backward()
        length = nn.utils.clip_grad_norm_(layer.trained.values(), settings.max_grad_norm)
        return torch.stack((loss.detach(), length))

    losses: dict[int, list[float]] = {i: [] for i in lesson.layers}
    # On a terminal, a bar appears after two seconds.
    bar = tqdm(range(1, settings.steps + 1), "Attention transfer", delay=2, disable=None)
    for step in bar:
        found = lesson.give(_next(source, step - 1, settings.steps), learn)
        _check_finite(lesson, found.sum(1), f"at step {step} of {settings.steps}")
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        of_step = dict(zip(lesson.layers, found[:, 0].tolist(), strict=True))
        for i, loss in of_step.items():
            losses[i].append(loss)
        bar.set_postfix(loss=f"{found[:, 0].mean().item():.3g}", refresh=False)
        if callback is not None:
            callback(step, of_step)
    return losses


def _check_finite(lesson: _Lesson, found: Tensor, when: str) -> None:
    for (i, _), value in zip(lesson.layers.items(), found.tolist(), strict=True):
        if not math.isfinite(value):
            raise ValueError(
                f"attention transfer broke off: the loss of layer {i}, or its gradient, is no "
                f"number {when}. The student is as it was. A smaller learning_rate may help; at "
                "the first step look at the teacher's weights, and for batches without a token."
            )


def _endless(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches, again and again where they can be read again."""
    while True:
        iterator, empty = iter(batches), True
        for batch in iterator:
            empty = False
            yield batch
        if empty or iterator is batches:
            return


def _next(source: Iterator[Batch], done: int, steps: int) -> Batch:
    batch = next(source, None)
    if batch is None:
        raise ValueError(
            f"batches ended after {done} of {steps} steps. The student is as it was. Give more "
            "text, fewer steps, or a list or DataLoader, which is read again."
        )
    return batch
