"""Causal cosFormer by its formula in float64: every weight is formed, a block of rows at a time."""

import math

import torch
from torch import Tensor

_ROWS = 256


def causal_cosformer(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, horizon: int, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output and gradients of q, k, v, in time that grows with the square of the length.

        w_ij = ReLU(q_i)·ReLU(k_j) · cos(π/2 · (i − j)/M),    o_i = Σ_{j≤i} w_ij v_j / Σ_{j≤i} w_ij

    Args:
        q, k, v, grad: float (batch, heads, seq, head_dim); grad is the output's.
        horizon: M, at least the length.
        eps: lower bound of the normaliser.
    """
    q, k, v, grad = (x.detach().double() for x in (q, k, v, grad))
    out, dq, dk, dv = (torch.zeros_like(x) for x in (v, q, k, v))
    length = q.shape[2]
    for start in range(0, length, _ROWS):
        stop = min(start + _ROWS, length)
        # Later keys have no weight in these rows.
        mine, keys, values = q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop]
        leaves = [x.requires_grad_() for x in (mine, keys, values)]
        rows = _rows(mine, keys, values, start, horizon, eps)
        out[:, :, start:stop] = rows.detach()
        of_q, of_k, of_v = torch.autograd.grad(rows, leaves, grad[:, :, start:stop])
        dq[:, :, start:stop] = of_q
        dk[:, :, :stop] += of_k
        dv[:, :, :stop] += of_v
    return out, dq, dk, dv


def _rows(q: Tensor, k: Tensor, v: Tensor, start: int, horizon: int, eps: float) -> Tensor:
    """Outputs of the rows from `start` on; k and v end with the last of them."""
    positions = torch.arange(k.shape[2], dtype=torch.float64, device=q.device)
    distance = positions[start:, None] - positions
    weight = torch.cos(distance * (math.pi / 2 / horizon)).masked_fill(distance < 0, 0)
    pairs = (q.relu() @ k.relu().mT) * weight
    return (pairs @ v) / pairs.sum(-1, keepdim=True).clamp_min(eps)
