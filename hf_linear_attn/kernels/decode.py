"""Decoding on a Triton kernel: one launch a token, without autograd."""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import torch
import triton
from torch import Tensor

from hf_linear_attn.kernels.call import call_configuration, launch_options, tables
from hf_linear_attn.kernels.decode_step import decode_step
from hf_linear_attn.kernels.launching import on_device
from hf_linear_attn.linear_attention_types import Inputs, Settings


def decode(x: Inputs, settings: Settings) -> tuple[Tensor, Tensor]:
    """Output (B, H, 1, Dv) in v's dtype and the new state, fp32 (B, G, F, E), for one token.

    Args:
        x: as given to `linear_attention`, checked; N = 1, without segments;
            `support.why_not` found nothing.
        settings: causal.
    """
    (B, H, _, D), (G, Dv) = x.q.shape, (x.k.shape[1], x.v.shape[3])
    F = D if x.q_angles is None else 2 * D
    tensors = (t.resolve_neg() for t in x[:3])
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in tensors)
    state = None if x.state is None else x.state.resolve_neg().float().contiguous()
    mask = None if x.key_mask is None else x.key_mask.contiguous().view(torch.uint8)
    turns = [tables(x.q_angles), tables(x.k_angles)]
    steps = [0 if cos is None or cos.shape[0] == 1 else 1 for cos, _ in turns]
    out = x.v.new_empty(B, H, 1, Dv)
    new = x.v.new_empty(B, G, F, Dv + settings.normalize, dtype=torch.float32)
    found = call_configuration("decode_step", x)
    with on_device(x.q.device):
        decode_step[(B * G, -(-Dv // found.columns))](
            q, k, v, *turns[0], *turns[1], mask, state, out, new, q.stride(0), q.stride(1),
            k.stride(0), k.stride(1), v.stride(0), v.stride(1), *steps, G, H // G, settings.eps,
            D=D, DV=Dv, BD=triton.next_power_of_2(D), BV=found.columns, MAP=settings.feature_map,
            NORM=settings.normalize, **launch_options(found, x.q.device),
        )  # fmt: skip
    return out, new
