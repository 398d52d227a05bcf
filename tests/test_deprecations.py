"""What Transformers is going to take away is noticed, whoever shows the warning."""

import logging
import warnings

import pytest
import torch
from transformers import AutoModelForCausalLM, TrainingArguments
from transformers.utils.logging import warning_once

import hf_linear_attn as hla
from tests import deprecations, processes
from tests.conftest import TINY


def model():
    return hla.CosformerForCausalLM(hla.CosformerConfig(**TINY))


def a_warning():
    model().gradient_checkpointing_enable()


def a_warning_in_the_name_of_pytorch():
    ids = torch.ones(1, 3, dtype=torch.long)
    found = model().eval()
    found(ids, past_key_values=found(ids).cache)


def a_line_of_a_logger():
    warning_once.cache_clear()
    config = hla.CosformerConfig(**TINY)
    AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32)


KINDS = [a_warning, a_warning_in_the_name_of_pytorch, a_line_of_a_logger]


@pytest.mark.parametrize("deprecated", KINDS)
def test_it_is_noticed(deprecated):
    deprecated()
    with pytest.raises(AssertionError, match=f"(?s)by Transformers.*in {deprecated.__name__}"):
        deprecations.fail()
    deprecations.fail()


@pytest.mark.slow
def test_it_is_noticed_in_a_process_of_a_test(tmp_path):
    with pytest.raises(AssertionError, match="deprecated by Transformers"):
        processes.run(a_warning, folder=tmp_path)


def test_what_others_take_away_and_what_is_expected_stay_as_they_are():
    warnings.warn("`z` is deprecated and will be removed in v6.", FutureWarning, stacklevel=1)
    logging.getLogger("transformers.trainer").warning("the learning rate is 0")
    with pytest.warns(FutureWarning, match="activation_checkpointing_enable"):
        a_warning()
    deprecations.fail()


def test_what_a_user_asks_for_by_its_old_name_is_the_user_s():
    with deprecations.asked_for_by_name(["gradient_checkpointing"]):
        TrainingArguments("unused", gradient_checkpointing=True)
    deprecations.fail()
    with deprecations.asked_for_by_name(["gradient_checkpointing"]):
        TrainingArguments("unused", gradient_checkpointing_kwargs={"use_reentrant": False})
    with pytest.raises(AssertionError, match="by Transformers"):
        deprecations.fail()


def test_what_a_program_wrote_is_read():
    lines = [
        "[transformers] `torch_dtype` is deprecated! Use `dtype` instead!",
        "/x/site-packages/transformers/trainer.py:1: FutureWarning: `x` will be removed in v6.",
        "[transformers] a new tokenizer",
        "/x/site-packages/torch/jit.py:1: DeprecationWarning: `y` is deprecated",
    ]
    assert deprecations.written("\n".join(lines)) == lines[:2]
