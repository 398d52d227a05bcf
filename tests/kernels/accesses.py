"""What kernels touch in Triton's interpreter, which itself traps nothing and counts nothing."""

import numpy as np
import torch
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

MOST_PROGRAMS = 40
"""of a test: a program takes the interpreter some 25 ms"""


class Accesses:
    """Sees to it that kernels load and store inside the tensors they were given, nowhere else."""

    def __init__(self):
        self.programs = 0
        self.launches = 0
        self._begin = self._end = np.empty(0, np.uint64)

    def watch(self, patch):
        """Look at every launch, load and store for the time of a test.

        Args:
            patch: pytest's monkeypatch.
        """
        run = GridExecutor.__call__
        load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

        def watched_run(executor, *arguments, **named):
            self._launch(executor, [*arguments, *named.values()])
            return run(executor, *arguments, **named)

        def watched_load(builder, pointers, mask, *others):
            self._check(pointers, mask, "loads")
            return load(builder, pointers, mask, *others)

        def watched_store(builder, pointers, value, mask, *others):
            self._check(pointers, mask, "stores")
            return store(builder, pointers, value, mask, *others)

        patch.setattr(GridExecutor, "__call__", watched_run)
        patch.setattr(InterpreterBuilder, "create_masked_load", watched_load)
        patch.setattr(InterpreterBuilder, "create_masked_store", watched_store)

    def _launch(self, executor, arguments):
        self.launches += 1
        self.programs += int(np.prod(executor.grid))
        spans = sorted(span(x) for x in arguments if isinstance(x, torch.Tensor))
        # Arguments may be views of one another.
        joined = []
        for begin, end in spans:
            if joined and begin < joined[-1][1]:
                joined[-1][1] = max(end, joined[-1][1])
            else:
                joined.append([begin, end])
        self._begin, self._end = np.array(joined, dtype=np.uint64).T

    def _check(self, pointers, mask, does):
        where = np.atleast_1d(pointers.data)[np.atleast_1d(mask.data)]
        size = pointers.get_element_ty().primitive_bitwidth // 8
        span_of = np.searchsorted(self._begin, where, side="right").astype(np.int64) - 1
        inside = (span_of >= 0) & (where + np.uint64(size) <= self._end[span_of])
        if not inside.all():
            raise AssertionError(f"a kernel {does} {(~inside).sum()} times outside its tensors")


def span(x):
    """First address of a tensor's elements, and the one behind the last."""
    last = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
    return [x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()]
