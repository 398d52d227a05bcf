"""Linear attention, bidirectional and causal, with or without normaliser, state in and state out.

    N_i = Σ_j m_j w_ij v_j    D_i = Σ_j m_j w_ij    o_i = N_i / max(D_i, eps)    causal: j ≤ i
    w_ij = φ(q_i)·φ(k_j) · cos(a_i − b_j)    (the cosine only with angles; both in one document)

Time and memory grow linearly with the length, forward and backward (Katharopoulos et al. 2020,
eq. 6-7; angles: Qin et al. 2022, eq. 10-11). Sums run in fp32 for 16- and 32-bit inputs and in fp64
for fp64 ones, under autocast too.
"""

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad

from hf_linear_attn.linear_attention_types import Inputs, Kept, Settings
from hf_linear_attn.ops.decode_step import is_decode_step
from hf_linear_attn.ops.dispatch import backend_of, run_backward, run_decode_step, run_forward
from hf_linear_attn.ops.linear_attention_inputs import check_inputs
from hf_linear_attn.ops.linear_attention_op import (
    keeps_states,
    linear_attention_op,
    refuse_second_derivatives,
)
from hf_linear_attn.ops.linear_attention_vmap import register_vmap
from hf_linear_attn.ops.operands import accumulation_dtype

