"""Recipe arguments: YAML files, the command line over them, and mistakes in both."""

import dataclasses
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainingArguments

from hf_linear_attn.training.arguments import (
    DataArguments,
    MaskingArguments,
    ModelArguments,
    RecipeParser,
    parse_overrides,
)
from hf_linear_attn.training.yaml_files import parse_yaml, write_yaml

ALL = (ModelArguments, DataArguments, MaskingArguments, TrainingArguments)


@pytest.fixture
def yaml_file(tmp_path):
    def write(text: str, name: str = "recipe.yaml") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def parse(*argv: str, **kwargs: Any) -> tuple[Any, ...]:
    return RecipeParser(ALL).parse_recipe(list(argv), **kwargs)


def test_later_file_over_earlier_and_command_line_over_both(yaml_file):
    one = yaml_file("learning_rate: 0.1\nblock_size: 16\nmasking: word\nseed: 1\n", "one.yaml")
    two = yaml_file("block_size: 32\nseed: 2\n", "two.yaml")
    for flags in (["--config", one, two], ["--config", one, f"--config={two}"]):
        _, data, masking, training = parse(*flags, "--seed", "3")
        assert (training.learning_rate, data.block_size, masking.masking) == (0.1, 32, "word")
        assert training.seed == 3
        assert parse("--seed=3", *flags)[3].seed == 3


def test_default_config_is_read_only_without_config(yaml_file):
    default = Path(yaml_file("block_size: 24\nseed: 7\n", "default.yaml"))
    other = yaml_file("seed: 8\n", "other.yaml")
    _, data, _, training = parse("--seed", "9", default_config=default)
    assert (data.block_size, training.seed) == (24, 9)
    _, data, _, training = parse("--config", other, default_config=default)
    assert (data.block_size, training.seed) == (512, 8)


def test_mappings_are_merged_key_by_key(yaml_file):
    one = yaml_file("model: {hidden_size: 64, num_hidden_layers: 2}\n", "one.yaml")
    two = yaml_file("model: {num_hidden_layers: 3}\n", "two.yaml")
    model = parse("--config", one, two, "--model", '{"norm_eps": 1e-6}')[0].model
    assert model == {"hidden_size": 64, "num_hidden_layers": 3, "norm_eps": 1e-6}
    assert isinstance(model["norm_eps"], float)


def test_yaml_values_become_the_type_of_the_field(yaml_file):
    path = yaml_file(
        "learning_rate: 1e-4\nmax_steps: 1e3\nwarmup_steps: 0.06\ntrain_file: a.txt\n"
        "eval_strategy: no\nlr_scheduler_type: cosine\nreport_to: [tensorboard]\ntf32: null\n"
        "lr_scheduler_kwargs: {min_lr: 1e-5}\ninclude_num_input_tokens_seen: true\n"
        "model: {initializer_range: 2e-2}\n"
    )
    model, data, _, training = parse("--config", path)
    assert training.learning_rate == 1e-4
    assert training.max_steps == 1000
    assert isinstance(training.max_steps, int)
    assert training.warmup_steps == 0.06
    assert data.train_file == ["a.txt"]
    assert training.eval_strategy == "no"
    assert training.lr_scheduler_type == "cosine"
    assert training.report_to == ["tensorboard"]
    assert training.lr_scheduler_kwargs == {"min_lr": 1e-5}
    assert model.model == {"initializer_range": 0.02}


@pytest.mark.parametrize(
    ("name", "yaml_value", "text", "value"),
    [
        ("learning_rate", "3e-4", "3e-4", 3e-4),
        ("max_steps", "7", "7", 7),
        ("bf16", "false", "false", False),
        ("run_name", "'5'", "5", "5"),
        ("report_to", "none", "none", []),
        ("optim_target_modules", "all-linear", "all-linear", "all-linear"),
        ("lr_scheduler_kwargs", "{a: 1}", '{"a": 1}', {"a": 1}),
        ("label_names", "[labels]", "labels", ["labels"]),
        ("save_total_limit", "null", "null", None),
        ("trackio_static_space_id", "false", "false", False),
        ("liger_kernel_config", "{rope: true}", '{"rope": true}', {"rope": True}),
        ("eval_strategy", "steps", "steps", "steps"),
    ],
)
def test_training_arguments_can_be_set_both_ways(yaml_file, name, yaml_value, text, value):
    extra = ["--eval_steps", "5"]
    by_file = parse("--config", yaml_file(f"{name}: {yaml_value}\n"), *extra)[3]
    by_line = parse(f"--{name}", text, *extra)[3]
    assert getattr(by_file, name) == value
    assert getattr(by_line, name) == value


