"""Linear attention, bidirectional and causal, with or without normaliser, state in and state out.

    N_i = Σ_j m_j w_ij v_j    D_i = Σ_j m_j w_ij    o_i = N_i / max(D_i, eps)    causal: j ≤ i
    w_ij = φ(q_i)·φ(k_j) · cos(a_i − b_j)    (the cosine only with angles; both in one document)

Time and memory grow linearly with the length, forward and backward (Katharopoulos et al. 2020,
eq. 6-7; angles: Qin et al. 2022, eq. 10-11). Sums run in fp32 for 16- and 32-bit inputs and in fp64
for fp64 ones, under autocast too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hf_linear_attn.backend import resolve_backend
from hf_linear_attn.ops.feature_maps import get_feature_map
from hf_linear_attn.ops.normaliser import Normaliser
from hf_linear_attn.ops.operands import Rows, Values, accumulation_dtype
from hf_linear_attn.ops.pattern import Bounds, Pattern
from hf_linear_attn.ops.scan import scan
from hf_linear_attn.ops.scan_backward import Grads, scan_backward


@dataclass(frozen=True)
class _Settings:
    feature_map: str
    causal: bool
    normalize: bool
    chunk_size: int
    eps: float
    recompute_states: bool


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
        chunk_size: tokens handled at once in the causal and the packed form.
        eps: lower bound of the normaliser.
        recompute_states: spend time instead of memory in the backward pass.
        backend: "torch", "triton" or None for automatic.

    Returns:
        The output (B, H, N, Dv) in v's dtype, and the state after the last token (fp32, fp64 for
        fp64 inputs) if causal, else None.

    Raises:
        ValueError: shapes or arguments that contradict each other.
    """
    resolve_backend(backend, q.device.type)
    _check(q, k, v, causal, q_angles, k_angles, key_mask, segments, state, normalize, chunk_size)
    get_feature_map(feature_map)
    settings = _Settings(feature_map, causal, normalize, chunk_size, eps, recompute_states)
    return _LinearAttention.apply(q, k, v, state, q_angles, k_angles, key_mask, segments, settings)


class _LinearAttention(torch.autograd.Function):
    """Keeps q, k, v, the output and the normaliser; states only unless they are recomputed."""

    @staticmethod
    def forward(ctx, q, k, v, state, q_angles, k_angles, key_mask, segments, settings):
        save = any(ctx.needs_input_grad[:4]) and not settings.recompute_states
        with torch.autocast(q.device.type, enabled=False):
            operands = _operands(q, k, v, q_angles, k_angles, key_mask, segments, settings)
            out, norm, saved, final = _forward(v, state, operands, settings, save)
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        total, rest = (None, None) if norm is None else (norm.total, norm.rest)
        tokens = (q_angles, k_angles, key_mask, segments)
        ctx.save_for_backward(q, k, v, *tokens, out, total, rest, state, *saved)
        return out, final

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out, grad_final):  # pyright: ignore[reportIncompatibleMethodOverride]
        # Asked for once: under gradient checkpointing a second time would be an error.
        kept = ctx.saved_tensors
        (q, k, v, *tokens, out, total, rest, state), saved = kept[:11], kept[11:] or None
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out
        with torch.autocast(q.device.type, enabled=False):
            query_mask = _alive(grad_out, key_mask=tokens[2])
            operands = _operands(q, k, v, *tokens, settings=ctx.settings, query_mask=query_mask)
            groups = operands[0].x.shape[1:3]
            norm = None
            if ctx.settings.normalize:
                out = out.unflatten(1, groups)
                norm = Normaliser(out, operands[0].dtype, ctx.settings.eps, total, rest)
            grads = _backward(
                operands, norm, state, saved, grad_out.unflatten(1, groups), grad_final
            )
        return (*grads, None, None, None, None, None)


def _alive(grad_out: Tensor, key_mask: Tensor | None) -> Tensor | None:
    """Bool (B, N): queries that matter; whatever stands at the others must not get through."""
    return None if key_mask is None else (grad_out != 0).flatten(3).any(3).any(1)


