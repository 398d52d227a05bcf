"""Any YAML file and command line of a recipe: arguments that come back, or one clear ValueError."""

import contextlib
import os
import tempfile
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from hf_linear_attn.training.casting import cast_text, cast_value
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.suite import read_runs
from hf_linear_attn.training.run_checks import check_training_arguments, parse_arguments
from hf_linear_attn.training.run_folder import _plain, resolve_arguments
from hf_linear_attn.training.yaml_files import parse_overrides
from tests.deprecations import asked_for_by_name
from tests.properties.choices import evenly
from tests.properties.examples import examples
from tests.properties.recipe_cases import RECIPES, TEXT, as_words, parser_of, settings_of

LRA_CONFIGS = Path(__file__).parents[2] / "recipes" / "configs" / "lra"
ANY_RECIPE = evenly(RECIPES)
# What Transformers writes in another form, or over by itself.
REWRITTEN = {
    "accelerator_config", "debug", "disable_tqdm", "do_eval", "gradient_checkpointing",
    "gradient_checkpointing_kwargs", "greater_is_better", "hub_token",
    "include_num_input_tokens_seen", "metric_for_best_model", "output_dir", "report_to",
    "eval_steps", "torch_compile", "dataloader_pin_memory", "local_rank",
    "activation_checkpointing", "activation_checkpointing_kwargs", "resume_from_checkpoint",
    "torch_compile_backend",
}  # fmt: skip


@contextlib.contextmanager
def same_environment(names):
    """Transformers puts settings there, and says which of the names given it will not know soon."""
    before = dict(os.environ)
    try:
        with asked_for_by_name(names):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def parse(recipe, argv):
    """The arguments, and the training arguments looked at as a run does."""
    args = RECIPES[recipe](*parse_arguments(parser_of(recipe), argv, None))
    check_training_arguments(args.training)
    return args


def check_refusal(error, names):
    message = str(error)
    assert message, "a refusal says why"
    assert any(name in message for name in names), f"{message!r} names none of {sorted(names)}"


def check_arguments(recipe, args, expected):
    """Nothing was left out, and the whole comes back from the file that a run keeps.

    Args:
        recipe: its name.
        args: what was parsed.
        expected: what the fields that were given have to be.
    """
    resolved = resolve_arguments(*args)
    for name, value in expected.items():
        if name not in REWRITTEN:
            assert same(resolved[name], _plain(value)), f"{name}: {resolved[name]!r} for {value!r}"
    with tempfile.TemporaryDirectory() as folder:
        again = parse(recipe, ["--config", written(folder, resolved)])
    for name, value in resolve_arguments(*again).items():
        assert same(value, resolved[name]), f"{name}: {value!r} after {resolved[name]!r}"


def same(one, other):
    """Equal; a NaN to itself."""
    return one == other or repr(one) == repr(other)


class Quoting(yaml.SafeDumper):
    """Writes every text in quotes: PyYAML leaves 1e+30 bare, which our files read as a number."""


Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


class QuotingOnce(yaml.SafeDumper):
    """Writes every text in single quotes, which no backslash changes."""


QuotingOnce.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'")
)


def written(folder, values):
    path = Path(folder) / "settings.yaml"
    path.write_text(yaml.dump(values, Dumper=Quoting, allow_unicode=True), encoding="utf-8")
    return str(path)


def check(recipe, argv, names, expected):
    """Taken whole, or refused by a name.

    Args:
        recipe: its name.
        argv: the command line.
        names: what a refusal may name.
        expected: gives what the fields that were given have to be, once they are known to be good.
    """
    with same_environment(names):
        try:
            args = parse(recipe, argv)
        except ValueError as error:
            return check_refusal(error, names)
        check_arguments(recipe, args, expected(parser_of(recipe)._hints))


@examples(400)
@given(data=st.data(), recipe=ANY_RECIPE)
def test_a_file_is_taken_whole_or_refused(data, recipe):
    settings = data.draw(settings_of(recipe))

    def expected(hints):
        return {name: cast_value(value, hints[name]) for name, value in settings.items()}

    with tempfile.TemporaryDirectory() as folder:
        check(recipe, ["--config", written(folder, settings)], settings, expected)


@examples(300)
@given(data=st.data(), recipe=ANY_RECIPE)
def test_a_command_line_is_taken_whole_or_refused(data, recipe):
    argv, words = [], {}
    for name, value in data.draw(settings_of(recipe)).items():
        said = as_words(value)
        field = name.replace("-", "_")
        if said is not None and " " not in name and field not in words:
            words[field] = said
            shown = name.replace("_", "-") if data.draw(st.booleans()) else name
            joined = len(said) == 1 and data.draw(st.booleans())
            argv += [f"--{shown}={said[0]}"] if joined else [f"--{shown}", *said]
    stray = data.draw(st.sampled_from([None, None, None, "--no_such_field", "-q"]))
    argv += [stray] if stray else []

    def expected(hints):
        assert stray is None, f"{stray} was passed over"
        return {name: cast_text(said, hints[name]) for name, said in words.items()}

    # A word that belongs to no flag is named itself.
    names = [*words, *(name.replace("_", "-") for name in words), *argv]
    check(recipe, argv, names, expected)


@examples(100)
@given(
    settings=settings_of("lra"),
    task=st.sampled_from(["all", "listops", "image", "text", "imag", None]),
    preset=st.sampled_from(["official", "nystromformer", "lra", None]),
)
def test_long_range_arena_s_runs_are_whole_or_refused(settings, task, preset):
    """The preset's file lies under the file of a run, the command line over both."""
    argv = [f"--{n}={v}" for n, v in (("task", task), ("preset", preset)) if v is not None]
    settings = {n: v for n, v in settings.items() if n not in ("task", "preset", "suite")}
    with tempfile.TemporaryDirectory() as folder, same_environment(settings):
        try:
            runs, _ = read_runs(["--config", written(folder, settings), *argv], LRA_CONFIGS)
        except ValueError as error:
            return check_refusal(error, ["task", "preset", *settings])
        tasks = PRESETS[preset or "official"].tasks
        assert [run.lra.task for run in runs] == (
            list(tasks) if task == "all" else [task or "listops"]
        )
        hints = parser_of("lra")._hints
        for run in runs:
            resolved = resolve_arguments(*run)
            for name, value in settings.items():
                wanted = _plain(cast_value(value, hints[name]))
                if name not in REWRITTEN and not isinstance(wanted, dict):
                    assert same(resolved[name], wanted), name


@examples(200)
@given(text=st.one_of(TEXT, st.text("ab=,[]{}'\": 1-.e", max_size=20)))
def test_overrides_are_fields_and_values_or_refused(text):
    try:
        found = parse_overrides(text)
    except ValueError as error:
        return check_refusal(error, ["override", "missing"])
    assert all(name.isidentifier() for name in found)
    assert text.count("=") >= len(found)
    style = {"Dumper": QuotingOnce, "default_flow_style": True, "width": 10**6}
    again = ",".join(f"{k}={yaml.dump(v, **style).splitlines()[0]}" for k, v in found.items())
    assert repr(parse_overrides(again)) == repr(found)
