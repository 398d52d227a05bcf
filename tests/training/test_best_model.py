"""With load_best_model_at_end, what is reported belongs to the weights that are left."""

import pytest

from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.training.tiny_run import make_trainer


def test_the_final_evaluation_is_that_of_the_best_weights(tmp_path):
    tokenizer = load_or_train_tokenizer(None, ["some text"], 261, 64)
    cadence = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    trainer = make_trainer(
        tmp_path,
        tokenizer,
        max_steps=4,
        # So large that the first steps are better than the last.
        learning_rate=1.0,
        lr_scheduler_type="constant",
        load_best_model_at_end=True,
        **cadence,
    )
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert min(losses) < losses[-1]
    assert trainer.final_evaluation()["eval_loss"] == pytest.approx(min(losses), rel=1e-6)
