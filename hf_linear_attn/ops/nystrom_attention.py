"""Nyström attention (Xiong et al. 2021, "Nyströmformer", eq. 13-15), of any length, with padding.

    F = softmax(Q K̃ᵀ/√d) (n × m)    A = softmax(Q̃ K̃ᵀ/√d) (m × m)    B = softmax(Q̃ Kᵀ/√d) (m × n)
    O = F Z (B V),    Z ≈ A⁺ by `pinv_iterations` steps of Razavi et al.'s iteration

Q̃, K̃ are means over m segments of a row's L real tokens: ⌊L/m⌋ tokens in the first segments, one
more in the last L mod m. A row with L ≤ m is its own set of landmarks: F V is then the exact
softmax attention, and it is what such a row gets. Time O(n·m·d + m³), never n × n.
"""

import torch
from torch import Tensor

from hf_linear_attn.backend import require_backend
from hf_linear_attn.ops.masked_softmax import masked_softmax
from hf_linear_attn.ops.operands import accumulation_dtype


def nystrom_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    num_landmarks: int,
    pinv_iterations: int = 6,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Bidirectional self-attention over (batch, heads, seq, head_dim) tensors of any strides.

    Args:
        q: (B, H, N, D) float.
        k: (B, G, N, D) float; G divides H.
        v: (B, G, N, Dv) float.
        num_landmarks: m.
        pinv_iterations: steps of the pseudo-inverse; 6 in the paper.
        key_mask: bool (B, N), True = real token.

    Returns:
        (B, H, N, Dv) in the accumulation dtype (fp32, or fp64 for fp64 inputs); what stands at pads
        means nothing.

    Raises:
        ValueError: num_landmarks or pinv_iterations below 1.
    """
    if num_landmarks < 1 or pinv_iterations < 1:
        raise ValueError(
            "num_landmarks and pinv_iterations must be at least 1; got "
            f"{num_landmarks} and {pinv_iterations}."
        )
    require_backend(q)
    with torch.autocast(q.device.type, enabled=False):
        dtype = accumulation_dtype(q, k, v)
        q, k, v = (x.to(dtype) for x in (q, k, v))
        if key_mask is not None:
            # Fill, not multiply: whatever stands at a pad (even NaN) must not get through.
            pads = ~key_mask[:, None, :, None]
            q, k, v = (x.masked_fill(pads, 0) for x in (q, k, v))
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        return _attend(q, k, v, num_landmarks, pinv_iterations, key_mask)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, m: int, iterations: int, key_mask: Tensor | None
) -> Tensor:
    N = q.shape[2]
    # A traced graph must not depend on how the length compares with m.
    traced = torch.compiler.is_compiling()
    m = m if traced else min(m, N)
    real = q.new_ones(1, N, dtype=torch.bool) if key_mask is None else key_mask
    length = real.sum(1)
    averages = segment_averages(real, m).to(q.dtype)
    # Landmarks that a short row does not have are masked.
    there = torch.arange(m, device=q.device) < length[:, None]
    q, k = (x * q.shape[-1] ** -0.25 for x in (q, k))
    landmark_q, landmark_k = (_mean(averages, x) for x in (q, k))
    columns = None if key_mask is None and not traced else there[:, None, None, :]
    F = masked_softmax(q @ landmark_k.mT, columns)
    exact = length <= m
    if not traced and m >= N:
        return F @ _mean(averages, v)
    A = masked_softmax(landmark_q @ landmark_k.mT, columns)
    B = masked_softmax(landmark_q @ k.mT, None if key_mask is None else key_mask[:, None, None, :])
    if columns is None:
        return F @ (pseudo_inverse(A, iterations) @ (B @ v))
    exact = exact[:, None, None, None]
    # Rows that are exact need no inverse; theirs would be one of masked rows.
    A = torch.where(exact, torch.eye(m, dtype=A.dtype, device=A.device), A)
    inner = pseudo_inverse(A, iterations) @ (B @ v)
    return F @ torch.where(exact, _mean(averages, v), inner)


def segment_averages(real: Tensor, m: int) -> Tensor:
    """The matrix that takes the mean of each segment, fp64 (batch, m, seq).

    Args:
        real: bool (batch, seq).
        m: number of segments; a row with L ≤ m tokens has L segments of one token.
    """
    length = real.sum(1, keepdim=True)
    position = real.long().cumsum(1) - 1
    size = torch.div(length, m, rounding_mode="floor")
    first = (size + 1) * m - length
    """number of segments that hold `size` tokens; the others hold one more"""
    border = first * size
    before = torch.div(position, size.clamp_min(1), rounding_mode="floor")
    behind = first + torch.div(position - border, size + 1, rounding_mode="floor")
    segment = torch.where(position < border, before, behind)
    segment = torch.where(length <= m, position, segment)
    ids = torch.arange(m, device=real.device)[:, None]
    member = ((segment[:, None] == ids) & real[:, None]).double()
    return member / member.sum(-1, keepdim=True).clamp_min(1)


def _mean(averages: Tensor, x: Tensor) -> Tensor:
    """(batch or 1, m, seq) means of x (batch, heads, seq, d) -> (batch, heads, m, d)."""
    wide = x.transpose(1, 2).flatten(2)
    means = averages.expand(x.shape[0], -1, -1) @ wide
    return means.unflatten(2, (x.shape[1], -1)).transpose(1, 2)


def pseudo_inverse(A: Tensor, iterations: int) -> Tensor:
    """Iterative Moore-Penrose inverse of each matrix by itself (eq. 15).

        Z_0 = Aᵀ/(‖A‖_1 ‖A‖_∞),    Z ← ¼ Z (13 − AZ (15 − AZ (7 − AZ)))

    One scale a matrix: the authors' code takes the largest of the whole batch, which makes a row's
    output depend on its batch-mates.

    Args:
        A: (…, m, m) with entries ≥ 0.
        iterations: number of steps.
    """
    columns = A.sum(-2).amax(-1)[..., None, None]
    rows = A.sum(-1).amax(-1)[..., None, None]
    Z = A.mT / (columns * rows)
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    for _ in range(iterations):
        AZ = A @ Z
        Z = 0.25 * Z @ (13 * eye - AZ @ (15 * eye - AZ @ (7 * eye - AZ)))
    return Z