def _operands(q, k, v, q_angles, k_angles, key_mask, segments, settings, query_mask=None):
    dtype = accumulation_dtype(q, k, v)
    groups = (k.shape[1], q.shape[1] // k.shape[1])
    feature_map = get_feature_map(settings.feature_map)
    queries = Rows(q.unflatten(1, groups), feature_map, q_angles, query_mask, dtype)
    keys = Rows(k.unsqueeze(2), feature_map, k_angles, key_mask, dtype)
    values = Values(v, key_mask, dtype, ones=settings.normalize)
    pattern = Pattern.build(
        queries, keys, segments, key_mask, causal=settings.causal, chunk=settings.chunk_size
    )
    return queries, keys, values, pattern


def _forward(v: Tensor, state: Tensor | None, operands, settings: _Settings, save: bool):
    queries, keys, values, pattern = operands
    B, G, r, N, _ = queries.x.shape
    out = v.new_empty(B, G, r, N, v.shape[-1])
    norm = Normaliser(out, queries.dtype, settings.eps) if settings.normalize else None

    def emit(bounds: Bounds, chunk: Tensor) -> None:
        start, stop = bounds
        chunk = chunk.view(B, G, r, stop - start, -1)
        if norm is None:
            out[:, :, :, start:stop] = chunk
        else:
            norm.write(chunk, start, stop)

    saved, final = scan(queries, keys, values, pattern, _flat(state, queries), emit, save=save)
    # A state that was not there at the first chunk is saved as an empty tensor.
    saved = [queries.x.new_empty(0) if s is None else s for s in saved]
    final = final.unflatten(0, (B, G)) if settings.causal else None
    return out.flatten(1, 2), norm, saved, final


def _flat(state: Tensor | None, queries: Rows) -> Tensor | None:
    return None if state is None else state.to(queries.dtype).flatten(0, 1)


def _backward(
    operands, norm: Normaliser | None, state: Tensor | None, saved, grad_out: Tensor, grad_final
):
    queries, keys, values, pattern = operands
    B, G = queries.x.shape[:2]
    chunks = []
    for start, stop in pattern.query_spans:
        grad = grad_out[:, :, :, start:stop].to(queries.dtype)
        if norm is not None:
            grad = norm.backward(grad, start, stop)
        if queries.pads is not None:
            grad = grad.masked_fill(queries.pads[:, :, :, start:stop], 0)
        chunks.append(grad.reshape(B * G, -1, grad.shape[-1]))
    grads = Grads(*(torch.empty_like(x) for x in (queries.x, keys.x, values.v)))
    if saved is not None:
        saved = [None if s.numel() == 0 else s for s in saved]
    grad_state = scan_backward(
        queries, keys, values, pattern, saved, _flat(state, queries), chunks,
        _flat(grad_final, queries), grads,
    )  # fmt: skip
    if state is None or grad_state is None:
        grad_state = None
    else:
        grad_state = grad_state.unflatten(0, (B, G)).to(state.dtype)
    return grads.q.flatten(1, 2), grads.k.squeeze(2), grads.v, grad_state


def _check(
    q, k, v, causal, q_angles, k_angles, key_mask, segments, state, normalize, chunk_size
) -> None:
    """Refuse what cannot be computed as asked."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4 or not x.is_floating_point():
            raise ValueError(
                f"{name} must be a float tensor (batch, heads, seq, head_dim); "
                f"got {x.dtype} of shape {tuple(x.shape)}."
            )
    (B, H, N, D), (Bk, G, M, Dk) = q.shape, k.shape
    if (Bk, Dk) != (B, D) or k.shape[:3] != v.shape[:3] or G == 0 or H % G:
        raise ValueError(
            "q (batch, heads, N, D), k (batch, kv_heads, M, D) and v (batch, kv_heads, M, Dv) must "
            f"agree and kv_heads divide heads; got {_shapes(q, k, v)}."
        )
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}; it must be at least 1.")
    if N == 0 or M == 0:
        raise ValueError(f"there must be a query and a key at least; got {N} and {M}.")
    if (causal or segments is not None) and N != M:
        raise ValueError(
            f"causal attention and segments need as many queries as keys; got {N} and {M}."
        )
    _check_layout("q_angles", q_angles, ((B, N), (1, N)))
    _check_layout("k_angles", k_angles, ((B, M), (1, M)))
    _check_layout("key_mask", key_mask, ((B, M),), torch.bool)
    _check_layout("segments", segments, ((B, N),))
    if (q_angles is None) != (k_angles is None):
        raise ValueError("q_angles and k_angles go together; got only one of them.")
    if state is not None:
        if not causal or segments is not None:
            raise ValueError("a state can be carried into causal attention without segments only.")
        features = D if q_angles is None else 2 * D
        _check_layout("state", state, ((B, G, features, v.shape[-1] + normalize),))


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(str(tuple(x.shape)) for x in tensors)


def _check_layout(name: str, x: Tensor | None, shapes, dtype: torch.dtype | None = None) -> None:
    if x is None:
        return
    if tuple(x.shape) not in shapes or (dtype is not None and x.dtype != dtype):
        wanted = " or ".join(map(str, shapes))
        kind = f" of {dtype}" if dtype else ""
        raise ValueError(f"{name} must have shape {wanted}{kind}; got {tuple(x.shape)}, {x.dtype}.")
