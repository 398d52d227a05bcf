"""What holds of every converted model."""

import torch

import hf_linear_attn as hla
from tests.models.foreign_models import (
    DECODERS,
    batch,
)


def softmax_class(kind):
    return hla.SoftmaxForCausalLM if kind in DECODERS else hla.SoftmaxForMaskedLM


def assert_same_logits(source, model, kind, sides=("right", "left")):
    for side in sides:
        theirs, ours = batch(kind, side)
        real = ours["attention_mask"].bool()
        with torch.no_grad():
            wanted, found = source(**theirs).logits[real], model(**ours).logits[real]
        assert wanted.std() > 1
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def assert_complete(report, source, model):
    """Every tensor of both sides stands in the report exactly once."""
    theirs, ours = set(source.state_dict()), set(model.state_dict())
    assert report.used | set(report.dropped) == theirs
    assert not report.used & set(report.dropped)
    assert set(report.filled) | set(report.new) == ours
    assert not set(report.filled) & set(report.new)
    assert all(report.dropped.values())
    assert all(report.new.values())
