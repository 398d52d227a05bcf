"""What Transformers refuses in its own words, or by failing, is refused by the name of a field."""

import re

import pytest
from transformers import TrainingArguments

from hf_linear_attn.training.arguments import DataArguments, ModelArguments
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_checks import check_training_arguments


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--accelerator_config", '{"0": 0}'], "accelerator_config: "),
        (["--accelerator_config", "nowhere.json"], "accelerator_config: "),
        (["--bf16_full_eval"], "bf16_full_eval: Your setup"),
        (["--seed", "1", "--logging_steps", "inf"], "logging_steps: cannot convert"),
    ],
)
def test_the_field_is_named(argv, message):
    parser = RecipeParser((ModelArguments, DataArguments, TrainingArguments))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parser.parse_recipe(["--block_size", "16", *argv])


def test_no_reporter_at_all_is_a_reporter_of_no_name():
    (args,) = RecipeParser(TrainingArguments).parse_recipe(["--report_to", "null", "--use_cpu"])
    with pytest.raises(ValueError, match="report_to: got None, expected"):
        check_training_arguments(args)


def test_fields_that_only_fail_together_are_named_together():
    parser = RecipeParser((ModelArguments, DataArguments, TrainingArguments))
    with pytest.raises(ValueError, match="fp16 and bf16"):
        parser.parse_recipe(["--use_cpu", "--fp16", "--bf16"])
