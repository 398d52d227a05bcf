"""Linear attention by its O(n²) float64 formula: every weight explicit, gradients by autograd."""

import torch

from tests import reference

MAPS = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "elu": lambda x: torch.where(x > 0, x, torch.exp(x) - 1),
    "elu_plus_one": lambda x: torch.where(x > 0, x + 1, torch.exp(x)),
}


def linear_attention(x, settings):
    """Output (B, H, N, Dv) and final state (B, G, F, E), float64.

    Args:
        x: `Inputs` in float64.
        settings: `Settings`.
    """
    H, (N, M) = x.q.shape[1], (x.q.shape[2], x.k.shape[2])
    q, k = MAPS[settings.feature_map](x.q), MAPS[settings.feature_map](x.k)
    v = x.v
    if x.key_mask is not None:
        k, v = (t.masked_fill(~x.key_mask[:, None, :, None], 0) for t in (k, v))
    if settings.normalize:
        v = torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)
    if x.q_angles is not None:
        q, k = (
            torch.cat((t * a.cos()[:, None, :, None], t * a.sin()[:, None, :, None]), dim=-1)
            for t, a in ((q, x.q_angles), (k, x.k_angles))
        )
    pairs = reference.allowed_pairs(
        N, M, key_mask=x.key_mask, segments=x.segments, causal=settings.causal
    )
    weights = q @ reference.repeat_heads(k, H).mT * pairs
    both = weights @ reference.repeat_heads(v, H)
    final = k.mT @ v
    if x.state is not None:
        both = both + q @ reference.repeat_heads(x.state, H)
        final = final + x.state
    if not settings.normalize:
        return both, final
    top, total = both[..., :-1], both[..., -1:]
    dead = total <= 0
    out = top / total.masked_fill(dead, 1).clamp_min(settings.eps)
    return out.masked_fill(dead, 0), final
