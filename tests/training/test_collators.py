"""The collators: which tokens are chosen, what becomes of them, and what a mask depends on."""

import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.utils.data import DataLoader

from hf_linear_attn.training.collators import CausalLMCollator, MaskedLMCollator, mask_once
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer

BOS, PAD, EOS, MASK = 0, 1, 2, 4


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 64)


def row(length: int, start: int = 10) -> dict[str, list[int]]:
    ids = [BOS, *(start + i % 200 for i in range(length)), EOS]
    return {
        "input_ids": ids,
        "special_tokens_mask": [1, *[0] * length, 1],
        "word_ids": [-1, *(i // 3 for i in range(length)), -1],
    }


def chosen_in(collator, example, draws: int) -> np.ndarray:
    """How often each position is chosen, over epochs."""
    counts = np.zeros(len(example["input_ids"]))
    for epoch in range(draws):
        collator.set_epoch(epoch)
        counts += (collator([example])["labels"][0] != -100).numpy()
    return counts


@pytest.mark.parametrize("masking", ["token", "word", "span"])
def test_b33_padding_and_special_tokens_are_never_masked_in_1000_draws(tokenizer, masking):
    tokenizer.pad_token = tokenizer.eos_token
    try:
        collator = MaskedLMCollator(tokenizer, masking, 0.5)
    finally:
        tokenizer.pad_token = "<pad>"
    ids = [BOS, 10, 11, EOS, 12, EOS, EOS, EOS]
    example = {
        "input_ids": ids,
        "attention_mask": [1, 1, 1, 1, 1, 1, 0, 0],
        "word_ids": [-1, 0, 1, -1, 2, -1, -1, -1],
    }
    counts = chosen_in(collator, example, 1000)
    assert set(np.flatnonzero(counts)) == {1, 2, 4}


def test_b33_tokens_marked_special_or_padded_by_the_row_alone_are_never_masked(tokenizer):
    example = {
        "input_ids": [20, 21, 22, 23],
        "attention_mask": [1, 1, 1, 0],
        "special_tokens_mask": [1, 0, 0, 0],
    }
    counts = chosen_in(MaskedLMCollator(tokenizer, "token", 0.9), example, 1000)
    assert set(np.flatnonzero(counts)) == {1, 2}


def test_b33_pad_equal_to_eos_keeps_true_ends(tokenizer):
    tokenizer.pad_token = tokenizer.eos_token
    try:
        collator = CausalLMCollator(tokenizer)
    finally:
        tokenizer.pad_token = "<pad>"
    a, b, c, d = 10, 11, 12, 13
    padded = {"input_ids": [a, b, EOS, EOS, EOS], "attention_mask": [1, 1, 1, 0, 0]}
    whole = {"input_ids": [a, b, c, d, EOS], "attention_mask": [1] * 5}
    expected = [[a, b, EOS, -100, -100], [a, b, c, d, EOS]]
    assert collator([padded, whole])["labels"].tolist() == expected
    # The same where the collator itself pads.
    batch = collator([{"input_ids": [a, b, EOS]}, {"input_ids": [a, b, c, d, EOS]}])
    assert batch["labels"].tolist() == expected
    assert batch["input_ids"].tolist() == [[a, b, EOS, EOS, EOS], [a, b, c, d, EOS]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5]


@pytest.mark.parametrize(
    ("side", "rows", "expected"),
    [
        ("left", [[10, 11, 12], [10, 11, 12, 13]], [[-100, -100, 11, 12], [-100, 11, 12, 13]]),
        ("right", [[10, 11, 12], [10, 11, 12, 13]], [[10, 11, 12, -100], [10, 11, 12, 13]]),
        ("right", [[], [13]], [[-100], [13]]),
        ("left", [[], [13]], [[-100], [-100]]),
    ],
)
def test_a_token_behind_a_pad_is_no_label(tokenizer, monkeypatch, side, rows, expected):
    """Nothing predicts it: the loss leaves it out, so nobody may count it as a target."""
    monkeypatch.setattr(tokenizer, "padding_side", side)
    batch = CausalLMCollator(tokenizer)([{"input_ids": ids} for ids in rows])
    assert batch["labels"].tolist() == expected


def test_a_token_behind_a_pad_inside_a_row_is_no_label(tokenizer):
    row = {"input_ids": [10, 11, 12, 13], "attention_mask": [1, 0, 1, 1]}
    assert CausalLMCollator(tokenizer)([row])["labels"].tolist() == [[10, -100, -100, 13]]


@pytest.mark.parametrize("masking", ["token", "word", "span"])
@pytest.mark.parametrize("probability", [0.15, 0.5])
def test_every_token_is_chosen_at_exactly_the_rate(tokenizer, masking, probability):
    draws = 3000
    counts = chosen_in(MaskedLMCollator(tokenizer, masking, probability), row(24), draws)[1:-1]
    # Standard deviation of one position's share, and of the mean over positions for whole words.
    deviation = np.sqrt(probability * (1 - probability) / draws)
    assert abs(counts / draws - probability).max() < 4.5 * deviation
    assert abs(counts.mean() / draws - probability) < 3 * deviation


def test_a_short_row_has_exactly_one_token_masked(tokenizer):
    collator = MaskedLMCollator(tokenizer, "token", 0.15)
    for epoch in range(50):
        collator.set_epoch(epoch)
        assert (collator([row(3)])["labels"] != -100).sum() == 1


@pytest.mark.parametrize("masking", ["token", "word", "span"])
def test_every_token_is_masked_at_rate_one(tokenizer, masking):
    labels = MaskedLMCollator(tokenizer, masking, 1.0)([row(9)])["labels"][0]
    assert labels.tolist() == [-100, *range(10, 19), -100]


def test_words_are_masked_whole(tokenizer):
    collator = MaskedLMCollator(tokenizer, "word", 0.3)
    for epoch in range(100):
        collator.set_epoch(epoch)
        chosen = (collator([row(30)])["labels"][0, 1:-1] != -100).reshape(10, 3)
        assert (chosen.all(dim=1) == chosen.any(dim=1)).all()
        assert chosen.any(dim=1).sum() == 3


def test_whole_words_need_word_ids(tokenizer):
    with pytest.raises(ValueError, match=r"`word_ids`.*tokenise with word ids"):
        MaskedLMCollator(tokenizer, "word")([{"input_ids": [10, 11]}])


def test_spans_have_geometric_lengths_of_the_given_mean(tokenizer):
    lengths: Counter[int] = Counter()
    collator = MaskedLMCollator(tokenizer, "span", 0.05, span_length=3.0)
    for epoch in range(300):
        collator.set_epoch(epoch)
        chosen = (collator([row(2000)])["labels"][0] != -100).numpy().astype(int)
        edges = np.flatnonzero(np.diff(chosen))
        for begin, end in edges.reshape(-1, 2):
            lengths[int(end - begin)] += 1
    total = sum(lengths.values())
    mean = sum(length * n for length, n in lengths.items()) / total
    # At a rate of 5 % about 1 run in 60 touches the next one, which lengthens the mean a little.
    assert mean == pytest.approx(3.0, abs=0.12)
    for length in (1, 2, 3, 4):
        assert lengths[length] / total == pytest.approx((2 / 3) ** (length - 1) / 3, abs=0.02)


def test_replacement_shares_and_random_ids(tokenizer):
    collator = MaskedLMCollator(tokenizer, "token", 1.0)
    masked = kept = other = 0
    drawn = set()
    for epoch in range(100):
        collator.set_epoch(epoch)
        batch = collator([row(300)])
        ids, labels = batch["input_ids"][0, 1:-1], batch["labels"][0, 1:-1]
        masked += int((ids == MASK).sum())
        kept += int((ids == labels).sum())
        changed = ids[(ids != MASK) & (ids != labels)]
        other += len(changed)
        drawn |= set(changed.tolist())
    assert masked / 30_000 == pytest.approx(0.8, abs=0.01)
    assert kept / 30_000 == pytest.approx(0.1, abs=0.01)  # and 1/256 of the random ones
    assert other / 30_000 == pytest.approx(0.1, abs=0.01)
    assert drawn == set(range(5, 261))


def test_labels_are_the_original_tokens_and_the_rest_is_untouched(tokenizer):
    example = row(40)
    batch = MaskedLMCollator(tokenizer, "token", 0.3)([example])
    original = torch.tensor(example["input_ids"])
    chosen = batch["labels"][0] != -100
    assert (batch["labels"][0][chosen] == original[chosen]).all()
    assert (batch["input_ids"][0][~chosen] == original[~chosen]).all()
    assert (batch["input_ids"][0][chosen] != original[chosen]).any()


def test_rows_are_padded_on_the_tokenizers_side(tokenizer):
    for side, real in (("right", slice(0, 5)), ("left", slice(4, 9))):
        tokenizer.padding_side = side
        try:
            batch = MaskedLMCollator(tokenizer)([row(3), row(7)])
        finally:
            tokenizer.padding_side = "right"
        padding = torch.ones(9, dtype=torch.bool)
        padding[real] = False
        assert (batch["input_ids"][0][padding] == PAD).all()
        assert batch["attention_mask"][0].tolist() == (~padding).long().tolist()
        assert (batch["labels"][0][padding] == -100).all()


def test_a_mask_depends_on_seed_epoch_and_row_only(tokenizer):
    rows = [row(20, start) for start in (10, 40, 70)]

    def labels(rows, seed=0, epoch=0):
        collator = MaskedLMCollator(tokenizer, seed=seed)
        collator.set_epoch(epoch)
        return collator(rows)["labels"]

    first = labels(rows)
    torch.manual_seed(1)
    np.random.seed(1)
    assert (labels(rows) == first).all()
    assert (labels(rows[::-1]) == first.flip(0)).all()
    assert (labels([rows[1], row(60)])[0, :22] == first[1]).all()
    assert (labels(rows, epoch=1) != first).any()
    assert (labels(rows, seed=1) != first).any()
    # Two processes hold other rows and so mask other places.
    places = first != -100
    assert (places[0] != places[1]).any()
    assert (places[1] != places[2]).any()


@pytest.mark.parametrize("persistent", [False, True])
def test_loader_workers_mask_as_the_main_process_does_in_every_epoch(tokenizer, persistent):
    rows = [row(20, 10 + i) for i in range(8)]

    def epochs(**settings):
        collator = MaskedLMCollator(tokenizer)
        loader = DataLoader(rows, batch_size=2, collate_fn=collator, **settings)
        found = []
        for epoch in range(2):
            collator.set_epoch(epoch)
            found.append(torch.cat([batch["labels"] for batch in loader]))
        return found

    alone = epochs()
    with_workers = epochs(num_workers=2, persistent_workers=persistent)
    assert all((a == b).all() for a, b in zip(alone, with_workers, strict=True))
    assert (alone[0] != alone[1]).any()


def test_masks_of_evaluation_are_stored_with_the_examples(tokenizer):
    data = Dataset.from_list([row(12), row(30)])
    collator = MaskedLMCollator(tokenizer, probability=0.4)
    stored = mask_once(data, collator)
    assert stored.column_names == ["input_ids", "attention_mask", "labels"]
    expected = collator(list(data))
    other = MaskedLMCollator(tokenizer, probability=0.9, seed=7)
    other.set_epoch(3)
    batch = other(list(stored))
    assert all((batch[name] == expected[name]).all() for name in expected)


def test_stored_masks_of_a_stream_are_the_same(tokenizer):
    data = Dataset.from_list([row(12), row(30)])
    collator = MaskedLMCollator(tokenizer)
    stream = mask_once(data.to_iterable_dataset(), collator)
    lists = [{name: list(column) for name, column in example.items()} for example in stream]
    assert lists == list(mask_once(data, collator))


def test_a_row_with_nothing_to_mask_is_named(tokenizer):
    with pytest.raises(ValueError, match=r"row 1 of the batch has nothing to mask: its 2 tokens"):
        MaskedLMCollator(tokenizer)([row(5), {"input_ids": [BOS, EOS]}])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"masking": "sentence"}, "masking is one of token, word, span; got 'sentence'"),
        ({"probability": 0.0}, r"lies in \(0, 1\]; got 0.0"),
        ({"probability": 1.5}, r"lies in \(0, 1\]; got 1.5"),
        ({"span_length": 0.5}, "at least 1; got 0.5"),
        ({"mask_replace_prob": 0.8, "random_replace_prob": 0.3}, "at most 1 together"),
        ({"mask_replace_prob": -0.1}, "not negative"),
    ],
)
def test_values_out_of_range_are_refused(tokenizer, arguments, message):
    with pytest.raises(ValueError, match=message):
        MaskedLMCollator(tokenizer, **arguments)


def test_unknown_columns_are_refused(tokenizer):
    for collator in (MaskedLMCollator(tokenizer), CausalLMCollator(tokenizer)):
        with pytest.raises(ValueError, match=r"cannot batch the column\(s\) text"):
            collator([{**row(4), "text": "abc"}])


def test_a_collator_can_be_pickled(tokenizer):
    collator = MaskedLMCollator(tokenizer)
    collator.set_epoch(3)
    again = pickle.loads(pickle.dumps(collator))
    assert (again([row(20)])["labels"] == collator([row(20)])["labels"]).all()
