"""Test cases: Transformers' common tests, one case for each subject."""

import json
import unittest
from typing import Any

from transformers import set_seed

from tests.suite.field import Field
from tests.suite.subjects import LraTester, Subject, tester_of

TRAINED = ("ForCausalLM", "ForMaskedLM")


def build_case(field: Field, subject: Subject) -> type[unittest.TestCase]:
    """The common tests for one subject.

    Args:
        field: of `load_field`.
        subject: whose tests they are; the case has its name.
    """
    bases = [field.models]
    if subject.model_class.__name__.endswith(TRAINED):
        bases.append(field.training)

    class Case(*bases, unittest.TestCase):
        all_model_classes = (subject.model_class,)
        # Off by default for the sake of old models, which are told by the year above their code.
        test_can_init_all_missing_weights_before_2023 = True
        # Off by default, too; tests of it would be skipped in silence.
        test_resize_position_embeddings = True
        model_tester: Any = None

        def setUp(self):
            set_seed(0)
            rotated = "rope" in self._testMethodName
            self.model_tester = tester_of(subject, rotated=rotated)
            # What is said of models of one config holds for those with a config in it, too.
            of_parts = bool(subject.model_class.config_class.sub_configs)
            self._is_composite = of_parts and "non_composite" not in self._testMethodName

        def test_config(self):
            config = self.model_tester.get_config()
            given = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2}
            if isinstance(self.model_tester, LraTester):
                given = {"trunk": json.loads(config.to_json_string())["trunk"]}
            field.configs(self, config_class=type(config), **given).run_common_tests()

    Case.__name__ = Case.__qualname__ = subject.name
    return Case


def tests_of(case: type[unittest.TestCase]) -> list[unittest.TestCase]:
    """Every test of a case."""
    names = unittest.TestLoader().getTestCaseNames(case)
    return [case(name) for name in names]