@pytest.mark.parametrize("name", ["do_train", "do_eval"])
def test_a_recipe_trains_and_evaluates_whatever_is_said(yaml_file, name):
    assert getattr(parse()[-1], name)
    file = yaml_file(f"{name}: false\n")
    for argv in (["--config", file], [f"--{name}", "false"]):
        with pytest.raises(ValueError, match=f"{name}: got False, and a recipe always trains"):
            parse(*argv)
    assert getattr(parse("--config", file, f"--{name}")[-1], name)


def test_every_default_survives_a_round_trip_through_yaml(yaml_file):
    import yaml

    fields = {}
    for kind in ALL:
        for field in dataclasses.fields(kind):
            value = field.default
            if field.init and value is not dataclasses.MISSING:
                fields[field.name] = getattr(value, "value", value)
    done = {"do_train": True, "do_eval": True}  # what every recipe does
    parsed = parse("--config", yaml_file(yaml.safe_dump(fields | done)))
    plain = [*(kind() for kind in ALL[:-1]), ALL[-1](**done)]
    for one, other in zip(parsed, plain, strict=True):
        ours, theirs = dataclasses.asdict(one), dataclasses.asdict(other)
        assert ours == theirs


def test_lists_and_switches_on_the_command_line():
    _, data, _, training = parse(
        "--train-file", "a", "b", "--eval_on_start", "--no_skip_memory_metrics"
    )
    assert data.train_file == ["a", "b"]
    assert training.eval_on_start is True
    assert training.skip_memory_metrics is False


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--learnin_rate", "1"], "unknown argument '--learnin_rate'; did you mean '--learning_ra"),
        (["--learn", "1"], "unknown argument '--learn'"),
        (["text.txt"], "unexpected argument 'text.txt'"),
        (["--learning_rate", "fast"], "--learning_rate: got 'fast', expected a number"),
        (["--max_steps", "1.5"], "--max_steps: got '1.5', expected a whole number"),
        (["--bf16", "maybe"], "--bf16: got 'maybe', expected true or false"),
        (["--masking", "words"], "expected one of token, word, span; did you mean 'word'"),
        (["--lr_scheduler_type", "lineer"], "did you mean 'linear'"),
        (["--block_size", "7"], "block_size: got 7, expected 8 or more"),
        (["--mlm_probability", "0"], "mlm_probability: got 0.0, expected a number above 0"),
        (["--eval_mlm_probability", "1.1"], "eval_mlm_probability: got 1.1"),
        (["--validation_fraction", "1"], "validation_fraction: got 1.0"),
        (["--mask_replace_prob", "0.95"], "expected a sum of at most 1"),
        (["--span_length", "nan"], "span_length: got nan"),
        (["--max_eval_examples", "0"], "max_eval_examples: got 0"),
        (["--seed"], "--seed: expected one argument"),
        (["--config", "nowhere.yaml"], "'nowhere.yaml' does not exist"),
        (["--model", "{a: 1, a: 2}"], "'a' is given more than once"),
    ],
)
def test_mistakes_on_the_command_line(argv, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        parse(*argv)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learnin_rate: 1", "unknown key 'learnin_rate'; did you mean 'learning_rate'"),
        ("seed: 1\nblock_size: large\n", "block_size: got 'large', expected a whole number"),
        ("bf16: 'true'", "bf16: got 'true', expected true or false"),
        ("seed: null", "seed: got None, expected a whole number"),
        ("seed: true", "seed: got True, expected a whole number"),
        ("text_column: 1.10", "text_column: got 1.1, expected text; put it in quotes"),
        ("remainder: fill", "expected one of drop, pad, keep"),
        ("train_file: [1]", "train_file: got [1]"),
        ("model: [1]", "model: got [1], expected a mapping or null"),
        ("seed: 1\nseed: 2\n", "line 2: not readable as YAML: 'seed' is given more than once"),
        ("a: [1\n", "not readable as YAML"),
        ("- 1\n", "expected `field: value` lines"),
        ("seed: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        ("parallelism_config: {tp_sise: 2}", "did you mean 'tp_size'"),
    ],
)
def test_mistakes_in_a_file_name_the_file(yaml_file, text, message):
    path = yaml_file(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        parse("--config", path)
    assert "recipe.yaml" in str(caught.value)


def test_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read"):
        parse("--config", str(path))
    with pytest.raises(ValueError, match="cannot be read"):
        parse("--config", str(tmp_path))


def test_an_empty_file_changes_nothing(yaml_file):
    assert parse("--config", yaml_file("# nothing\n"))[1] == DataArguments()


def test_help_explains_every_field_of_ours(capsys):
    with pytest.raises(SystemExit) as caught:
        parse("--help", default_config=Path("tiny.yaml"))
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "accelerate launch" in shown
    assert "--config FILE… --any_field value" in shown
    assert "Without --config, tiny.yaml is read." in shown
    for kind in ALL[:-1]:
        for field in dataclasses.fields(kind):
            assert f"--{field.name}" in shown
            assert " ".join(field.metadata["help"].split()) in shown
    assert "(default: 0.05)" in shown


def test_a_field_without_default_is_asked_for():
    @dataclass
    class Needs:
        number: int

    assert RecipeParser(Needs).parse_recipe(["--number", "3"]) == (Needs(3),)
    with pytest.raises(ValueError, match="--number is required"):
        RecipeParser(Needs).parse_recipe([])


def test_choices_are_also_checked_in_python():
    with pytest.raises(ValueError, match="did you mean 'blocks'"):
        DataArguments(data_format="block")
    with pytest.raises(ValueError, match="expected one of token, word, span"):
        MaskingArguments(masking="all")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": 1}),
        ("a=1e-4, b = yes ,c=null,d=x", {"a": 1e-4, "b": True, "c": None, "d": "x"}),
        ("layers=[cosformer, softmax],n=2", {"layers": ["cosformer", "softmax"], "n": 2}),
        ("k={a: {chunk: 4}, b: 2},n=2", {"k": {"a": {"chunk": 4}, "b": 2}, "n": 2}),
        ("s='x, y',t=\"a]b\"", {"s": "x, y", "t": "a]b"}),
        ("s=['a, b', c],n=don't", {"s": ["a, b", "c"], "n": "don't"}),
        ("a=b=c", {"a": "b=c"}),
    ],
)
def test_overrides(text, expected):
    assert parse_overrides(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden", "expected field=value"),
        ("a=1,,b=2", "expected field=value"),
        ("a=1,", "expected field=value"),
        ("a-b=1", "expected field=value"),
        ("a=", "write a=null"),
        ("a=1,a=2", "'a' is given more than once"),
        ("a=[1,2", "']' is missing"),
        ("a='x", '"\'" is missing'),
        ("a=[1}]", "not readable as YAML"),
    ],
)
def test_mistakes_in_overrides(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_overrides(text)


_LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("written", "read"),
    [("1:30", 90), ("010", 8), ("-0_7", -7), ("1:30.5", 90.5), ("[1, 00]", 0)],
)
def test_a_number_that_is_read_in_two_ways_is_refused(written, read):
    with pytest.raises(ValueError, match=rf"file, line 1: .* would be {read}; write that"):
        parse_yaml(f"seed: {written}", "file")


