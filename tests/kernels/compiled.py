"""Kernels compiled ahead of time for devices that need not be there, and what they take of them."""

import contextlib
import io
import re
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hf_linear_attn.kernels.configurations import TABLE, Configuration
from hf_linear_attn.kernels.decode_step import decode_step
from hf_linear_attn.kernels.grad_k import grad_k
from hf_linear_attn.kernels.grad_q import grad_q
from hf_linear_attn.kernels.grad_rows import grad_rows
from hf_linear_attn.kernels.grad_v import grad_v
from hf_linear_attn.kernels.launching import operand_type
from hf_linear_attn.kernels.newton_schulz import newton_schulz, newton_schulz_backward
from hf_linear_attn.kernels.output import output
from hf_linear_attn.kernels.split_scan import split_scan
from hf_linear_attn.kernels.state_scan import state_scan

KERNELS = {
    "state_scan": state_scan,
    "output": output,
    "grad_rows": grad_rows,
    "grad_q": grad_q,
    "grad_k": grad_k,
    "grad_v": grad_v,
    "split_scan": split_scan,
    "decode_step": decode_step,
    "newton_schulz": newton_schulz,
    "newton_schulz_backward": newton_schulz_backward,
}

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}

SHARED_BYTES = {"sm_80": 166912, "sm_90": 232448, "sm_100": 232448, "gfx942": 65536}

ELEMENTS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}

PATTERNS = ("causal", "packed causal", "packed", "bidirectional")


@dataclass(frozen=True)
class Case:
    """One kernel as one call would compile it."""

    kernel: str
    dtype: torch.dtype
    size: int
    """the entry of the table"""
    target: str
    pattern: str = "causal"
    feature_map: str = "relu"
    cos: bool = True
    mask: bool = True
    normalize: bool = True
    grouped: bool = True
    exact: bool = True
    """the head size is the entry's own; else a smaller one that no tile and no vector divides"""
    queries: bool = False
    """scans: of queries, backwards"""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        return TABLE.get((self.kernel, self.dtype, self.size, self.target), ())


class Used(NamedTuple):
    """What a compiled kernel takes."""

    registers: int
    spills: int
    """bytes stored, on AMD registers"""
    stack: int
    """bytes"""
    shared: int
    """bytes"""

    def too_much(self, target: str) -> bool:
        """Whether the gate stays shut."""
        return bool(self.spills or self.stack or self.shared > SHARED_BYTES[target])


def compile_case(case: Case, configuration: Configuration) -> Used:
    """Compile a kernel for a target."""
    fn, constants = KERNELS[case.kernel], _constants(case, configuration)
    present = _present(case)
    signature, values, attributes = {}, {}, {}
    for i, name in enumerate(fn.arg_names):
        if name in constants:
            signature[name], values[name] = "constexpr", constants[name]
        elif not present.get(name, True):
            signature[name], values[name] = "constexpr", None
        else:
            signature[name] = _type_of(name, ELEMENTS[case.dtype])
            if signature[name].startswith("*") or (case.exact and _is_row_stride(name)):
                attributes[(i,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=fn, signature=signature, constexprs=values, attrs=attributes)
    options = configuration.options(case.target)
    said = io.StringIO()
    with knobs.nvidia.scope(), knobs.compilation.scope(), contextlib.redirect_stdout(said):
        knobs.nvidia.dump_ptxas_log = True
        # What a cache answers with says nothing of registers.
        knobs.compilation.always_compile = True
        made = triton.compile(source, target=TARGETS[case.target], options=options)
    if case.target.startswith("sm"):
        return _from_ptxas(said.getvalue(), made.metadata.shared)
    return _from_amd(made.asm["amdgcn"], made.metadata.shared)


def _present(case: Case) -> dict[str, bool]:
    """Which pointers a call has; those not named it always has."""
    packed = case.pattern.startswith("packed")
    two_ways = case.pattern == "packed"
    scaled = case.mask or case.normalize
    if case.kernel == "state_scan":
        scaled = scaled and case.queries
    rounds = case.normalize and case.dtype.itemsize == 2
    present = dict.fromkeys(("cos", "sin", "cos_q", "sin_q", "cos_k", "sin_k"), case.cos)
    present |= dict.fromkeys(("segments", "carried", "before"), packed)
    present |= dict.fromkeys(("suffix", "behind"), two_ways)
    mask = case.mask and not (case.kernel == "state_scan" and case.queries)
    present |= {"mask": mask, "rest": rounds, "total": case.normalize}
    present |= {"scale": scaled, "low": case.normalize}
    if case.kernel == "grad_rows":
        present |= {"scale": True, "out": case.normalize}
    if case.kernel == "state_scan":
        present |= {"low": case.normalize and case.queries, "states": _inner(case)}
    return present


def _inner(case: Case) -> bool:
    return case.pattern != "bidirectional"


def _constants(case: Case, configuration: Configuration) -> dict[str, object]:
    D = case.size if case.exact else case.size - 14
    features = 2 * D if case.cos else D
    constants: dict[str, object] = {
        "M": D,
        "BM": configuration.features,
        "ITERATIONS": 6,
        "SAVE": True,
        "SIZE": features * (D + case.normalize),
        "BD": triton.next_power_of_2(D),
        "D": D,
        "DV": D,
        "C": configuration.chunk,
        "BK": configuration.features,
        "BV": configuration.columns,
        "MAP": case.feature_map,
        "TY": operand_type(case.dtype),
        "NORM": case.normalize,
        "CAUSAL": "causal" in case.pattern,
        "INNER": _inner(case),
        "QUERIES": case.queries,
        "REVERSE": case.queries,
        "DROP": case.mask,
    }
    if not case.grouped:
        constants["R"] = 1
    return {
        name: value for name, value in constants.items() if name in KERNELS[case.kernel].arg_names
    }


def _type_of(name: str, element: str) -> str:
    if name in ("q", "k", "v", "x", "y", "grad", "out", "rest", "result"):
        return f"*{element}"
    if name == "mask":
        return "*u8"
    if name in ("segments", "carried", "before", "behind"):
        return "*i64"
    if name == "eps":
        return "fp32"
    return "i32" if name.isupper() or _is_stride(name) else "*fp32"


def _is_stride(name: str) -> bool:
    return name.endswith(("_b", "_h", "_n"))


def _is_row_stride(name: str) -> bool:
    return name.endswith("_n")


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found, f"nothing like {pattern!r} in:\n{text}"
    return int(found[1])


def _from_ptxas(log: str, shared: int) -> Used:
    return Used(
        _number(r"Used (\d+) registers", log),
        _number(r"(\d+) bytes spill stores", log) + _number(r"(\d+) bytes spill loads", log),
        _number(r"(\d+) bytes stack frame", log),
        shared,
    )


def _from_amd(assembly: str, shared: int) -> Used:
    return Used(
        _number(r"\.vgpr_count:\s+(\d+)", assembly),
        # Scalar registers spill into vector registers; if those do not suffice there is a stack.
        _number(r"\.vgpr_spill_count:\s+(\d+)", assembly),
        _number(r"\.private_segment_fixed_size:\s+(\d+)", assembly),
        shared,
    )
