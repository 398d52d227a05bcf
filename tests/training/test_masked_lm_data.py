"""Tokenizer, masked examples and unigram baseline of a run, from files and from a stream."""

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from datasets import Dataset, concatenate_datasets

from hf_linear_attn.training import masked_lm_data, text_and_tokenizer
from hf_linear_attn.training.arguments import DataArguments, MaskingArguments
from hf_linear_attn.training.fingerprint import examples_fingerprint
from hf_linear_attn.training.masked_lm_data import prepare_masked_lm


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    train = ["abab cdcd abab", "abab abab", "cdcd efef abab"] * 20
    for name, texts in (("train", train), ("valid", ["abab efef", "zz abab cdcd"])):
        lines = [json.dumps({"text": f"{text} {i}"}) for i, text in enumerate(texts)]
        Path(f"{name}.jsonl").write_text("\n".join(lines))


def prepare(seed=0, masking=None, **data):
    given = {"train_file": "train.jsonl", "validation_file": "valid.jsonl", "block_size": 16}
    arguments = DataArguments(data_format="documents", **{**given, **data})
    masks = MaskingArguments(**(masking or {}))
    return prepare_masked_lm(arguments, masks, None, 261, 16, seed)


def labels(data):
    return [list(row["labels"]) for row in data.evaluation]


def test_the_unigram_is_that_of_the_training_tokens_on_the_masked_evaluation_tokens():
    data = prepare()
    special = set(data.tokenizer.all_special_ids)
    counts = Counter(i for row in data.train for i in row["input_ids"] if i not in special)
    total = sum(counts.values()) + len(data.tokenizer) - len(special)
    masked = [label for row in labels(data) for label in row if label != -100]
    expected = -sum(math.log((counts[i] + 1) / total) for i in masked) / len(masked)
    assert data.unigram.loss == pytest.approx(expected, rel=1e-12)
    assert data.unigram.tokens == len(masked)


def test_evaluation_masks_do_not_follow_the_seed_and_training_masks_do():
    first, second = prepare(seed=0), prepare(seed=1)
    assert labels(first) == labels(second)
    row = dict(first.train[0])
    masks = [data.collator([row])["labels"].tolist() for data in (first, second)]
    assert masks[0] != masks[1]


def test_evaluation_has_its_own_rate():
    shares = {}
    for rate in (None, 0.9):
        data = prepare(masking={"mlm_probability": 0.2, "eval_mlm_probability": rate})
        flat = [label for row in labels(data) for label in row]
        shares[rate] = sum(label != -100 for label in flat) / len(flat)
        assert data.collator.probability == 0.2
    assert shares[None] < 0.35
    assert shares[0.9] > 0.6


def test_masking_arguments_reach_the_collator():
    masking = {
        "masking": "span",
        "span_length": 2.0,
        "mask_replace_prob": 0.5,
        "random_replace_prob": 0.4,
    }
    collator = prepare(masking=masking, seed=5).collator
    assert {name: getattr(collator, name) for name in masking} == masking
    assert collator.seed == 5


def test_a_stream_is_prepared_from_its_beginning(monkeypatch):
    monkeypatch.setattr(text_and_tokenizer, "STREAM_SAMPLE", 7)
    counted = []
    original = masked_lm_data.token_counts

    def counts(dataset, size):
        counted.append(len(list(dataset)))
        return original(dataset, size)

    monkeypatch.setattr(masked_lm_data, "token_counts", counts)
    data = prepare(streaming=True)
    assert counted == [7]
    assert data.unigram.loss > 0
    assert labels(data) == labels(prepare())
    row = next(iter(data.train))
    assert data.collator([row])["labels"].ne(-100).any()


def test_the_documents_behind_the_evaluation_are_at_hand():
    assert list(prepare().evaluation_texts) == ["abab efef 0", "zz abab cdcd 1"]


def test_the_fingerprint_follows_the_examples_and_nothing_else():
    first = prepare().fingerprint
    assert prepare(preprocessing_num_workers=2).fingerprint == first
    assert prepare(masking={"mlm_probability": 0.4}).fingerprint == first
    changed = Path("train.jsonl").read_text().replace("efef abab", "efef abaa", 1)
    Path("train.jsonl").write_text(changed)
    second = prepare().fingerprint
    assert second["evaluation"] == first["evaluation"]
    assert second["training"] != first["training"]
    assert prepare(streaming=True).fingerprint["evaluation"] == first["evaluation"]


def test_the_fingerprint_sees_where_rows_end():
    rows = [Dataset.from_dict({"input_ids": ids}) for ids in ([[1, 2], [3]], [[1], [2, 3]])]
    assert examples_fingerprint(rows[0], 261) != examples_fingerprint(rows[1], 261)
    parts = concatenate_datasets([rows[0].select([0]), rows[0].select([1])])
    parts = parts.select([1, 0]).select([1, 0])
    assert examples_fingerprint(parts, 261) == examples_fingerprint(rows[0], 261)
