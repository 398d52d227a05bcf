"""The passes of linear attention, and a decoding step, on the backend that is to run them."""

from torch import Tensor

from hf_linear_attn.backend import choose_backend
from hf_linear_attn.linear_attention_types import Gradients, Inputs, Kept, Settings
from hf_linear_attn.ops.decode_step import decode_step
from hf_linear_attn.ops.kernel_modules import kernel_module, why_no_kernel
from hf_linear_attn.ops.passes import backward_pass, forward_pass

# A map that somebody adds to `feature_maps.FEATURE_MAPS` is unknown to the kernels.
_KERNEL_MAPS = ("identity", "relu", "elu", "elu_plus_one")


def backend_of(x: Inputs, settings: Settings, requested: str | None) -> str:
    """The backend that is to run a call, "torch" or "triton".

    Args:
        x, settings: as given to `linear_attention`, checked.
        requested: the caller's explicit choice or None.

    Raises:
        ValueError: an unknown name, or a backend that cannot run the call.
    """

    def why_not() -> str | None:
        if settings.feature_map not in _KERNEL_MAPS:
            return f"there is no kernel for feature_map={settings.feature_map!r}"
        return why_no_kernel(x, lambda support: support.why_not(x))

    return choose_backend(requested, x.q.device.type, why_not)


def run_forward(
    x: Inputs, settings: Settings, save: bool, backend: str
) -> tuple[Kept, Tensor | None]:
    """`passes.forward_pass` of a backend."""
    if backend == "triton":
        return kernel_module("passes").forward_pass(x, settings, save)
    return forward_pass(x, settings, save)


def run_backward(
    x: Inputs, settings: Settings, kept: Kept, grad_out: Tensor, grad_final: Tensor | None,
    backend: str,
) -> Gradients:  # fmt: skip
    """`passes.backward_pass` of a backend: the one that made `kept.states`, if there are any."""
    if backend == "triton":
        return kernel_module("passes").backward_pass(x, settings, kept, grad_out, grad_final)
    return backward_pass(x, settings, kept, grad_out, grad_final)


def run_decode_step(x: Inputs, settings: Settings, backend: str) -> tuple[Tensor, Tensor]:
    """`decode_step.decode_step` of a backend."""
    if backend == "triton":
        return kernel_module("decode").decode(x, settings)
    return decode_step(x, settings)
