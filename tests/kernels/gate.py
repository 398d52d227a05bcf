"""The ahead-of-time gate: no spilled register, no stack, shared memory within the device's.

    python -m tests.kernels.gate           a pairwise cover, at most 200 compiles
    python -m tests.kernels.gate --full    every entry of the launch table with every pattern

It runs beside the interpreter and not in it: a process that interprets kernels cannot compile them.
"""

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import torch

from hf_linear_attn.kernels.configurations import TABLE, Configuration

MOST = 200
"""compiles of the cover"""

PATTERNS = ("causal", "packed causal", "packed", "bidirectional")
FLAGS = ("cos", "mask", "normalize", "grouped", "exact")


class Compile(NamedTuple):
    """One compile: the fields of a `Case`, and a configuration."""

    case: dict[str, Any]
    configuration: Configuration


def pairwise(factors: dict[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Few rows in which every pair of values of two factors occurs; greedy, always the same."""
    names = list(factors)
    open_pairs = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(names, 2)
        for x in factors[a]
        for y in factors[b]
    }
    while open_pairs:
        seed = dict(min(open_pairs, key=str))
        orders = (names[i:] + names[:i] for i in range(len(names)))
        rows = [_filled(seed, order, factors, names, open_pairs) for order in orders]
        row = max(rows, key=lambda row: len(_pairs(row, names) & open_pairs))
        open_pairs -= _pairs(row, names)
        yield row


def _pairs(row, names) -> set:
    return set(itertools.combinations([(name, row[name]) for name in names if name in row], 2))


def _filled(row, order, factors, names, open_pairs) -> dict[str, Any]:
    """A row completed name by name, each time with the value that has most open pairs."""
    for name in order:
        if name not in row:
            choices = [{**row, name: value} for value in factors[name]]
            row = max(choices, key=lambda choice: len(_pairs(choice, names) & open_pairs))
    return row


_MAPS = ("relu", "elu_plus_one", "identity", "elu")
_BOTH = (True, False)
_CHUNKED = {"pattern": PATTERNS, "feature_map": _MAPS, **dict.fromkeys(FLAGS, _BOTH)}
_DIFFERENT: dict[str, dict[str, Sequence[Any]]] = {
    "state_scan": {**_CHUNKED, "queries": _BOTH},
    "grad_rows": {"pattern": PATTERNS[:1], **dict.fromkeys(("mask", "normalize", "exact"), _BOTH)},
    "split_scan": {
        "pattern": ("causal", "packed"), "queries": _BOTH,
        **dict.fromkeys(("cos", "normalize", "exact"), _BOTH),
    },
    "decode_step": {"feature_map": _MAPS, **dict.fromkeys(FLAGS, _BOTH)},
    "newton_schulz": {"exact": _BOTH},
    "newton_schulz_backward": {"exact": _BOTH},
}  # fmt: skip
"""what decides how a kernel is compiled beside its key in the table, where it is not `_CHUNKED`"""


def _factors(kernel: str) -> dict[str, Sequence[Any]]:
    keys = [key for key in TABLE if key[0] == kernel]
    of_key = {
        name: list(dict.fromkeys(key[i] for key in keys))
        for i, name in enumerate(("kernel", "dtype", "size", "target"))
    }
    return {**of_key, **_DIFFERENT.get(kernel, _CHUNKED)}


def cover() -> list[Compile]:
    """A pairwise cover of each kernel, over dtypes, head sizes, targets and features."""
    kernels = dict.fromkeys(key[0] for key in TABLE)
    rows = [row for kernel in kernels for row in pairwise(_factors(kernel))]
    assert len(rows) <= MOST, f"the cover takes {len(rows)} compiles"
    return list(_configured(rows))


def every_entry() -> list[Compile]:
    """Every entry of the table with every pattern, in its heaviest form."""
    rows = []
    for kernel, dtype, size, target in TABLE:
        factors = _factors(kernel)
        for pattern in factors.get("pattern", PATTERNS[:1]):
            for queries in factors.get("queries", (False,)):
                rows.append(
                    {
                        "kernel": kernel, "dtype": dtype, "size": size, "target": target,
                        "pattern": pattern, "feature_map": "elu_plus_one", "queries": queries,
                    }
                )  # fmt: skip
    return list(_configured(rows))


def _configured(rows: list[dict[str, Any]]) -> Iterator[Compile]:
    for row in rows:
        key = row["kernel"], row["dtype"], row["size"], row["target"]
        for configuration in TABLE.get(key, ()):
            yield Compile(row, configuration)


def run(job: Compile) -> tuple[bool, str]:
    """Compile; whether it passes, and a line of the table."""
    from tests.kernels.compiled import Case, compile_case

    case = Case(**job.case)
    try:
        used = compile_case(case, job.configuration)
    except Exception as error:
        return False, f"{_line(case, job.configuration)}  does not compile: {_cause(error)}"
    passed = not used.too_much(case.target)
    numbers = f"{used.registers:4} {used.spills:6} {used.stack:5} {used.shared:7}"
    verdict = "" if passed else "  REFUSED"
    return passed, f"{_line(case, job.configuration)} {numbers}{verdict}"


def _cause(error: BaseException) -> str:
    """What the compiler ran into, without the code around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).splitlines()[-1] if str(error) else ''}"


def _line(case, configuration: Configuration) -> str:
    flags = " ".join(name for name in (*FLAGS, "queries") if getattr(case, name))
    dtype = str(case.dtype).removeprefix("torch.")
    tiles = "x".join(map(str, configuration))
    return (
        f"{case.kernel:22} {case.target:6} {dtype:8} {case.size:3} {tiles:12} "
        f"{case.pattern:13} {case.feature_map:12} {flags:44}"
    )


def main() -> int:
    """Print the table; 1 if anything was refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="every entry of the launch table")
    parser.add_argument("--processes", type=int, default=2, help="compiles at a time")
    parser.add_argument("--only", default="", help="kernels, targets or dtypes, comma-separated")
    args = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET"):
        parser.error("TRITON_INTERPRET is set: the gate compiles, it does not interpret")
    jobs = every_entry() if args.full else cover()
    for word in filter(None, args.only.split(",")):
        jobs = [job for job in jobs if word in map(_name, job.case.values())]
    print(f"{len(jobs)} compiles; columns: registers, spills, stack, shared bytes", flush=True)
    refused = 0
    # A cache of its own: what an earlier version compiled must not answer for this one.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
        with ProcessPoolExecutor(args.processes) as pool:
            for passed, line in pool.map(run, jobs):
                refused += not passed
                print(line, flush=True)
    print(f"{len(jobs) - refused} passed, {refused} refused")
    return 1 if refused or not jobs else 0


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else str(value)


if __name__ == "__main__":
    sys.exit(main())
