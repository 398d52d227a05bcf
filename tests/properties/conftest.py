"""Every property test is slow, and fails if an example that it was to take was not taken."""

from pathlib import Path

import pytest

from tests.properties.examples import ASKED, RAN


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    result = yield
    name = f"{pyfuncitem.module.__name__}.{pyfuncitem.originalname}"
    if name in ASKED:
        ran, asked = RAN[name], ASKED[name]
        assert ran >= asked, f"{ran} of {asked} examples went through: the others were filtered out"
    return result


def pytest_terminal_summary(terminalreporter):
    if RAN:
        terminalreporter.write_line(f"{RAN.total()} examples in {len(RAN)} property tests")