@pytest.mark.parametrize(
    ("written", "read"),
    [("0", 0), ("-0", 0), ("0.10", 0.1), ("00.5", 0.5), ("0x1f", 31), ("1_000", 1000),
     ("08", "08"), ("'010'", "010"), ("1e-3", 1e-3), ("a:b", "a:b"), ("09:30 am", "09:30 am"),
     (".inf", math.inf)],
)  # fmt: skip
def test_other_numbers_are_read_as_they_stand(written, read):
    assert parse_yaml(f"seed: {written}", "file") == {"seed": read}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_LAUGHS, "line 6: not readable as YAML: it unfolds to more than 100,000 values"),
        ("model: &m {hidden_size: *m}", "unfolds to more than 100,000 values"),
        ("train_file: &f [a, *f]", "unfolds to more than 100,000 values"),
        ("seed: " + "[" * 2000, "nested too deeply"),
        ("run_name: 2024-13-01", "month must be in 1..12"),
        ("seed: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("1: 2", "expected the name of a field, got the key 1"),
        ("model: {1: 2}", "model: got the key 1, expected the name of a field"),
        ('run_name: "a\\0b"', "run_name: got .* expected text without a NUL"),
    ],
    ids=range(9),
)
def test_hostile_yaml_is_one_value_error(yaml_file, text, message):
    path = yaml_file(text)
    with pytest.raises(ValueError, match=message):
        parse("--config", path)


