"""The O(n²) float64 formula of every mechanism: explicit weights, masks and row sums.

Each function takes float64 tensors, is differentiable by autograd, and knows nothing of the
package. Its further keywords are the mechanism's fields, by their names in a config.
Shapes: q (B, H, N, D), k (B, G, M, D), v (B, G, M, Dv); H a multiple of G.
"""

import math

import torch


def allowed_pairs(n, m, *, key_mask=None, segments=None, causal=False):
    """(B or 1, 1, n, m) bool: may query i look at key j?"""
    pairs = torch.ones(1, 1, n, m, dtype=torch.bool)
    if causal:
        # Queries are the last n of m tokens.
        pairs = pairs & (torch.arange(m) <= torch.arange(m - n, m)[:, None])
    if key_mask is not None:
        pairs = pairs & key_mask[:, None, None, :]
    if segments is not None:
        pairs = pairs & (segments[:, None, :, None] == segments[:, None, None, :])
    return pairs


def repeat_heads(x, heads):
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def real_positions(n, *, key_mask=None, segments=None):
    """Counted from the first real token of each document; a loop, so that nobody doubts it."""
    if key_mask is None and segments is None:
        return torch.arange(n)[None]
    shape = key_mask.shape if key_mask is not None else segments.shape
    positions = torch.zeros(shape, dtype=torch.long)
    for b in range(shape[0]):
        seen = {}
        for i in range(n):
            document = 0 if segments is None else int(segments[b, i])
            if key_mask is None or key_mask[b, i]:
                positions[b, i] = seen.get(document, 0)
                seen[document] = seen.get(document, 0) + 1
    return positions


def softmax(q, k, v, *, causal, key_mask=None, segments=None, **_):
    """A = softmax(QKᵀ/√d); a row that sees nothing is 0."""
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    pairs = allowed_pairs(
        q.shape[2], k.shape[2], key_mask=key_mask, segments=segments, causal=causal
    )
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~pairs, -math.inf)
    empty = ~pairs.any(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(empty, 0), dim=-1).masked_fill(empty, 0)
    return weights @ v


def _normalised(weights, v, eps):
    total = weights.sum(-1, keepdim=True)
    dead = total <= 0
    out = weights @ v / total.masked_fill(dead, 1).clamp_min(eps)
    return out.masked_fill(dead, 0)


def linear_transformer(q, k, v, *, causal, key_mask=None, segments=None, eps=1e-6, **_):
    """φ = elu + 1 (methods A.2)."""
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    phi = [torch.where(x > 0, x + 1, torch.exp(x)) for x in (q, k)]
    pairs = allowed_pairs(
        q.shape[2], k.shape[2], key_mask=key_mask, segments=segments, causal=causal
    )
    return _normalised(phi[0] @ phi[1].mT * pairs, v, eps)


def cosformer(
    q, k, v, *, causal, key_mask=None, segments=None, query_positions=None, key_positions=None,
    max_position_embeddings=16, cos_horizon=None, cos_reweighting=True, feature_map=None,
    eps=1e-6, **_,
):  # fmt: skip
    """φ = ReLU, w_ij = φ(q_i)·φ(k_j) cos(π/2 (p_i − p_j)/M) (methods A.3)."""
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    pairs = allowed_pairs(
        q.shape[2], k.shape[2], key_mask=key_mask, segments=segments, causal=causal
    )
    if feature_map == "elu_plus_one":
        weights = torch.where(q > 0, q + 1, q.exp()) @ torch.where(k > 0, k + 1, k.exp()).mT * pairs
    else:
        weights = torch.relu(q) @ torch.relu(k).mT * pairs
    if not cos_reweighting:
        return _normalised(weights, v, eps)
    if query_positions is None:
        query_positions = real_positions(q.shape[2], key_mask=key_mask, segments=segments)
    if key_positions is None:
        key_positions = query_positions
    horizon = max_position_embeddings if cos_horizon is None else cos_horizon
    if horizon == "length":
        horizon = pairs.sum(-1, keepdim=True).clamp_min(1)
    distance = (query_positions[:, None, :, None] - key_positions[:, None, None, :]).double()
    weights = weights * torch.cos(math.pi / 2 * distance / horizon)
    return _normalised(weights, v, eps)


def srmsnorm(x, eps=1e-6):
    """x / √(mean x² + ε) over all heads side by side."""
    return x * torch.rsqrt(x.square().mean((1, 3), keepdim=True) + eps)


def _xnorm(x, name, eps):
    """srmsnorm, or "layernorm": that of what is left when the mean is taken away."""
    return srmsnorm(x - x.mean((1, 3), keepdim=True) if name == "layernorm" else x, eps)


