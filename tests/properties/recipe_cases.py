"""Random settings of the recipes: right and wrong names, right and wrong values."""

import functools
import json
import types
from enum import Enum
from typing import Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from hf_linear_attn.training.causal_lm_arguments import CausalLMArguments
from hf_linear_attn.training.glue.arguments import GlueArguments
from hf_linear_attn.training.lra.arguments import LraRunArguments
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.recipe_parser import RecipeParser
from tests.properties.choices import evenly

RECIPES = {
    "mlm": MaskedLMArguments,
    "clm": CausalLMArguments,
    "glue": GlueArguments,
    "lra": LraRunArguments,
}
# They would change the machine, the network or the process for all tests behind them.
UNTRIED = {"full_determinism", "push_to_hub", "tf32", "deepspeed", "ddp_backend", "config"}
# A document of YAML holds no other characters.
TEXT = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=9
)
WRONG = evenly(
    [-1, 0, 3, 1.5, -0.5, float("nan"), float("inf"), -float("inf"), 1e30, True, False, None, "",
     "no", "none", "all", "1e3", "{a: 1", "{", [], [1], ["a", "b"], [None], [[1]], {}, {"a": 1},
     {1: 2}, {"a": {"b": [None]}}]
)  # fmt: skip


@functools.cache
def parser_of(recipe):
    """The recipe's parser, which keeps nothing of what it has read."""
    return RecipeParser(tuple(RECIPES[recipe].__annotations__.values()))


def fitting(hint):
    """Values that a field with this annotation takes, or most of them."""
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of(*[fitting(option) for option in get_args(hint)])
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from([member.value for member in hint])
    kind = get_origin(hint) or hint
    simple = {
        bool: st.booleans(),
        int: st.integers(0, 64),
        float: st.floats(0, 4, width=16),
        str: TEXT,
        type(None): st.none(),
        list: st.lists(TEXT, min_size=1, max_size=3),
        dict: st.dictionaries(TEXT, st.integers(0, 9), max_size=2),
    }
    return simple.get(kind, st.none())


@st.composite
def settings_of(draw, recipe):
    """A mapping as a YAML file gives it: mostly fields of the recipe with values that fit."""
    hints = parser_of(recipe)._hints
    known = evenly(sorted(hints.keys() - UNTRIED))
    names = draw(st.lists(known, min_size=1, max_size=4, unique=True))
    settings = {}
    for name in names:
        if draw(st.integers(0, 11)) == 0:
            name = draw(st.sampled_from([name + "s", name.upper(), name.replace("_", "-"), "x y"]))
            settings[name] = draw(WRONG)
        else:
            wrong = draw(st.integers(0, 3)) == 0
            settings[name] = draw(WRONG if wrong else fitting(hints[name]))
    return settings


def as_words(value):
    """A value as it is written on a command line, or None where it cannot be."""
    if isinstance(value, list):
        words = [as_words(item) for item in value]
        flat = all(isinstance(w, list) and len(w) == 1 for w in words)
        return [w[0] for w in words] if flat and words else None
    if isinstance(value, dict):
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    # What begins with a dash is the next flag.
    return None if text.startswith("-") else [text]
