"""A sample of what `make faults` does: one run killed, short of room, and damaged."""

import random

import pytest

from tests.faults import damage, full_disk
from tests.faults.kills import Moment, chain, run_whole
from tests.faults.soundness import Complete, lost
from tests.faults.trained import best_of, causal
from tests.faults.words import contradictions

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]
# Phases long enough to be seen by a test that does not get a core for itself.
MOMENTS = [
    Moment(0.02, "dataset cache"),
    Moment(0.0, "evaluation", group=True),
    Moment(0.05, "writing a checkpoint"),
    Moment(0.0, "card and plots", group=True),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    return run_whole(causal(folder / "given"), folder / "whole")


def test_a_run_killed_in_many_phases_ends_to_the_bit(whole, tmp_path):
    moments = iter(MOMENTS)
    outcomes = list(chain(whole, lambda before: next(moments, None), tmp_path))
    assert [outcome.wrong for outcome in outcomes] == [[]] * (len(MOMENTS) + 1)


def test_a_full_disk_is_told_and_made_good(whole, tmp_path):
    if not full_disk.can_mount(tmp_path):
        pytest.skip("mounting a tmpfs needs the rights of root")
    assert full_disk.output_full(whole, "checkpoint-8/optimizer.pt", tmp_path).wrong == []


@pytest.mark.parametrize(
    ("where", "kind", "way"),
    [
        (damage.in_finished, "model.safetensors", "flipped"),
        (damage.in_cache, "generator-train.arrow", "cut"),
    ],
)
def test_damage_is_told_and_made_good(whole, tmp_path, where, kind, way):
    name = kind
    if where is damage.in_cache:
        name = next(name for name in damage.cache_files(whole) if name.endswith(kind))
    outcome = where(whole, name, way, tmp_path, random.Random(0).randrange(9))
    assert outcome.wrong == []
    assert outcome.saw.endswith("again")


def test_damage_of_the_best_checkpoint_is_told_before_training(tmp_path):
    best = run_whole(best_of(tmp_path / "given"), tmp_path / "whole")
    outcome = damage.in_best(best, "model.safetensors", "flipped", tmp_path / "damaged", 0)
    assert outcome.wrong == []


@pytest.mark.parametrize(
    ("before", "output", "is_told"),
    [
        (
            Complete(sealed=(4, 8)),
            "Tokenizer: that of run/checkpoint-8, 9\nGoing on from run/checkpoint-8",
            True,
        ),
        (
            Complete(sealed=(4, 8)),
            "Tokenizer: that of run/checkpoint-8, 9\nGoing on from run/checkpoint-4",
            False,
        ),
        (
            Complete(sealed=(4,)),
            "Tokenizer: trained on the text\nGoing on from run/checkpoint-4",
            False,
        ),
        (Complete(sealed=(4,)), "Tokenizer: that of run/checkpoint-4, 9", False),
        (Complete(begun=True), "Beginning anew in run\nTokenizer: trained on the text", True),
        (Complete(begun=True), "Tokenizer: trained on the text", False),
        (Complete(finished=True), "run holds this run, finished; nothing was changed", True),
        (Complete(finished=True), "Tokenizer: trained on the text", False),
    ],
)
def test_what_is_said_is_held_against_what_was_there(before, output, is_told):
    assert (contradictions(output, before, to_the_end=True) == []) == is_told


@pytest.mark.parametrize(
    ("after", "is_lost"),
    [
        (Complete(sealed=(8,), begun=True), False),
        (Complete(sealed=(8, 12), begun=True, model=True), False),
        (Complete(sealed=(4,), torn=(8,), begun=True), True),
        (Complete(sealed=(8,)), True),
    ],
)
def test_what_is_lost_is_seen(after, is_lost):
    assert bool(lost(Complete(sealed=(4, 8), begun=True), after)) == is_lost
