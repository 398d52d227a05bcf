"""The official cosFormer layer, from its file, against ours.

The file is `cosformer.py` of the authors' repository; it is run as Python code. Its causal form
keeps a state for every position.
"""

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.allocator import allocated_by
from benchmarks.bench import Bench, Case, Settings
from benchmarks.cores import cosformer
from benchmarks.layers import own_config, placed
from hf_linear_attn.models.layers import SelfAttention

CLASS = "CosformerAttention"
# Its linear layers, and what ours are called.
PROJECTIONS = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "out_proj": "o_proj"}
LENGTHS = (1024,)
# What rounding may do, relative and by norm; the official form sums in the dtype of its inputs.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 2e-1}


def load_official(file: Path) -> type[nn.Module]:
    """The class of the official layer.

    Args:
        file: a Python file, which is run.

    Raises:
        ValueError: there is no such file, it fails, or there is no such class in it.
    """
    if not file.is_file():
        raise ValueError(
            f"--official {file}: there is no such file; give the path of cosformer.py from the "
            "authors' repository (github.com/OpenNLPLab/cosFormer)"
        )
    spec = importlib.util.spec_from_file_location("official_cosformer", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"--official {file}: not a Python file; give a path that ends in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # it is somebody else's code
        raise ValueError(
            f"--official {file}: it cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, CLASS, None)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ValueError(f"--official {file}: it has no class {CLASS} that is a torch.nn.Module")
    return found


def cases(settings: Settings) -> list[Case]:
    """Core, layer and memory, a case a length."""
    assert settings.official is not None
    official = load_official(settings.official)
    return [
        Case(f"{what}, {n:,} tokens", partial(run, official=official, length=n))
        for n in settings.lengths_or(LENGTHS)
        for what, run in (("official core", _core), ("official layer", _layer))
    ]


def _core(bench: Bench, *, official: type[nn.Module], length: int) -> None:
    """Without projections: three inputs in the official layout (seq, batch, hidden), for both."""
    settings = bench.settings
    stripped = placed(official(settings.hidden, settings.heads, causal=True), settings)
    for name in PROJECTIONS:
        setattr(stripped, name, nn.Identity())
    *inputs, grad = _draw(settings, length, 4)

    def own(*tensors: Tensor) -> Tensor:
        q, k, v = (x.unflatten(-1, (settings.heads, -1)).permute(1, 2, 0, 3) for x in tensors)
        return cosformer(q, k, v, causal=True).permute(2, 0, 1, 3).flatten(2)

    _check_same(stripped, own, inputs, settings)
    calls = {
        "official": _step(stripped, inputs, inputs, grad),
        "cosformer": _step(own, inputs, inputs, grad),
    }
    what = f"the official causal core / ours, {length:,} tokens, forward + backward"
    timings = bench.race(calls)
    bench.record_times(timings, f"official/core/{{name}}/{length}")
    bench.results.paired(f"official/core/{length}", timings.ratio("official", "cosformer"), what)
    peaks = {name: allocated_by(call, settings.device).peak for name, call in calls.items()}
    for name, peak in peaks.items():
        bench.results.sizes[f"official/peak/{name}/{length}"] = peak
    ratio = peaks["official"] / peaks["cosformer"]
    bench.results.number(f"official/memory/{length}", ratio, f"peak memory, {what}")


def _layer(bench: Bench, *, official: type[nn.Module], length: int) -> None:
    """Self-attention with its four projections, of the same weights."""
    settings = bench.settings
    theirs = placed(official(settings.hidden, settings.heads, causal=True), settings)
    config = own_config("cosformer", settings, length, layers=1).settle(is_decoder=True)
    ours = placed(SelfAttention(config, 0), settings)
    for name, own_name in PROJECTIONS.items():
        getattr(ours, own_name).load_state_dict(getattr(theirs, name).state_dict())
    x, grad = _draw(settings, length, 2)

    def own(x: Tensor) -> Tensor:
        return ours(x.transpose(0, 1), {})[0].transpose(0, 1)

    _check_same(theirs, own, [x], settings)
    timings = bench.race({
        "official": _step(theirs, [x], [x, *theirs.parameters()], grad),
        "cosformer": _step(own, [x], [x, *ours.parameters()], grad),
    })  # fmt: skip
    bench.record_times(timings, f"official/layer/{{name}}/{length}")
    bench.results.paired(
        f"official/layer/{length}", timings.ratio("official", "cosformer"),
        f"the official causal layer / ours, same weights, {length:,} tokens, forward + backward",
    )  # fmt: skip


def _draw(settings: Settings, length: int, count: int) -> list[Tensor]:
    generator = torch.Generator(settings.device).manual_seed(settings.seed)
    size = (length, settings.batch, settings.hidden)
    return [
        torch.randn(
            size, generator=generator, device=settings.device, dtype=settings.dtype,
            requires_grad=True,
        )
        for _ in range(count)
    ]  # fmt: skip


def _step(
    forward: Callable[..., Tensor], inputs: list[Tensor], leaves: list[Tensor], grad: Tensor
) -> Callable[[], object]:
    return lambda: torch.autograd.grad(forward(*inputs), leaves, grad)


def _check_same(
    theirs: Callable[..., Tensor], ours: Callable[..., Tensor], inputs: list[Tensor],
    settings: Settings,
) -> None:  # fmt: skip
    """Nothing is compared that does not compute the same."""
    with torch.no_grad():
        expected, found = theirs(*inputs).double(), ours(*inputs).double()
    apart = float((found - expected).norm() / expected.norm())
    if not apart <= TOLERANCE[settings.dtype]:
        raise ValueError(
            f"--official {settings.official}: its output is {apart:.1e} away from cosFormer's, "
            "relative to its size; give the layer of the authors' repository"
        )
