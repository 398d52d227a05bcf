"""bfloat16 in Triton's interpreter, which keeps raw 16-bit integers and computes with those."""

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


def widened(bits):
    """float32 array of the values that uint16 bits of bfloat16 stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values):
    """uint16 bits of the nearest bfloat16, ties to even, as PyTorch rounds."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = torch.from_numpy(values).bfloat16().view(torch.int16).numpy()
    return bits.view(np.uint16)


def is_bfloat16(handle):
    return handle.dtype.scalar == tl.bfloat16


def install(patch):
    """Right casts and products for the time of a test.

    Args:
        patch: pytest's monkeypatch.
    """
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    multiply, cast, convert = builder.create_dot, builder.cast_impl, builder.create_fp_to_fp
    combine = builder.binary_op

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        a, b = (handle(widened(x.data), tl.float32) if is_bfloat16(x) else x for x in (a, b))
        return multiply(self, a, b, d, input_precision, max_num_imprecise_acc)

    def cast_impl(self, source, target):
        pair = source.dtype.scalar, target.scalar
        if pair == (tl.bfloat16, tl.float32):
            return handle(widened(source.data), tl.float32)
        if pair == (tl.float32, tl.bfloat16):
            return handle(rounded(source.data), tl.bfloat16)
        return cast(self, source, target)

    def create_fp_to_fp(self, source, target, rounding):
        if {source.dtype.scalar, target.scalar} == {tl.bfloat16, tl.float32}:
            return cast_impl(self, source, target)
        return convert(self, source, target, rounding)

    def binary_op(self, left, right, op):
        # Nothing in the kernels computes in bfloat16; were it so, this would be wrong in silence.
        assert not is_bfloat16(left)
        return combine(self, left, right, op)

    patch.setattr(builder, "create_dot", create_dot)
    patch.setattr(builder, "cast_impl", cast_impl)
    for name in ("create_fp_ext", "create_fp_trunc"):
        patch.setattr(builder, name, lambda self, x, target: cast_impl(self, x, target))
    patch.setattr(builder, "create_fp_to_fp", create_fp_to_fp)
    patch.setattr(builder, "binary_op", binary_op)
