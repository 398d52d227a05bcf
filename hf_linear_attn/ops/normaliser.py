"""Division by the row sums D_i = Σ_j w_ij, and its gradient."""

import torch
from torch import Tensor


def divide(top: Tensor, total: Tensor, eps: float) -> Tensor:
    """N_i / max(D_i, eps); a row with D_i ≤ 0 sees nothing and gives 0, with gradient 0.

    Args:
        top: N, float (…, n, Dv).
        total: D, float (…, n, 1).
        eps: lower bound of D.
    """
    return top * _scale(total, eps)


def _scale(total: Tensor, eps: float) -> Tensor:
    """1 / max(D, eps), and 0 for a row that sees nothing; shaped like `total`."""
    return total.clamp_min(eps).reciprocal().masked_fill(total <= 0, 0)


class Normaliser:
    """Divides an output chunk by chunk and keeps what the gradient needs.

    Args:
        out: the tensor that receives the output, (B, G, r, N, Dv).
        dtype: accumulation dtype.
        eps: lower bound of D.
        total, rest: of an earlier `Normaliser`, in the backward pass.

    The gradient needs o_i itself. Where `out` has 16 bits, `rest` keeps what rounding took away:
    Σ ∂o·o cancels to nothing where values have a mean, and rounded outputs would leave noise.
    """

    def __init__(
        self,
        out: Tensor,
        dtype: torch.dtype,
        eps: float,
        total: Tensor | None = None,
        rest: Tensor | None = None,
    ):
        self.out, self.dtype, self.eps = out, dtype, eps
        self.total = out.new_empty(*out.shape[:-1], 1, dtype=dtype) if total is None else total
        rounds = torch.finfo(out.dtype).bits == 16
        self.rest = torch.empty_like(out) if rest is None and rounds else rest

    def write(self, top: Tensor, total: Tensor, start: int, stop: int) -> None:
        """N of a chunk, (B, G, r, n, Dv), over D, (B, G, r, n, 1), to the output."""
        out = self.out[:, :, :, start:stop]
        self.total[:, :, :, start:stop] = total
        ratio = top.mul_(_scale(total, self.eps))
        out.copy_(ratio)
        if self.rest is not None:
            self.rest[:, :, :, start:stop] = ratio.sub_(out)

    def backward(self, grad: Tensor, start: int, stop: int) -> Tensor:
        """∂L/∂o of a chunk, (B, G, r, n, Dv), to ∂L/∂[N, D], (B, G, r, n, Dv + 1)."""
        total = self.total[:, :, :, start:stop]
        out = self.out[:, :, :, start:stop].to(self.dtype)
        if self.rest is not None:
            out = out + self.rest[:, :, :, start:stop]
        both = grad.new_empty(*grad.shape[:-1], grad.shape[-1] + 1)
        top, low = both[..., :-1], both[..., -1:]
        torch.mul(grad, _scale(total, self.eps), out=top)
        # Where D is clamped it is a constant.
        low.copy_((top * out).sum(-1, keepdim=True).neg_().masked_fill_(total < self.eps, 0))
        return both
