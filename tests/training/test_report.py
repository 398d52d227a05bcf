"""The end of a run: table, filled mask, commands that can be copied, facts for the card."""

import io
import shlex
from pathlib import Path

import pytest
import torch
from rich.console import Console
from transformers import TrainingArguments

import hf_linear_attn as hla
from hf_linear_attn.training.arguments import DataArguments, MaskingArguments, ModelArguments
from hf_linear_attn.training.card_facts import card_facts, data_source
from hf_linear_attn.training.fill_mask import FilledMask, fill_one_mask
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.metrics import Unigram
from hf_linear_attn.training.report import (
    MASKED_LM,
    RunResults,
    evaluation_before_training,
    filled_mask_lines,
    next_commands,
    result_rows,
    show_report,
)
from hf_linear_attn.training.run_checks import check_training_arguments, longer_run
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer

RESULTS = RunResults(
    before={"eval_loss": 5.5, "eval_perplexity": 244.69, "eval_masked_accuracy": 0.01, "step": 0},
    after={"eval_loss": 2.9, "eval_perplexity": 18.17, "eval_masked_accuracy": 0.25, "step": 60},
    unigram=Unigram(loss=3.3, accuracy=0.15, tokens=9000),
    attention="cosformer",
    parameters=451_589,
    steps=60,
    tokens_per_second=23_076.4,
)
EXAMPLE = FilledMask("The [<mask>] of it.", "end", [("end", 0.5), (" ]", 0.25)])


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 64)


def make_model(**fields):
    torch.manual_seed(0)
    return hla.CosformerForMaskedLM(
        hla.CosformerConfig(
            vocab_size=261,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=32,
            **fields,
        )
    )


def printed(width: int = 80, commands=()) -> str:
    stream = io.StringIO()
    lines = filled_mask_lines(EXAMPLE)
    show_report(Console(file=stream, width=width), RESULTS, lines, commands, Path("runs/x"))
    return stream.getvalue()


def test_the_evaluation_before_training_is_that_of_step_zero():
    history = [{"eval_loss": 5.0, "step": 0}, {"loss": 4.0, "step": 1}, {"eval_loss": 3, "step": 1}]
    assert evaluation_before_training(history) == history[0]
    assert evaluation_before_training(history[1:]) is None


def test_rows_hold_before_after_and_unigram():
    assert result_rows(RESULTS) == [
        ["evaluation loss (nats)", "5.5000", "2.9000", "3.3000"],
        ["perplexity", "244.7", "18.17", "27.11"],
        ["masked accuracy", "1.00%", "25.00%", "15.00%"],
    ]


def test_the_report_says_everything_and_wraps_no_command():
    command = "accelerate launch " + "x" * 200
    text = printed(commands=[("go on", command)])
    for part in (
        "5.5000",
        "2.9000",
        "3.3000",
        "cosformer",
        "451,589",
        "23,076 tokens/s",
        "60 steps",
    ):
        assert part in text
    assert "The [<mask>] of it." in text
    assert "masked was 'end'; guesses: 'end' 50.0%, ' ]' 25.0%" in text
    assert command in text.splitlines()


def test_commands_name_the_run_file_and_can_be_parsed_by_a_shell():
    commands = dict(
        next_commands(
            ["accelerate", "launch", "recipes/mlm.py"],
            Path("runs/my run"),
            MASKED_LM,
            longer=("max_steps", 1_200_000),
            other_attention="softmax",
        )
    )
    load, again, longer, other = (shlex.split(c) for c in commands.values())
    launch = ["accelerate", "launch", "recipes/mlm.py", "--config", "runs/my run/run.yaml"]
    assert load[:2] == ["python", "-c"]
    assert "model='runs/my run'" in load[2]
    assert again == launch
    assert longer == [*launch, "--max_steps", "1200000"]
    assert other == [*launch, "--attention", "softmax", "--output_dir", "runs/my run-softmax"]


def test_commands_that_would_not_work_are_left_out():
    commands = next_commands(["x"], Path("x"), MASKED_LM, longer=None, other_attention=None)
    assert [purpose for purpose, _ in commands] == ["load the model in Python"]


def test_the_loading_command_works(tmp_path, tokenizer, capsys):
    make_model().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ((_, command),) = next_commands(["x"], tmp_path, MASKED_LM, longer=None, other_attention=None)
    _, _, code = shlex.split(command)
    exec(code, {})
    assert capsys.readouterr().out.count("token_str") == 5