def transnormer_norm(
    q, k, v, *, causal, key_mask=None, segments=None, transnormer_version="t2", xnorm="srmsnorm",
    eps=1e-6, **_,
):  # fmt: skip
    """XNorm(φ(Q) φ(K)ᵀ V), no denominator (methods A.4)."""
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    plus = 1 if transnormer_version == "t2" else 0
    phi = [torch.where(x > 0, x, torch.exp(x) - 1) + plus for x in (q, k)]
    pairs = allowed_pairs(
        q.shape[2], k.shape[2], key_mask=key_mask, segments=segments, causal=causal
    )
    return _xnorm((phi[0] @ phi[1].mT * pairs) @ v, xnorm, eps)


def transnormer_diag(
    q, k, v, *, causal, key_mask=None, segments=None, query_positions=None,
    block_size=64, transnormer_version="t2", xnorm="srmsnorm", eps=1e-6, **_,
):  # fmt: skip
    """Softmax (T2) or normed ReLU (T1) attention inside blocks of tokens (methods A.4)."""
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    n = q.shape[2]
    if query_positions is None:
        query_positions = real_positions(n, key_mask=key_mask, segments=segments)
    block = query_positions // block_size
    pairs = allowed_pairs(n, n, key_mask=key_mask, segments=segments, causal=causal)
    pairs = pairs & (block[:, None, :, None] == block[:, None, None, :])
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if transnormer_version == "t1":
        return _xnorm((torch.relu(scores) * pairs) @ v, xnorm, eps)
    empty = ~pairs.any(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(~pairs & ~empty, -math.inf), dim=-1)
    return weights.masked_fill(empty, 0) @ v


def _nystrom_document(q, k, v, m, iterations):
    """(heads, tokens, ·) of one document, without padding."""
    n, d = q.shape[1:]
    if n <= m:
        return torch.softmax(q @ k.mT / math.sqrt(d), dim=-1) @ v
    short = (n // m + 1) * m - n
    sizes = [n // m] * short + [n // m + 1] * (m - short)
    landmarks = [
        torch.stack([part.mean(1) for part in x.split(sizes, dim=1)], dim=1) for x in (q, k)
    ]
    F = torch.softmax(q @ landmarks[1].mT / math.sqrt(d), dim=-1)
    A = torch.softmax(landmarks[0] @ landmarks[1].mT / math.sqrt(d), dim=-1)
    B = torch.softmax(landmarks[0] @ k.mT / math.sqrt(d), dim=-1)
    out = []
    for head in range(q.shape[0]):
        Z = A[head].mT / (A[head].sum(0).max() * A[head].sum(1).max())
        eye = torch.eye(m, dtype=q.dtype)
        for _ in range(iterations):
            AZ = A[head] @ Z
            Z = Z @ (13 * eye - AZ @ (15 * eye - AZ @ (7 * eye - AZ))) / 4
        out.append(F[head] @ Z @ B[head] @ v[head])
    return torch.stack(out)


def _convolved(v, weight):
    """Each head's (heads, tokens, ·) neighbours weighed by its kernel (heads, 1, odd size, 1)."""
    size = weight.shape[2]
    wide = torch.nn.functional.pad(v, (0, 0, size // 2, size // 2))
    return sum(weight[:, :, i] * wide[:, i : i + v.shape[1]] for i in range(size))


def nystrom(
    q, k, v, *, causal, key_mask=None, segments=None, num_landmarks=64, pinv_iterations=6,
    conv_weight=None, **_,
):  # fmt: skip
    """F Z B V, and the convolution of V where it has weights, by documents (methods A.5)."""
    assert not causal
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    batch, heads, n, _d = q.shape
    rows = []
    for b in range(batch):
        real = torch.ones(n, dtype=torch.bool) if key_mask is None else key_mask[b]
        ids = torch.zeros(n, dtype=torch.long) if segments is None else segments[b]
        row = torch.zeros(heads, n, v.shape[-1], dtype=q.dtype)
        for document in ids[real].unique():
            at = (real & (ids == document)).nonzero().squeeze(1)
            part = [x[b][:, at] for x in (q, k, v)]
            out = _nystrom_document(*part, num_landmarks, pinv_iterations)
            if conv_weight is not None:
                out = out + _convolved(part[2], conv_weight)
            row = row.index_copy(1, at, out)
        rows.append(row)
    return torch.stack(rows)


REFERENCES = {
    "softmax": softmax,
    "linear_transformer": linear_transformer,
    "cosformer": cosformer,
    "transnormer_norm": transnormer_norm,
    "transnormer_diag": transnormer_diag,
    "nystrom": nystrom,
}
