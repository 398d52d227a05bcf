"""Targets of the task heads: refused where no loss could be right."""

import torch
from torch import Tensor

from hf_linear_attn.models.configuration import LinearAttnConfig


def check_classes(labels: Tensor, shape: tuple[int, ...], classes: int) -> None:
    """Look at class numbers.

    Args:
        labels: int `shape`, 0 to classes − 1, or −100 = no target.
        shape: what the labels must have.
        classes: how many there are.

    Raises:
        ValueError: another shape or type, or a class that does not exist.
    """
    if labels.shape != shape:
        raise ValueError(f"labels have shape {tuple(labels.shape)}; this input needs {shape}.")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be class numbers, integers; got {labels.dtype}.")
    if torch.compiler.is_compiling():
        return
    wrong = ((labels < 0) & (labels != -100)) | (labels >= classes)
    if bool(wrong.any()):
        raise ValueError(
            f"labels hold {int(labels[wrong][0])}; accepted: 0 to {classes - 1}, or -100 for no "
            "target. Set num_labels (or id2label) of the config if there are more classes."
        )


def check_row_labels(labels: Tensor, batch: int, config: LinearAttnConfig) -> None:
    """Look at the targets of sequence classification, under `config.problem_type`.

    Where the config names no problem, Transformers chooses as follows: one label is a regression,
    integers are classes, floats are several classes at once.

    Raises:
        ValueError: a shape, type or value that does not fit the problem.
    """
    count, problem = config.num_labels, config.problem_type
    assert count is not None
    whole = not labels.is_floating_point() and labels.dtype != torch.bool
    if problem == "single_label_classification" or (problem is None and count > 1 and whole):
        if labels.shape == (batch, 1):
            labels = labels[:, 0]
        check_classes(labels, (batch,), count)
        return
    accepted = [(batch, count)] if count > 1 else [(batch,), (batch, 1)]
    if labels.shape not in accepted:
        raise ValueError(
            f"labels have shape {tuple(labels.shape)}; with num_labels={count} and "
            f"problem_type={problem!r} accepted: {' or '.join(map(str, accepted))}."
        )
    if problem == "regression" or (problem is None and count == 1):
        return
    if not labels.is_floating_point():
        raise ValueError(
            f"labels of several classes at once must be float, 0 and 1; got {labels.dtype}."
        )
    if not torch.compiler.is_compiling() and bool(((labels < 0) | (labels > 1)).any()):
        raise ValueError(
            "labels of several classes at once must lie between 0 and 1; got "
            f"{labels.min().item()} to {labels.max().item()}."
        )


def check_answers(start: Tensor, end: Tensor, mask: Tensor | None, shape: tuple[int, int]) -> None:
    """Look at the positions of answers.

    Args:
        start, end: int (batch,) or (batch, 1); at or past the end of the row = no target.
        mask: bool (batch, seq), True = real token, or None where all are.
        shape: (batch, seq) of the input.

    Raises:
        ValueError: another shape or type, a negative position, one at a pad, or no target at all.
    """
    batch, length = shape
    for name, given in (("start_positions", start), ("end_positions", end)):
        if given.shape not in ((batch,), (batch, 1)) or given.is_floating_point():
            raise ValueError(
                f"{name} must be integers of shape ({batch},) or ({batch}, 1); got {given.dtype} "
                f"of shape {tuple(given.shape)}."
            )
        if torch.compiler.is_compiling():
            continue
        positions = given.view(batch)
        inside = positions < length
        if bool((positions < 0).any()) or not bool(inside.any()):
            raise ValueError(
                f"{name} are {positions.tolist()} for rows of {length} tokens: none may be below "
                "0, and one at least must lie inside (those past the end are no targets). Let a "
                "question without an answer point at the first token."
            )
        if mask is not None:
            real = mask[torch.arange(batch, device=mask.device), positions.clamp(max=length - 1)]
            if bool((inside & ~real).any()):
                row = int((inside & ~real).nonzero()[0])
                raise ValueError(f"{name}[{row}] is {int(positions[row])}, which is a pad.")
