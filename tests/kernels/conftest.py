"""Kernels run in Triton's interpreter, in a process of their own (`make kernels`)."""

import os

import pytest

from tests.kernels import guards


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """Right bfloat16; a process that began without the interpreter cannot have it."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.fail("run these tests by `make kernels`: TRITON_INTERPRET=1 from the start")
    from tests.kernels import bfloat16

    bfloat16.install(monkeypatch)


@pytest.fixture
def guarded(monkeypatch):
    """Every tensor that kernels read or write has NaN margins; they are looked at in the end."""
    guard = guards.Guards()
    guard.watch_allocations(monkeypatch)
    yield guard
    guard.check()
