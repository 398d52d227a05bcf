"""Nyström attention (Xiong et al. 2021, "Nyströmformer", eq. 13-15), of any length, with padding.

    F = softmax(Q K̃ᵀ/√d) (n × m)    A = softmax(Q̃ K̃ᵀ/√d) (m × m)    B = softmax(Q̃ Kᵀ/√d) (m × n)
    O = F Z (B V),    Z ≈ A⁺ by `pinv_iterations` steps of Razavi et al.'s iteration

Q̃, K̃ are means over m segments of a row's L real tokens: ⌊L/m⌋ tokens in the first segments, one
more in the last L mod m. A row with L ≤ m is its own set of landmarks: F V is then the exact
softmax attention, and it is what such a row gets. A depthwise convolution of the values may be
added (eq. 16). Time O(n·m·d + m³), never n × n.

On a GPU the pseudo-inverse is a Triton kernel where there is one for it; all other products are
PyTorch's on every backend.

Rows without a mask go through PyTorch's fused attention, which has first derivatives only: second
ones are taken under `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, scaled_dot_product_attention

from hf_linear_attn.backend import choose_backend, require_backend
from hf_linear_attn.ops.compaction import Compaction
from hf_linear_attn.ops.document_rows import over_documents
from hf_linear_attn.ops.kernel_modules import kernel_module, why_no_kernel
from hf_linear_attn.ops.masked_softmax import masked_softmax
from hf_linear_attn.ops.operands import accumulation_dtype
from hf_linear_attn.ops.recomputed_op import recomputed_op, takes_operators, transformed
from hf_linear_attn.ops.self_attention_inputs import check_self_attention


def nystrom_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    num_landmarks: int,
    pinv_iterations: int = 6,
    conv_weight: Tensor | None = None,
    key_mask: Tensor | None = None,
    segments: Tensor | None = None,
) -> Tensor:
    """Bidirectional self-attention over (batch, heads, seq, head_dim) tensors of any strides.

    Args:
        q: (B, H, N, D) float.
        k: (B, G, N, D) float; G divides H.
        v: (B, G, N, Dv) float.
        num_landmarks: m.
        pinv_iterations: steps of the pseudo-inverse; 6 in the paper.
        conv_weight: (H, 1, taps, 1) float, a kernel of an odd number of taps for each head: the
            values of the tokens around, so weighted, are added to the output.
        key_mask: bool (B, N), True = real token.
        segments: int (B, N), the document of each token; documents are contiguous.

    Returns:
        (B, H, N, Dv) in the accumulation dtype (fp32, or fp64 for fp64 inputs); what stands at pads
        means nothing.

    Raises:
        ValueError: shapes that do not fit together, sizes below 1, a kernel for another number of
            heads, or an explicit backend that cannot run the call.
    """
    check_self_attention(q, k, v, key_mask, segments)
    if num_landmarks < 1 or pinv_iterations < 1:
        raise ValueError(
            "num_landmarks and pinv_iterations must be at least 1; got "
            f"{num_landmarks} and {pinv_iterations}."
        )
    if conv_weight is not None:
        _check_kernels(conv_weight, q.shape[1])
    arguments = (q, k, v, conv_weight, key_mask, segments, num_landmarks, pinv_iterations)
    if takes_operators():
        return _in_graph(*arguments)[0]
    return _compute(*arguments)


def _check_kernels(weight: Tensor, heads: int) -> None:
    if weight.shape[0] != heads:
        raise ValueError(
            f"num_attention_heads is {weight.shape[0]}, but the query has {heads} heads."
        )
    if weight.ndim != 4 or weight.shape[1] != 1 or weight.shape[3] != 1 or weight.shape[2] % 2 == 0:
        raise ValueError(
            "conv_weight must be (heads, 1, taps, 1) with an odd number of taps; got "
            f"{tuple(weight.shape)}."
        )


def _compute(
    q: Tensor, k: Tensor, v: Tensor, conv_weight: Tensor | None, key_mask: Tensor | None,
    segments: Tensor | None, m: int, iterations: int,
) -> Tensor:  # fmt: skip
    """`nystrom_attention` itself, its arguments checked."""
    inverse = _inverse_for(q, k, v, m)

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return _one_document(q, k, v, conv_weight, mask, m, lambda A: inverse(A, iterations))

    with torch.autocast(q.device.type, enabled=False):
        dtype = accumulation_dtype(q, k, v)
        q, k, v = (x.to(dtype) for x in (q, k, v))
        if segments is None:
            return attend(q, k, v, key_mask)
        return over_documents(attend, q, k, v, key_mask, segments)


def _inverse_for(q: Tensor, k: Tensor, v: Tensor, m: int) -> Callable[[Tensor, int], Tensor]:
    """`pseudo_inverse` on the backend that is to run it, for m landmarks or fewer."""
    if transformed():
        require_backend(q, "the kernel of Nyström attention has reverse-mode gradients only")
        return pseudo_inverse

    def why_not() -> str | None:
        matrices = q.new_empty(0, m, m, dtype=accumulation_dtype(q, k, v))
        return why_no_kernel((q, k, v), lambda support: support.why_no_inverse(matrices))

    if choose_backend(None, q.device.type, why_not) == "triton":
        return kernel_module("pseudo_inverse").pseudo_inverse
    return pseudo_inverse


def _compute_whole(*arguments: Any) -> tuple[Tensor, Tensor]:
    out = _compute(*arguments).contiguous()
    return out, out.new_empty(0)


def _shapes(q, k, v, conv_weight, key_mask, segments, m, iterations):
    out = q.new_empty(*q.shape[:3], v.shape[3], dtype=accumulation_dtype(q, k, v))
    return out, out.new_empty(0)


_in_graph = recomputed_op(
    "nystrom_attention",
    6,
    "Tensor q, Tensor k, Tensor v, Tensor? conv_weight, Tensor? key_mask, Tensor? segments, "
    "int num_landmarks, int pinv_iterations",
    _compute_whole,
    _shapes,
)


def _one_document(
    q: Tensor, k: Tensor, v: Tensor, conv_weight: Tensor | None, mask: Tensor | None, m: int,
    inverse: Callable[[Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """Rows of one document each, in the accumulation dtype."""
    if mask is not None:
        # Fill, not multiply: whatever stands at a pad (even NaN) must not get through.
        pads = ~mask[:, None, :, None]
        q, k, v = (x.masked_fill(pads, 0) for x in (q, k, v))
    repeats = q.shape[1] // k.shape[1]
    if repeats > 1:
        k, v = (x.repeat_interleave(repeats, dim=1) for x in (k, v))
    out = _attend(q, k, v, m, inverse, mask)
    return out if conv_weight is None else out + _convolve(v, conv_weight.to(v.dtype), mask)


def _convolve(v: Tensor, weight: Tensor, mask: Tensor | None) -> Tensor:
    """Each head's kernel over its real tokens, moved together: a pad is no neighbour."""
    order = None if mask is None else Compaction(mask)
    v = v if order is None else order.pack(v, 2)
    out = conv2d(v, weight, padding=(weight.shape[2] // 2, 0), groups=v.shape[1])
    return out if order is None else order.unpack(out, 2)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, m: int, inverse: Callable[[Tensor], Tensor],
    key_mask: Tensor | None,
) -> Tensor:  # fmt: skip
    N, scale = q.shape[2], q.shape[-1] ** -0.5
    m = min(m, N)
    if key_mask is None:
        return _attend_full(q, k, v, m, inverse)
    length = key_mask.sum(1)
    averages = segment_averages(key_mask, m).to(q.dtype)
    # Landmarks that a short row does not have are masked.
    columns = (torch.arange(m, device=q.device) < length[:, None])[:, None, None, :]
    landmark_q, landmark_k = (_mean(averages, x) for x in (q, k))
    F = masked_softmax(q @ (landmark_k * scale).mT, columns)
    if m >= N:
        return F @ _mean(averages, v)
    landmark_q = landmark_q * scale
    A = masked_softmax(landmark_q @ landmark_k.mT, columns)
    B = masked_softmax(landmark_q @ k.mT, key_mask[:, None, None, :])
    # Rows that are exact need no inverse; theirs would be one of masked rows.
    exact = (length <= m)[:, None, None, None]
    A = torch.where(exact, torch.eye(m, dtype=A.dtype, device=A.device), A)
    inner = inverse(A) @ (B @ v)
    return F @ torch.where(exact, _mean(averages, v), inner)


def _attend_full(
    q: Tensor, k: Tensor, v: Tensor, m: int, inverse: Callable[[Tensor], Tensor]
) -> Tensor:
    """Rows without padding, m ≤ N: F and B go through PyTorch's fused attention, which keeps
    neither of them.
    """
    scale = q.shape[-1] ** -0.5
    read = _softmax_attention if transformed() else scaled_dot_product_attention
    landmark_q, landmark_k = segment_means(q, m), segment_means(k, m)
    if m == q.shape[2]:
        return read(q, landmark_k, v)
    A = (landmark_q * scale @ landmark_k.mT).softmax(-1)
    return read(q, landmark_k, inverse(A) @ read(landmark_q, k, v))


def _softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The fused one has neither forward-mode nor second derivatives."""
    return (q * q.shape[-1] ** -0.5 @ k.mT).softmax(-1) @ v


def segment_means(x: Tensor, m: int) -> Tensor:
    """Means of m segments of the tokens, all of them real: (B, H, N, D) -> (B, H, m, D); m ≤ N."""
    N = x.shape[2]
    size, longer = divmod(N, m)
    if not longer:
        return x.unflatten(2, (m, size)).mean(3)
    # One more token in each of the last segments.
    lengths = ((m - longer) * size, longer * (size + 1))
    parts = zip(x.split(lengths, dim=2), (m - longer, longer), (size, size + 1), strict=True)
    return torch.cat([part.unflatten(2, shape).mean(3) for part, *shape in parts], dim=2)


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
