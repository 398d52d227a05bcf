"""Elementwise feature maps φ and their derivatives.

They live beside the ops, and not with the mechanisms, because an op applies them chunk by chunk:
a map of the whole sequence would cost a tensor of its own, forward and backward.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class FeatureMap(NamedTuple):
    """An elementwise map φ and the product of a gradient with its derivative."""

    forward: Callable[[Tensor], Tensor]
    """x -> φ(x), differentiable by autograd"""
    backward: Callable[[Tensor, Tensor, Tensor], Tensor]
    """(∂L/∂φ(x), x, φ(x)) -> ∂L/∂x; may write into its first argument"""
    overwrite: Callable[[Tensor], object]
    """x -> φ(x) in the memory of x, without autograd"""


def _elu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, x.clamp_max(0).expm1())


def _elu_plus_one(x: Tensor) -> Tensor:
    # exp(x) on the negative side, not expm1(x) + 1, which is exactly 0 in fp32 from x = -17 on.
    # One of the two terms is always exact: exp(0) = 1 above 0, and 0 below.
    return x.clamp_max(0).exp().add(x.clamp_min(0))


def _overwrite_elu_plus_one(x: Tensor) -> None:
    below = x.clamp_max(0).exp_()
    x.clamp_min_(0).add_(below)


FEATURE_MAPS: dict[str, FeatureMap] = {
    # Features computed by the caller (learned or random maps).
    "identity": FeatureMap(lambda x: x, lambda grad, x, y: grad, lambda x: x),
    # cosFormer (Qin et al. 2022). The derivative at 0 is 0, as in torch.relu.
    "relu": FeatureMap(
        lambda x: x.clamp_min(0),
        lambda grad, x, y: torch.ops.aten.threshold_backward(grad, y, 0),
        lambda x: x.clamp_min_(0),
    ),
    # TransNormer T1 (Qin et al. 2022): no + 1, so weights may be negative.
    "elu": FeatureMap(
        _elu, lambda grad, x, y: grad.mul_(x.clamp_max(0).exp()), lambda x: x.copy_(_elu(x))
    ),
    # Linear Transformer (Katharopoulos et al. 2020, eq. 7). For x <= 0 the derivative is φ itself.
    "elu_plus_one": FeatureMap(
        _elu_plus_one, lambda grad, x, y: grad.mul_(y.clamp_max(1)), _overwrite_elu_plus_one
    ),
}


def get_feature_map(name: str) -> FeatureMap:
    """The feature map of that name.

    Raises:
        ValueError: no such map.
    """
    try:
        return FEATURE_MAPS[name]
    except KeyError:
        raise ValueError(
            f"feature_map is {name!r}; accepted: {', '.join(map(repr, FEATURE_MAPS))}."
        ) from None
