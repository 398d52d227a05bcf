"""Tensors between margins: what a kernel reads beyond its tensor is NaN, what it writes is seen."""

import math
import os

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
MARGIN = 4096  # elements on either side, more than a tile of any kernel reaches beyond


class Guards:
    """Puts tensors between margins and remembers them."""

    def __init__(self):
        self.buffers = []

    def around(self, x):
        """A copy of x, of the same strides, between margins; None stays None."""
        if x is None:
            return None
        inner = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
        size = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
        view = self._buffer(size, x.dtype).as_strided(inner.shape, inner.stride(), MARGIN)
        if x.stride() and 0 in x.stride():
            # One element stands for many: write it once.
            view.as_strided((size,), (1,), MARGIN).copy_(x.as_strided((size,), (1,)))
        else:
            view.copy_(x)
        return view

    def empty(self, shape, dtype):
        """An unwritten tensor: NaN, so that what a kernel leaves out is seen."""
        shape = torch.Size(shape)
        return self._buffer(shape.numel(), dtype)[MARGIN : MARGIN + shape.numel()].view(shape)

    def watch_allocations(self, patch):
        """Results and work space get margins, too."""
        new_empty = torch.Tensor.new_empty

        def guarded_new_empty(x, *size, dtype=None, **others):
            if others:
                return new_empty(x, *size, dtype=dtype, **others)
            shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
            return self.empty(shape, dtype or x.dtype)

        patch.setattr(torch.Tensor, "new_empty", guarded_new_empty)
        patch.setattr(torch, "empty_like", lambda x: self.empty(x.shape, x.dtype))

    def _buffer(self, size, dtype):
        value = math.nan if dtype.is_floating_point else 1
        buffer = torch.full((size + 2 * MARGIN,), value, dtype=dtype)
        self.buffers.append(buffer)
        return buffer

    def check(self):
        """No margin was written to."""
        for buffer in self.buffers:
            for margin in (buffer[:MARGIN], buffer[-MARGIN:]):
                same = margin.isnan() if margin.dtype.is_floating_point else margin == 1
                assert same.all(), f"a kernel wrote outside a tensor of {buffer.shape}"
