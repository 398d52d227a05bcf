"""Where kernels run: in Triton's interpreter (`make kernels`), or compiled on a GPU.

The interpreter must be chosen before Triton is imported: hence a process of its own.
"""

import pytest
import torch

from tests.kernels import guards


@pytest.fixture(autouse=True)
def kernels_run(monkeypatch):
    """Under the interpreter: right bfloat16, no access outside of tensors, no more programs than a
    test may take (the `Accesses`). On a GPU: what a test makes is made there."""
    if guards.INTERPRETED:
        from tests.kernels import accesses, bfloat16

        bfloat16.install(monkeypatch)
        watched = accesses.Accesses()
        watched.watch(monkeypatch)
        yield watched
        assert watched.programs <= accesses.MOST_PROGRAMS, f"{watched.programs} programs"
        return
    if not torch.cuda.is_available():
        pytest.fail("no GPU, and not `make kernels`: TRITON_INTERPRET=1 from the start")
    from hf_linear_attn.kernels.configurations import target_of

    if target_of(torch.device("cuda")) is None:
        pytest.skip(f"there are no kernels for {torch.cuda.get_device_name()}")
    with torch.device("cuda"):
        yield None


@pytest.fixture
def guarded(monkeypatch):
    """Every tensor that kernels read or write has NaN margins; they are looked at in the end."""
    guard = guards.Guards()
    guard.watch_allocations(monkeypatch)
    yield guard
    guard.check()
