"""Which tests of models there are."""

import pytest

from tests.conftest import CAUSAL_VARIANTS
from tests.models.foreign_models import language_model


def pytest_collection_modifyitems(config, items):
    """A decoder of a mechanism without a causal form is refused, and tested to be: no more."""
    gone = []
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if params.get("is_decoder") and params.get("variant", "cosformer") not in CAUSAL_VARIANTS:
            gone.append(item)
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item not in gone]


@pytest.fixture
def saved(tmp_path):
    """Saves a language model; gives it and its folder."""

    def save(kind, **fields):
        model = language_model(kind, **fields)
        model.save_pretrained(tmp_path / kind)
        return model, tmp_path / kind

    return save
