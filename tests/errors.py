"""How far two tensors are apart."""

import torch


def relative_error(found, expected, scale=None):
    """‖found − expected‖ / ‖expected‖, the expectation in float64.

    Where the expectation is exactly 0 (the gradient of a key that is alone), `scale` is what the
    difference is measured against.
    """
    found, expected = found.double(), expected.double()
    assert found.shape == expected.shape
    assert torch.isfinite(found).all()
    size = expected.norm()
    if scale is not None:
        size = torch.maximum(size, torch.as_tensor(scale, dtype=torch.float64))
    return ((found - expected).norm() / size.clamp_min(1e-300)).item()
