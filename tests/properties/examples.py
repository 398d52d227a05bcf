"""How many random examples a property test takes, and how many it really took."""

import functools
import os
from collections import Counter

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

FACTOR = int(os.environ.get("HF_LINEAR_ATTN_EXAMPLES", "0"))
"""0: the examples of every run alike; from 1 on: so many times as many, drawn anew each time"""

ASKED: dict[str, int] = {}
"""examples by test, `module.name`"""
RAN: Counter[str] = Counter()
"""those that went through the whole test: none that were filtered out, none that failed"""

# Newer versions draw constants that stand in the modules of a project, as many as are imported so
# far: which those are depends on the tests that a process ran before.
if FACTOR == 0 and hasattr(providers, "_get_local_constants"):
    _NO_CONSTANTS = type(providers._local_constants)()
    providers._get_local_constants = lambda: _NO_CONSTANTS


def examples(count):
    """Above `given`: take so many examples, none of which may be lost (see `conftest`)."""
    wanted = count * max(FACTOR, 1)

    def decorate(test):
        name = f"{test.__module__}.{test.__name__}"
        body = test.hypothesis.inner_test

        @functools.wraps(body)
        def counted(*args, **drawn):
            body(*args, **drawn)
            RAN[name] += 1

        test.hypothesis.inner_test = counted
        ASKED[name] = wanted
        return settings(
            max_examples=wanted,
            derandomize=FACTOR == 0,
            deadline=None,
            database=None,
            print_blob=True,
            # Which lines a failure runs through is found by tracing, which is slow here.
            phases=set(Phase) - {Phase.explain},
            suppress_health_check=[HealthCheck.too_slow],
        )(test)

    return decorate
