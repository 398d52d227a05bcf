"""The forward and the backward pass of linear attention on Triton kernels.

Signatures and meaning are those of `hf_linear_attn.ops.passes`. Causal and packed: a scan writes
the state before each chunk, then every chunk is its own program; backwards likewise, with the scan
of the queries the other way. Bidirectional: the sums of the splits, then one pass over the chunks.
A scan of few heads is split along the sequence and made in two passes.
"""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

from typing import Any

import torch
from torch import Tensor

from hf_linear_attn.kernels.call import Call, steps
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

    `Kept.states` holds one tensor: the states of all chunks, as `through_states` lays them out.

    Args:
        x, settings: as given to `linear_attention`, checked; `support.why_not` found nothing.
        save: keep the states.
    """
    with on_device(x.q.device):
        call = Call(x, settings)
        prefix, final = key_scan(call, suffix=False)
        suffix = key_scan(call, suffix=True)[0] if call.two_ways else None
        out, total, rest = _output(call, prefix, suffix)
    kept = Kept(out, total, rest, [prefix] if save else None)
    return kept, final if settings.causal else None


def backward_pass(
    x: Inputs, settings: Settings, kept: Kept, grad_out: Tensor, grad_final: Tensor | None
) -> Gradients:
    """Gradients of q, k, v and of the state (None without one), all contiguous."""
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
        rows = {"grad": grad, "scale": scale, "low": low, **steps("grad", grad)}
        dq = _gradient(call, grad_q, x.q, False, **rows, prefix=prefix, suffix=suffix)
        rows |= {"prefix": handed, "suffix": handed_back}
        dk = _gradient(call, grad_k, x.k, True, **rows)
        dv = _gradient(call, grad_v, x.v, True, **rows)
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
    tiles = call.tiles(call.Dv, call.configuration("output").columns)
    call.launch(
        output, (call.query_chunks * call.B * call.H, tiles), prefix=prefix, suffix=suffix, out=out,
        total=total, rest=rest,
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
    call.launch(
        grad_rows, (call.query_chunks * call.B * call.H,), grad=grad, out=out, rest=rest,
        total=total, scale=scale, low=low, **steps("grad", grad), DROP=drop,
    )  # fmt: skip
    return scale, low


def _gradient(call: Call, kernel: Any, of: Tensor, keys: bool, **operands: Any) -> Tensor:
    """∂L/∂q, ∂L/∂k or ∂L/∂v, in the dtype and shape of what it is of.

    Args:
        of: q, k or v of the call.
        keys: of keys or values: the programs are over their chunks and heads.
        operands: the gradient of the output, `scale` and `low` of its rows, and the states.
    """
    found = call.configuration(kernel.__name__)
    tile = found.columns if kernel is grad_v else found.features
    chunks, heads = (call.key_chunks, call.G) if keys else (call.query_chunks, call.H)
    result = of.new_empty(of.shape)
    grid = (chunks * call.B * heads, call.tiles(of.shape[-1], tile))
    call.launch(kernel, grid, result=result, N=of.shape[2], **operands)
    return result