def test_the_middle_token_of_the_first_sentence_that_fits_is_masked(tokenizer):
    model = make_model()
    texts = ["", "Too short. This sentence is by far too long to fit. One two three four five six."]
    filled = fill_one_mask(model, tokenizer, texts, max_length=32)
    # 29 letters; the fifteenth is masked.
    assert filled.sentence.replace("<mask>", "?") == "One two three ?our five six."
    assert filled.truth == "f"
    assert len(filled.guesses) == 5
    probabilities = [p for _, p in filled.guesses]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 < sum(probabilities) <= 1


def test_white_space_is_not_masked(tokenizer):
    filled = fill_one_mask(make_model(), tokenizer, ["abcd efgh"], max_length=12)
    assert filled.sentence.replace("<mask>", "?") == "abcd ?fgh"
    assert filled.truth == "e"


def test_the_guesses_are_the_models(tokenizer):
    model = make_model(lm_head_transform=False)
    with torch.no_grad():
        model.lm_head.bias[ord("~")] = 0
        model.lm_head.bias[tokenizer.convert_tokens_to_ids("z")] = 50
    filled = fill_one_mask(model, tokenizer, ["one two three four fi"], max_length=32)
    assert filled.guesses[0] == ("z", pytest.approx(1.0))


def test_a_long_sentence_is_cut_and_white_space_refused(tokenizer):
    filled = fill_one_mask(make_model(), tokenizer, ["word " * 50], max_length=20)
    assert len(filled.sentence) < 30
    with pytest.raises(ValueError, match="nothing but white space"):
        fill_one_mask(make_model(), tokenizer, [" \n "], max_length=20)


def test_the_facts_of_the_card_name_no_folders(tmp_path):
    args = TrainingArguments(output_dir=str(tmp_path / "run"), learning_rate=1e-3, use_cpu=True)
    files = DataArguments(train_file=[str(tmp_path / "a.txt")])
    masking = MaskingArguments(mlm_probability=0.2)
    arguments = MaskedLMArguments(ModelArguments(), files, masking, args)
    facts = card_facts(make_model(), arguments, RESULTS, "train: 3\nval: 1", "x")
    assert facts.data == ["Text files: a.txt.", "train: 3", "val: 1"]
    assert facts.hyper_parameters["learning_rate"] == "0.001"
    assert facts.hyper_parameters["mlm_probability"] == 0.2
    assert facts.hyper_parameters["eval_mlm_probability"] == 0.2
    assert facts.hyper_parameters["mask / random / kept"] == "0.8 / 0.1 / 0.1"
    assert facts.model_facts["layer_attention"] == "cosformer"
    assert facts.model_facts["hidden_size"] == "16"
    assert facts.model_type == "cosformer"
    assert facts.name == "run"
    assert facts.results.rows == result_rows(RESULTS)


def test_the_source_of_the_data_is_named(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    assert "embedded corpus" in data_source(DataArguments())
    assert data_source(DataArguments(dataset_name=str(folder))) == "Data set set."
    hub = DataArguments(dataset_name="user/set", dataset_config_name="v1")
    assert data_source(hub) == "Data set user/set, configuration v1."


@pytest.mark.parametrize(
    ("arguments", "data", "message"),
    [
        ({"max_steps": 0}, {}, "max_steps is a positive number"),
        ({"max_steps": -7}, {}, "max_steps is a positive number"),
        ({"num_train_epochs": 0}, {}, "num_train_epochs is positive, .* at most; got 0"),
        ({}, {"streaming": True}, "streaming needs max_steps"),
        ({"resume_from_checkpoint": "x"}, {}, "resume_from_checkpoint is not needed"),
        ({"do_predict": True}, {}, "do_predict: there is no test set"),
    ],
)
def test_arguments_that_cannot_be_honoured_are_refused(tmp_path, arguments, data, message):
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **arguments)
    with pytest.raises(ValueError, match=message):
        check_training_arguments(args, **data)


def test_a_longer_run_is_twice_as_long(tmp_path):
    def of(**arguments):
        return longer_run(TrainingArguments(str(tmp_path), use_cpu=True, **arguments))

    assert of(max_steps=60) == ("max_steps", 120)
    assert of(num_train_epochs=1.5) == ("num_train_epochs", 3.0)
    assert of(save_strategy="no") is None
    assert not list(Path(tmp_path).iterdir())
