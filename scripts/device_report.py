"""Gather what `scripts/device_check.sh` has left in a folder: one JSON, one table.

python scripts/device_report.py runs/device_check
"""

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.report import left_out_lines, peers_table, rich_table
from benchmarks.results import Results, read_results
from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.program import ProgramParser, run_program

REPORT = "device_check.json"
# pytest ends with it where no test is marked; `timeout` with the other.
NO_TESTS, OUT_OF_TIME = 5, 124
_WORDS = {0: "done", NO_TESTS: "no tests", OUT_OF_TIME: "out of time"}


def main(argv: list[str]) -> None:
    """Write the JSON, print the table; exit code 1 if a step failed."""
    parser = ProgramParser(__doc__, prog="python scripts/device_report.py")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="say that no GPU was used")
    args = parser.parse_args(argv)
    steps = read_steps(args.folder / "steps.tsv")
    tests = read_tests(args.folder, [step["name"] for step in steps])
    measured = args.folder / "benchmark.json"
    results = read_results(measured) if measured.is_file() else Results()
    content = {"dry_run": args.dry_run, "steps": steps, "tests": tests}
    content["benchmark"] = json.loads(results.to_json())
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomically(args.folder / REPORT, text)
    _show(Console(), args, content, results)
    # A check that found no tests has checked nothing; without a GPU that can be as it should.
    good = (0, NO_TESTS) if args.dry_run else (0,)
    if any(step["code"] not in good for step in steps):
        raise SystemExit(1)


def read_steps(file: Path) -> list[dict[str, Any]]:
    """Name, exit code, seconds and limit of each step.

    Raises:
        ValueError: the file is not what the check writes.
    """
    if not file.is_file():
        raise ValueError(f"{file} does not exist; run scripts/device_check.sh first")
    try:
        rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
        return [
            {"name": name, "code": int(code), "seconds": int(seconds), "limit": int(limit)}
            for name, code, seconds, limit in rows
        ]
    except ValueError as error:
        raise ValueError(f"{file} is not what scripts/device_check.sh writes: {error}") from error


def read_tests(folder: Path, steps: Sequence[str]) -> dict[str, Any]:
    """How many tests passed, and the names of those that failed or were skipped, with why.

    Args:
        folder: what pytest wrote there as XML, `<step>.xml`.
        steps: names; one that ran no tests, or was stopped, has no such file.
    """
    found: dict[str, Any] = {"passed": 0, "failed": {}, "skipped": {}}
    files = [file for name in steps if (file := folder / f"{name}.xml").is_file()]
    for case in (case for file in files for case in _cases(file)):
        name = f"{case.get('classname')}::{case.get('name')}"
        bad = [node for kind in ("failure", "error") for node in case.findall(kind)]
        skipped = case.find("skipped")
        if bad:
            found["failed"][name] = (bad[0].get("message") or "").splitlines()[:1]
        elif skipped is not None:
            found["skipped"][name] = skipped.get("message")
        else:
            found["passed"] += 1
    return found


def _cases(file: Path) -> Iterator[ElementTree.Element]:
    return ElementTree.parse(file).iter("testcase")


def _show(console: Console, args, content: dict[str, Any], results: Results) -> None:
    if results.ratios:
        console.print(rich_table(results))
    if results.peers:
        console.print(peers_table(results))
    for line in left_out_lines(results):
        console.print(line, markup=False, soft_wrap=True)
    tests = content["tests"]
    title = "Device check" + (" (dry run, no GPU)" if args.dry_run else "")
    table = Table(title=title, caption=f"written: {args.folder / REPORT}")
    for column in ("step", "", "seconds", "limit"):
        table.add_column(column, justify="left" if column in ("step", "") else "right")
    for step in content["steps"]:
        words = _WORDS.get(step["code"], f"exit code {step['code']}")
        table.add_row(step["name"], words, str(step["seconds"]), str(step["limit"]))
    console.print(table)
    failed, skipped = tests["failed"], tests["skipped"]
    console.print(f"{tests['passed']} tests passed, {len(failed)} failed, {len(skipped)} skipped")
    for word, names in (("failed", failed), ("skipped", skipped)):
        for name, why in names.items():
            console.print(f"{word}: {name}: {why}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    run_program(main, sys.argv[1:])
