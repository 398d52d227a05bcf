"""Real data, where HF_LINEAR_ATTN_DATA names their folder."""

import os
from pathlib import Path

import pytest


def real(name: str) -> Path:
    return Path(os.environ.get("HF_LINEAR_ATTN_DATA", "/nowhere")) / name


def needs(name: str):
    return pytest.mark.skipif(not real(name).exists(), reason=f"HF_LINEAR_ATTN_DATA has no {name}")
