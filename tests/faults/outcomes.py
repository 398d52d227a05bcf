"""What was done to a run and what came of it."""

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """One fault.

    Attributes:
        kind: of the fault.
        case: what was done where.
        wrong: what should not be; empty when all is well.
        saw: what came of it, for the table.
    """

    kind: str
    case: str
    wrong: list[str] = field(default_factory=list)
    saw: str = ""