def test_aliases_that_unfold_to_little_are_read(yaml_file):
    path = yaml_file("train_file: &f [a.txt, b.txt]\nvalidation_file: *f\n")
    data = parse("--config", path)[1]
    assert data.train_file == data.validation_file == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("!!bool maybe", "'maybe' cannot be read as !!bool"),
        ("!!timestamp foo", "'foo' cannot be read as !!timestamp"),
        ("!!int ''", "'' cannot be read as !!int"),
        ("!!float ''", "'' cannot be read as !!float"),
        ("!!float much", "'much' cannot be read as !!float: could not convert"),
        ("!!set [a, b]", "a sequence cannot be read as !!set"),
        ("!!map [1, 2]", "a sequence cannot be read as !!map"),
        ("!!map text", "'text' cannot be read as !!map"),
        ("{!!bool maybe: 1}", "'maybe' cannot be read as !!bool"),
        ("2024-13-01", "'2024-13-01' cannot be read as !!timestamp: month"),
        ('"\\UFFFFFFFF"', "Python int too large"),
        ('"\\U00110000"', r"chr\(\) arg not in range"),
    ],
)
def test_a_value_that_is_not_what_its_tag_says_is_refused_with_its_place(value, problem):
    with pytest.raises(ValueError, match=f"^here, line 2: not readable as YAML: {problem}"):
        parse_yaml(f"a: 1\nb: {value}\n", "here")


def refusal(text):
    try:
        parse_yaml(text, "here")
    except ValueError as error:
        return str(error)
    return None


TAGS = ("bool", "int", "float", "null", "str", "timestamp", "binary", "set", "map", "seq", "omap",
        "pairs", "merge", "value")  # fmt: skip


@pytest.mark.parametrize("tag", TAGS)
def test_no_tag_over_any_value_is_anything_but_read_or_refused(tag):
    values = ("word", "''", "'-'", "'.'", "'0x'", "'1:2:x'", "'='", "<<", "9" * 5000, "2024-02-30",
              "2001-12-14t21:59:43.10+99:99", "[a, b]", "[[1, 2]]", "[{a: 1}]", "{a: 1}",
              "&x [*x]", "&x {a: *x}")  # fmt: skip
    answers = [refusal(f"a: 1\nb: !!{tag} {value}\n") for value in values]
    start = "here, line 2: not readable as YAML: "
    assert [a for a in answers if a is not None and not a.startswith(start)] == []


def test_what_is_written_is_read_back_equal():
    values = {"a": "1e-4", "b": 1e-4, "c": "2E5", "d": ["1e3", 1000.0], "e": "café", "f": None}
    assert parse_yaml(write_yaml(values), "here") == values


def test_a_whole_number_keeps_all_its_digits():
    data = parse("--max_train_examples", str(10**30 + 1))[1]
    assert data.max_train_examples == 10**30 + 1


@pytest.mark.parametrize("number", [1025, 10**9])
def test_processes_that_no_machine_could_start_are_refused(number):
    with pytest.raises(ValueError, match=f"preprocessing_num_workers: got {number}, expected 1024"):
        parse("--preprocessing_num_workers", str(number))
