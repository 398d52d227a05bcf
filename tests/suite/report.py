"""The tables of a run."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.suite.outcomes import FAILED, NOT_APPLICABLE, PASSED, SKIPPED, Outcome


def counts_table(outcomes: Sequence[Outcome]) -> Table:
    """Numbers of tests by model class and status."""
    table = Table(title="Transformers' common tests")
    table.add_column("model class", overflow="fold")
    for status in (PASSED, FAILED, SKIPPED, NOT_APPLICABLE):
        table.add_column(status, justify="right")
    found = Counter((o.model, o.status) for o in outcomes)
    for model in dict.fromkeys(o.model for o in outcomes):
        table.add_row(model, *_cells(lambda status, m=model: found[m, status]))
    table.add_section()
    total = Counter(o.status for o in outcomes)
    table.add_row("all", *_cells(lambda status: total[status]))
    return table


def _cells(count):
    return [str(count(status)) for status in (PASSED, FAILED, SKIPPED, NOT_APPLICABLE)]


def reasons_table(outcomes: Sequence[Outcome], status: str) -> Table:
    """Reasons of a status, with the tests and the number of model classes of each."""
    table = Table(title=status, show_lines=True)
    for column in ("reason", "tests", "model classes"):
        justify = "right" if column == "model classes" else "left"
        table.add_column(column, justify=justify, overflow="fold")
    chosen = [o for o in outcomes if o.status == status]
    for reason, _ in Counter(o.detail for o in chosen).most_common():
        of_it = [o for o in chosen if o.detail == reason]
        tests = sorted({o.test for o in of_it})
        table.add_row(reason, ", ".join(tests), str(len({o.model for o in of_it})))
    return table


def print_report(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print the failures, the reasons and the numbers."""
    for outcome in outcomes:
        if outcome.status == FAILED:
            console.rule(f"{outcome.model}.{outcome.test}")
            console.print(outcome.detail, markup=False, highlight=False)
    for status in (SKIPPED, NOT_APPLICABLE):
        console.print(reasons_table(outcomes, status))
    console.print(counts_table(outcomes))
