"""Other packages' attention over (batch, heads, seq, head_dim), where the package is installed."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.bench import Settings
from benchmarks.cores import Core, cosformer, linear_transformer


@dataclass(frozen=True)
class Peer:
    """An attention core of another package.

    Attributes:
        package: its name on PyPI.
        module: what is imported.
        build: makes the core from that module.
        causal: which kind is compared.
        needs_gpu: it has no CPU form.
        ours: what of ours it is compared with, by name.
    """

    package: str
    module: str
    build: Callable[[Any, Settings], Core]
    causal: bool
    needs_gpu: bool
    ours: dict[str, Core]

    def find(self, settings: Settings) -> Core | str:
        """The core, or why there is none."""
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module.partition(".")[0]:
                return f"cannot be imported: {error}"
            return "not installed"
        except ImportError as error:
            return f"cannot be imported: {error}"
        if self.needs_gpu and settings.device.type != "cuda":
            return "installed, but needs a GPU (--device cuda)"
        return self.build(module, settings)


def _flash_attention(module: Any, settings: Settings) -> Core:
    def core(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        out = module.flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=causal)
        return out.transpose(1, 2)

    return core


def _flash_linear_attention(module: Any, settings: Settings) -> Core:
    """Its chunked linear attention with normaliser; the feature map is PyTorch's, outside."""

    def core(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        assert causal
        q, k = (nn.functional.elu(x) + 1 for x in (q, k))
        out, _ = module.chunk_linear_attn(*(x.transpose(1, 2) for x in (q, k, v)), normalize=True)
        return out.transpose(1, 2)

    return core


def _performer(module: Any, settings: Settings) -> Core:
    """FAVOR+ with the package's own number of random features."""
    torch.manual_seed(settings.seed)
    attention = module.FastAttention(dim_heads=settings.head_dim, causal=False)
    attention = attention.to(settings.device, settings.dtype)

    def core(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        assert not causal
        return attention(q, k, v)

    return core


_OURS: dict[str, Core] = {"cosformer": cosformer, "linear_transformer": linear_transformer}
PEERS = (
    Peer("flash-attn", "flash_attn", _flash_attention, True, True, _OURS),
    Peer(
        "flash-linear-attention", "fla.ops.linear_attn", _flash_linear_attention, True, True, _OURS
    ),
    Peer("performer-pytorch", "performer_pytorch", _performer, False, False, _OURS),
)
