"""The launch table holds together; that its entries compile well is the gate's affair."""

import pytest
import torch

from hf_linear_attn.kernels import configurations
from hf_linear_attn.kernels.configurations import CHUNKED, TABLE, configuration

pytestmark = pytest.mark.kernels


def test_kernels_of_a_call_share_the_chunk():
    for _, dtype, size, target in TABLE:
        found = [configuration(kernel, dtype, size, target) for kernel in CHUNKED]
        assert len({x.chunk for x in found if x is not None}) <= 1


def test_at_most_four_configurations_an_entry():
    assert all(1 <= len(found) <= 4 for found in TABLE.values())


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("size", [64, 128])
def test_the_usual_head_sizes_have_kernels_on_every_target(name, size):
    for kernel in configurations.LINEAR_ATTENTION:
        for target in configurations.TARGETS:
            assert configuration(kernel, getattr(torch, name), size, target) is not None


def test_split_scan_knows_fp32_alone():
    found = {configuration("split_scan", dtype, 64, "sm_90") for dtype in configurations.DTYPES}
    assert len(found) == 1
