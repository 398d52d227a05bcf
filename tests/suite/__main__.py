"""Run Transformers' common tests against the model classes of hf_linear_attn.

python -m tests.suite
python -m tests.suite --family cosformer --match 'test_resize*'

The tests come from the source distribution of the installed Transformers, fetched by pip into
~/.cache/hf_linear_attn/suite (or HF_LINEAR_ATTN_SUITE_CACHE) the first time. Exit code 1: a test
failed that tests/suite/not_applicable.py does not explain, or was skipped and tests/suite/skips.py
does not say why, or an entry of one of them is stale.
"""

import functools
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

from rich.console import Console

from hf_linear_attn.training.program import ProgramParser, run_program
from tests.suite.not_applicable import NOT_APPLICABLE
from tests.suite.outcomes import FAILED, unmet, unused
from tests.suite.report import print_report
from tests.suite.running import be_silent, run_subject
from tests.suite.skips import SKIPS
from tests.suite.source import fetch_tests
from tests.suite.subjects import FAMILIES, subjects


def main(argv: list[str]) -> None:
    """Run, print the tables; exit code 1 after a failure."""
    parser = ProgramParser(__doc__, prog="python -m tests.suite")
    parser.add_argument("--family", choices=FAMILIES, help="of one family only")
    parser.add_argument("--match", default="*", help="tests of this name only, * = any letters")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args(argv)
    fetch_tests()
    families = [args.family] if args.family else FAMILIES
    work = [(family, i) for family in families for i in range(len(subjects(family)))]
    console, outcomes = Console(soft_wrap=False), []
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(args.processes, fork, be_silent) as pool:
        run = functools.partial(run_subject, match=args.match)
        for found in pool.map(run, *zip(*work, strict=True)):
            outcomes += found
            if found:
                failed = sum(o.status == FAILED for o in found)
                console.print(f"{found[0].model}: {len(found)} tests, {failed} failed")
    print_report(console, outcomes)
    stale = []
    if args.family is None and args.match == "*":
        for entry in unmet(NOT_APPLICABLE, outcomes):
            stale.append(f"not_applicable.py: no test {entry.test} of {entry.classes}")
        for skip in unused(SKIPS, outcomes):
            stale.append(f"skips.py: nothing is skipped because {skip.says!r}: {skip.reason}")
    for line in stale:
        console.print(f"stale entry in {line}", markup=False)
    sys.exit(bool(stale or any(o.status == FAILED for o in outcomes)))


if __name__ == "__main__":
    run_program(main)
