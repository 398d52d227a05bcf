"""Disturb training runs in every way that happens, and see that nothing shows in the end.

    make faults
    python -m tests.faults --only kills --kills 30 --seed 7

Runs of the recipes are killed at random moments, their disks are full, their files are damaged, and
one of two processes is lost. A table says what was done and what came of it; the exit code is 1 if
anything was lost, went unsaid, or ended otherwise than the undisturbed run, by a bit.
"""

import argparse
import sys
from pathlib import Path


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = ["kills", "disk", "damage", "ranks"]
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds, help="kinds of faults")
    parser.add_argument("--kills", type=int, default=100, help="at least so many, over all recipes")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the damages")
    parser.add_argument("--folder", type=Path, help="where to run; kept (default: a new one)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Carry out what is asked for; 1 if anything is wrong."""
    arguments = parse(argv)
    # Each process that is started imports this file.
    from tests.faults.campaign import campaign

    return campaign(arguments.only, arguments.kills, arguments.seed, arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
