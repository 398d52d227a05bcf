"""The table of wrong inputs and their answers, as a page for users."""

from tests.hostile.case import Case
from tests.hostile.cases import CASES, GROUPS
from tests.hostile.programs import PROGRAMS, ROOT

PAGE = ROOT / "docs" / "hostile-input.md"
_HEAD = """# What a wrong input gives

A program that cannot do what it is asked says so in one line on standard error, `error: …`, and
ends with exit code 2; nothing is written, and what lies in the output folder stays as it is. With a
bare `--debug` the traceback follows instead. Under `accelerate launch` that line is the last of the
program's own; the launcher adds what it has to say.

Nothing in a file is ever run: YAML with Python tags, pickles instead of safetensors and models with
code of their own are refused, and so are names that lead out of a folder. `…` stands for what
depends on the machine or on another library.

{refused} inputs are refused; {works} look wrong and are not.

"""


def page() -> str:
    """The whole page."""
    works = sum(case.works for case in CASES)
    head = _HEAD.format(refused=len(CASES) - works, works=works)
    parts = [_group(name, [c for c in cases if not c.works]) for name, cases in GROUPS.items()]
    return head + "\n".join([*parts, _group("Unusual, and right", [c for c in CASES if c.works])])


def _group(name: str, cases: list[Case]) -> str:
    lines = [f"## {name}\n", "| Given | to | Answer |", "| --- | --- | --- |"]
    lines += [f"| {_cell(c.given)} | {_program(c)} | {_cell(c.says)} |" for c in cases]
    return "\n".join(lines) + "\n"


def _program(case: Case) -> str:
    return f"`{PROGRAMS[case.program].name}`"


def _cell(text: str) -> str:
    """Text that a table of Markdown shows as it is."""
    for character in "\\`*_<>|[]":
        text = text.replace(character, f"\\{character}")
    return text
