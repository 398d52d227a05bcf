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
    return (top / total.clamp_min(eps)).masked_fill(total <= 0, 0)


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

    def write(self, chunk: Tensor, start: int, stop: int) -> None:
        """[N, D] of a chunk, (B, G, r, n, Dv + 1), to the output."""
        total = chunk[..., -1:]
        ratio = divide(chunk[..., :-1], total, self.eps)
        self.total[:, :, :, start:stop] = total
        self.out[:, :, :, start:stop] = ratio
        if self.rest is not None:
            self.rest[:, :, :, start:stop] = ratio - self.out[:, :, :, start:stop]

    def backward(self, grad: Tensor, start: int, stop: int) -> Tensor:
        """∂L/∂o of a chunk, (B, G, r, n, Dv), to ∂L/∂[N, D], (B, G, r, n, Dv + 1)."""
        total = self.total[:, :, :, start:stop]
        out = self.out[:, :, :, start:stop].to(self.dtype)
        if self.rest is not None:
            out = out + self.rest[:, :, :, start:stop]
        top = (grad / total.clamp_min(self.eps)).masked_fill(total <= 0, 0)
        # Where D is clamped it is a constant.
        low = -(top * out).sum(-1, keepdim=True).masked_fill(total < self.eps, 0)
        return torch.cat((top, low), dim=-1)
