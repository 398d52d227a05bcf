"""Which tests of models there are."""

from tests.conftest import CAUSAL_VARIANTS


def pytest_collection_modifyitems(config, items):
    """A decoder of a mechanism without a causal form is refused, and tested to be: no more."""
    gone = []
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if params.get("is_decoder") and params.get("variant", "cosformer") not in CAUSAL_VARIANTS:
            gone.append(item)
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item not in gone]
