"""Which versions the project allows, pins and has: `python -m tests.versions oldest`.

Exit code 1 where an environment is not what it was made for: one with the oldest versions that
pyproject.toml allows, or one with none older than those that constraints.txt pins.
"""

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]


def project() -> dict:
    """The metadata in pyproject.toml."""
    return _pyproject()["project"]


def settings() -> dict:
    """What pyproject.toml says to each tool, by its name."""
    return _pyproject()["tool"]


def _pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements(*extras: str) -> Iterator[Requirement]:
    """What the package asks for, and what its extras do, which may name each other."""
    metadata = project()
    texts = metadata["dependencies"] if not extras else []
    for extra in extras:
        texts += metadata["optional-dependencies"][extra]
    for requirement in map(Requirement, texts):
        if requirement.name == metadata["name"]:
            yield from requirements(*sorted(requirement.extras))
        else:
            yield requirement


def lowest(requirement: Requirement) -> Version:
    """The version that a requirement begins with."""
    (bound,) = [s.version for s in requirement.specifier if s.operator == ">="]
    return Version(bound)


def pinned() -> dict[str, Version]:
    """What constraints.txt says, by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name: Version(pin) for name, pin in pairs}


def installed(name: str) -> Version:
    """What there is, less what says how it was built."""
    return Version(Version(version(name)).public)


def unfit(environment: str) -> list[str]:
    """What in this environment is not as it should be, a line each.

    Args:
        environment: "oldest" or "newest".
    """
    lines = []
    for requirement in (*requirements(), *requirements("test")):
        try:
            found = installed(requirement.name)
        except PackageNotFoundError:
            lines.append(f"{requirement.name} is not installed")
            continue
        oldest, pin = lowest(requirement), pinned().get(requirement.name)
        if environment == "oldest" and found != oldest:
            lines.append(f"{requirement.name} is {found}, the oldest that is allowed is {oldest}")
        elif environment == "newest" and pin is not None and found < pin:
            lines.append(f"{requirement.name} is {found}, constraints.txt has {pin}")
    return lines


def main(argv: list[str]) -> int:
    """Say which versions there are, or which of them should be others."""
    if argv not in (["oldest"], ["newest"]):
        sys.stderr.write("usage: python -m tests.versions oldest|newest\n")
        return 2
    lines = unfit(*argv)
    there = [f"{name} {installed(name)}" for name in ("torch", "transformers", "accelerate")]
    sys.stdout.write("\n".join(lines or [f"{argv[0]}: {', '.join(there)}"]) + "\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