register_vmap()


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    feature_map: str = "identity",
    normalize: bool = True,
    q_angles: Tensor | None = None,
    k_angles: Tensor | None = None,
    key_mask: Tensor | None = None,
    segments: Tensor | None = None,
    state: Tensor | None = None,
    chunk_size: int = 64,
    eps: float = 1e-6,
    recompute_states: bool = False,
    backend: str | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Linear attention over (batch, heads, seq, head_dim) tensors of any strides.

    A row whose normaliser is 0 or less (no key to attend to, features that do not meet) gives
    output 0 and gradient 0.

    Args:
        q: (B, H, N, D) float.
        k: (B, G, M, D) float; G divides H, each key head serves H/G query heads.
        v: (B, G, M, Dv) float; Dv may differ from D. Its dtype is the output's.
        causal: token i attends to j ≤ i; needs N = M.
        feature_map: "identity", "relu", "elu" or "elu_plus_one", applied to q and k.
        normalize: divide by D_i.
        q_angles, k_angles: float (B or 1, N) and (B or 1, M), radians; both or neither.
        key_mask: bool (B, M), True = real token.
        segments: int (B, N), the document of each token; documents are contiguous. Needs N = M.
        state: (B, G, F, Dv + normalize) float, sums over the tokens before this call; F = D, or 2D
            with angles. Causal only, and not with segments.
        chunk_size: tokens handled at once in the causal and the packed form, by PyTorch; kernels
            take theirs from a table. A matter of speed: results depend on it by rounding alone.
        eps: lower bound of the normaliser.
        recompute_states: spend time instead of memory in the backward pass.
        backend: "torch", "triton", or None: what `use_backend` or the environment says, else Triton
            on a GPU where there is a kernel for the call, else PyTorch.

    Returns:
        The output (B, H, N, Dv) in v's dtype, and the state after the last token (fp32, fp64 for
        fp64 inputs) if causal, else None.

    Raises:
        ValueError: shapes or arguments that contradict each other; an explicit backend that cannot
            run the call; angles that want gradients.
        RuntimeError: a derivative other than the first, in reverse mode.
    """
    mapped = _mapped()
    x = Inputs(q, k, v, state, q_angles, k_angles, key_mask, segments)
    settings = Settings(feature_map, causal, normalize, chunk_size, eps)
    check_inputs(x, settings)
    if q.shape[0] == 0:
        return _of_no_rows(x, settings)
    save = torch.is_grad_enabled() and any(
        t.requires_grad for t in (q, k, v, state) if t is not None
    )
    save = save and not recompute_states
    if mapped or torch.compiler.is_compiling():
        return _in_graph(x, settings, save, backend)
    backend = backend_of(x, settings, backend)
    if is_decode_step(x, settings):
        return run_decode_step(x, settings, backend)
    return _LinearAttention.apply(*x, settings, save, backend)


def _of_no_rows(x: Inputs, settings: Settings) -> tuple[Tensor, Tensor | None]:
    """Nothing, of the right shapes and with gradients: there is no program that would make it."""
    nothing = sum(t.sum() for t in (x.q, x.k, x.v, x.state) if t is not None)
    F, E = x.k.shape[3] * (1 + (x.k_angles is not None)), x.v.shape[3] + settings.normalize
    out = x.v.new_zeros(*x.q.shape[:3], x.v.shape[3])
    if not settings.causal:
        return out + nothing, None
    state = x.v.new_zeros(0, x.k.shape[1], F, E, dtype=accumulation_dtype(x.q, x.k, x.v))
    return out + nothing, state + nothing


def _mapped() -> bool:
    """Is the call inside of `torch.func.vmap`? Other transforms are refused.

    Asked here and not left to autograd: an operator would give tangents of 0 without a word.
    """
    active = torch._C._are_functorch_transforms_active()
    # A graph cannot ask which transform it is inside of.
    other = active and (torch.compiler.is_compiling() or not _only_vmap())
    if forward_ad._current_level >= 0 or other:
        raise RuntimeError(
            "linear_attention has reverse-mode gradients only: of torch.func's transforms vmap "
            "works, outside of torch.compile, and grad, jvp, … and forward-mode differentiation "
            "do not. Use torch.autograd.grad."
        )
    return active


def _only_vmap() -> bool:
    layers = get_interpreter_stack() or []
    return all(layer.key() == TransformType.Vmap for layer in layers)


def _in_graph(
    x: Inputs, settings: Settings, save: bool, backend: str | None
) -> tuple[Tensor, Tensor | None]:
    """The operator, which a graph takes whole; it resolves the backend when it runs."""
    # An exported graph is one for all callers; those who train it compute the states again.
    save = save and not torch.compiler.is_exporting() and keeps_states(x.q.device)
    out, final, *_ = linear_attention_op(
        *x, settings.feature_map, settings.causal, settings.normalize, settings.chunk_size,
        settings.eps, save, backend,
    )  # fmt: skip
    return out, final if settings.causal else None


class _LinearAttention(torch.autograd.Function):
    """Keeps q, k, v, the output and the normaliser; states only unless they are recomputed.

    The backward pass runs on the backend that ran the forward pass, whose layout the states have.
    """

    @staticmethod
    def forward(
        ctx, q, k, v, state, q_angles, k_angles, key_mask, segments, settings, save, backend
    ):
        x = Inputs(q, k, v, state, q_angles, k_angles, key_mask, segments)
        kept, final = run_forward(x, settings, save, backend)
        # A state that was not there at the first chunk is saved as an empty tensor.
        states = [q.new_empty(0) if s is None else s for s in kept.states or ()]
        ctx.settings, ctx.backend = settings, backend
        ctx.set_materialize_grads(False)
        # Without a normaliser the output is the caller's alone, to change in place.
        out = kept.out if settings.normalize else None
        ctx.save_for_backward(*x, out, kept.total, kept.rest, *states)
        return kept.out, final

    @staticmethod
    def backward(ctx, grad_out, grad_final):  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_second_derivatives()
        # Asked for once: under gradient checkpointing a second time would be an error.
        saved = ctx.saved_tensors
        x, (out, total, rest), states = Inputs(*saved[:8]), saved[8:11], saved[11:]
        found = [None if s.numel() == 0 else s for s in states] or None
        if grad_out is None:
            grad_out = x.v.new_zeros(*x.q.shape[:3], x.v.shape[3])
        # Unread without a normaliser.
        out = grad_out if out is None else out
        kept = Kept(out, total, rest, found)
        grads = run_backward(x, ctx.settings, kept, grad_out, grad_final, ctx.backend)
        return (*grads, *[None] * 7)
