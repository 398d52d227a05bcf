"""The forward and the backward pass of linear attention on Triton kernels.

Signatures and meaning are those of `hf_linear_attn.ops.passes`. Causal and packed: a scan writes
the state before each chunk, then every chunk is its own program; backwards likewise, with the scan
of the queries the other way. Bidirectional: the sums of the splits, then one pass over the chunks.
A scan of few heads is split along the sequence and made in two passes.
"""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import torch
from torch import Tensor

from hf_linear_attn.kernels.call import Call
from hf_linear_attn.kernels.grad_k import grad_k
from hf_linear_attn.kernels.grad_q import grad_q
from hf_linear_attn.kernels.grad_rows import grad_rows
from hf_linear_attn.kernels.grad_v import grad_v
from hf_linear_attn.kernels.launching import on_device
from hf_linear_attn.kernels.output import output
from hf_linear_attn.kernels.scans import key_scan, query_scan
from hf_linear_attn.linear_attention_types import Gradients, Inputs, Kept, Settings


def forward_pass(x: Inputs, settings: Settings, save: bool) -> tuple[Kept, Tensor | None]:
    """The output with what backward needs, and the final state (B, G, F, E) if causal.

    `Kept.states` holds one tensor: the states of all chunks, as `tiles` lays them out.

    Args:
        x, settings: as given to `linear_attention`, checked; `support.why_not` found nothing.
        save: keep the states.
    """
    with on_device(x.q.device):
        call = Call(x, settings)
        prefix, final = key_scan(call, suffix=False)
        suffix = key_scan(call, suffix=True)[0] if call.two_ways else None
        out, total, rest = _output(call, prefix, suffix)
    if final is not None and settings.causal:
        final = final.view(call.B, call.G, call.F, call.E)
    else:
        final = None
    return Kept(out, total, rest, [prefix] if save else None), final


def backward_pass(
    x: Inputs, settings: Settings, kept: Kept, grad_out: Tensor, grad_final: Tensor | None
) -> Gradients:
    """Gradients of q, k, v (laid out as they are) and of the state, None without one."""
    with on_device(x.q.device):
        call = Call(x, settings)
        grad = call.rows(grad_out)
        scale, low = _grad_rows(call, kept, grad)
        prefix = kept.states[0] if kept.states else key_scan(call, suffix=False)[0]
        suffix = key_scan(call, suffix=True)[0] if call.two_ways else None
        handed, grad_state = query_scan(call, grad, scale, low, grad_final, suffix=False)
        handed_back = None
        if call.two_ways:
            handed_back, _ = query_scan(call, grad, scale, low, None, suffix=True)
        of_rows, grads = (scale, low), (handed, handed_back)
        dq = _grad_q(call, grad, of_rows, (prefix, suffix))
        dk = _grad_k(call, grad, of_rows, grads)
        dv = _grad_v(call, grad, scale, grads)
    if x.state is None:
        return dq, dk, dv, None
    return dq, dk, dv, grad_state.view(x.state.shape).to(x.state.dtype)


def states_shape(x: Inputs, settings: Settings) -> tuple[int, int, int]:
    """Shape of the one tensor of `Kept.states`: (chunks, B·G, F·E)."""
    return Call(x, settings).states_shape


def _output(
    call: Call, prefix: Tensor, suffix: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    x, normalize = call.x, call.settings.normalize
    out = x.v.new_empty(call.B, call.H, call.N, call.Dv)
    total = rest = None
    if normalize:
        total = out.new_empty(call.B, call.G, call.R, call.N, 1, dtype=torch.float32)
        if out.dtype.itemsize == 2:
            rest = out.new_empty(call.B, call.G, call.R, call.N, call.Dv)
    tiles, options = call.launch("output")
    grid = (call.query_chunks * call.B * call.H, call.tiles(call.Dv, tiles["BV"]))
    output[grid](
        call.q, call.k, call.v, *call.q_turn, *call.k_turn, call.mask, call.segments, *call.borders,
        prefix, suffix, out, total, rest, *call.steps(call.q), *call.steps(call.k),
        *call.steps(call.v), *call.turn_steps, call.N, call.G, call.R, call.settings.eps, **tiles,
        **call.kind(), **options,
    )  # fmt: skip
    return out, total, rest


def _grad_rows(call: Call, kept: Kept, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Factors of the rows of the gradient, fp32 (B, H, N); None where all are 1."""
    normalize, drop = call.settings.normalize, call.x.key_mask is not None
    if not normalize and not drop:
        return None, None
    scale = grad.new_empty(call.B, call.H, call.N, dtype=torch.float32)
    low = torch.empty_like(scale) if normalize else None
    out, total, rest = (t if normalize else None for t in (kept.out, kept.total, kept.rest))
    tiles, options = call.launch("grad_rows")
    grid = (call.query_chunks * call.B * call.H,)
    grad_rows[grid](
        grad, out, rest, total, scale, low, *call.steps(grad), call.N, call.H, call.settings.eps,
        DV=tiles["DV"], C=tiles["C"], BV=tiles["BV"], NORM=normalize, DROP=drop, **options,
    )  # fmt: skip
    return scale, low


def _grad_q(
    call: Call,
    grad: Tensor,
    of_rows: tuple[Tensor | None, Tensor | None],
    states: tuple[Tensor, Tensor | None],
) -> Tensor:
    dq = call.x.q.new_empty(call.x.q.shape)
    tiles, options = call.launch("grad_q")
    grid = (call.query_chunks * call.B * call.H, call.tiles(call.D, tiles["BK"]))
    grad_q[grid](
        call.q, call.k, call.v, grad, *call.q_turn, *call.k_turn, call.mask, call.segments,
        *call.borders, *of_rows, *states, dq, *call.steps(call.q), *call.steps(call.k),
        *call.steps(call.v), *call.steps(grad), *call.turn_steps, call.N, call.G, call.R, **tiles,
        **call.kind(), **options,
    )  # fmt: skip
    return dq


def _grad_k(
    call: Call,
    grad: Tensor,
    of_rows: tuple[Tensor | None, Tensor | None],
    grads: tuple[Tensor, Tensor | None],
) -> Tensor:
    dk = call.x.k.new_empty(call.x.k.shape)
    tiles, options = call.launch("grad_k")
    grid = (call.key_chunks * call.B * call.G, call.tiles(call.D, tiles["BK"]))
    grad_k[grid](
        call.q, call.k, call.v, grad, *call.q_turn, *call.k_turn, call.mask, call.segments,
        *call.borders, *of_rows, *grads, dk, *call.steps(call.q), *call.steps(call.k),
        *call.steps(call.v), *call.steps(grad), *call.turn_steps, call.M, call.G, call.R, **tiles,
        **call.kind(), **options,
    )  # fmt: skip
    return dk


def _grad_v(
    call: Call, grad: Tensor, scale: Tensor | None, grads: tuple[Tensor, Tensor | None]
) -> Tensor:
    dv = call.x.v.new_empty(call.x.v.shape)
    tiles, options = call.launch("grad_v")
    grid = (call.key_chunks * call.B * call.G, call.tiles(call.Dv, tiles["BV"]))
    grad_v[grid](
        call.q, call.k, grad, *call.q_turn, *call.k_turn, call.mask, call.segments, *call.borders,
        scale, *grads, dv, *call.steps(call.q), *call.steps(call.k), *call.steps(grad),
        *call.turn_steps, call.M, call.G, call.R, **tiles, **call.kind(), **options,
    )  # fmt: skip
    return dv
