"""The common tests of Transformers as a package that can be imported.

They import two modules that the source distribution leaves out, and a table that a third one
holds; stand-ins for these are entered beside them, and no file of theirs is touched.

Of what lies beside them, the tests of pipelines want models from the Hub, those of tensor
parallelism and FSDP want plans that our configs do not have, and the clearing of memory between
tests concerns GPUs: these are left out.
"""

import importlib
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import transformers

PACKAGE = "transformers_suite"

# What every config of Transformers takes, each at a value that is not its default.
COMMON_FIELDS: dict[str, Any] = {
    "return_dict": False,
    "output_hidden_states": True,
    "dtype": "float16",
    "architectures": ["SomeModel"],
    "id2label": {0: "no", 1: "yes", 2: "perhaps"},
    "label2id": {"no": 0, "yes": 1, "perhaps": 2},
    "problem_type": "regression",
    "bos_token_id": 7,
    "pad_token_id": 8,
    "eos_token_id": 9,
}


class Field(NamedTuple):
    """What is taken from Transformers' tests."""

    models: Any
    """the mixin of tests of models"""
    configs: Any
    """the tester of configs"""
    training: Any
    """the mixin that trains a model on one batch"""


def _module(name: str, **contents: Any) -> None:
    made = types.ModuleType(f"{PACKAGE}.{name}")
    made.__dict__.update(contents)
    if not contents:
        made.__path__ = []
    sys.modules[made.__name__] = made


def _coarser_norms(config: Any) -> None:
    config.get_text_config().norm_eps = 1.0


def _set_rope(config: Any, parameters: dict[str, Any]) -> None:
    # That field belongs to other types than those that are given here.
    known = {k: v for k, v in parameters.items() if k != "original_max_position_embeddings"}
    config.get_text_config().rope_parameters = known


def load_field(tests: Path) -> Field:
    """Import the common tests.

    Args:
        tests: the folder of them.
    """
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(tests)]
    sys.modules[PACKAGE] = package
    for folder in ("exporters", "generation", "utils"):
        _module(folder)
    _module("exporters.test_export", ExportTesterMixin=type("ExportTesterMixin", (), {}))
    _module("generation.test_utils", GenerationTesterMixin=type("GenerationTesterMixin", (), {}))
    _module("utils.test_configuration_utils", config_common_kwargs=COMMON_FIELDS)
    # The tests of configs would import Transformers once more, from the folder they lie in.
    with mock.patch("transformers.utils.direct_transformers_import", return_value=transformers):
        configs = importlib.import_module(f"{PACKAGE}.test_configuration_common")
    models = importlib.import_module(f"{PACKAGE}.test_modeling_common")
    # They set whatever such a field is called anywhere; our configs refuse what is no field.
    models.set_config_for_less_flaky_test = _coarser_norms
    models._set_config_rope_params = _set_rope
    models.global_rng.seed(0)
    training = importlib.import_module(f"{PACKAGE}.test_training_mixin")
    return Field(models.ModelTesterMixin, configs.ConfigTester, training.TrainingTesterMixin)
