"""Small models of every task, and batches for them."""

import torch
import transformers

import hf_linear_attn as hla
from tests.conftest import OWN, TINY, VARIANTS

HEADS = [
    "SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice",
]  # fmt: skip
IS_DECODER = [False, True]
LABELS = 3


def task_class(variant, head):
    return getattr(hla, VARIANTS[variant][0].__name__.removesuffix("Config") + "For" + head)


def auto_class(head):
    return getattr(transformers, "AutoModelFor" + head)


def build(variant, head, *, is_decoder=False, **fields):
    """A model in eval mode, seeded; keywords are config fields."""
    torch.manual_seed(0)
    own = OWN.get(variant, {})
    settings = {**TINY, **own, "num_labels": LABELS, "is_decoder": is_decoder, **fields}
    return task_class(variant, head)(VARIANTS[variant][0](**settings)).eval()


def batch(head, rows=4, length=12):
    """Inputs and targets; rows of token labels have very different numbers of them."""
    shape = (rows, 3, length) if head == "MultipleChoice" else (rows, length)
    inputs = {"input_ids": torch.randint(3, 90, shape), "attention_mask": torch.ones(shape).long()}
    if head == "QuestionAnswering":
        inputs["start_positions"] = torch.arange(rows) % (length // 2)
        inputs["end_positions"] = inputs["start_positions"] + length // 2
    elif head == "TokenClassification":
        targets = inputs["input_ids"] % LABELS
        few = torch.arange(length) > torch.arange(rows)[:, None]
        inputs["labels"] = targets.masked_fill(few, -100)
    else:
        inputs["labels"] = torch.arange(rows) % 3
    return inputs


def scores(output):
    """What a model of any task says, in one tensor."""
    if "start_logits" in output:
        return torch.stack((output.start_logits, output.end_logits), -1)
    return output.logits
