"""Rows of every source come under the same names, with labels by name."""

import json
import os
from pathlib import Path

import pytest

from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.rows import left_out, read_rows
from hf_linear_attn.training.glue.sources import describe_sources, find_sources
from hf_linear_attn.training.glue.task_choice import task_of
from hf_linear_attn.training.glue.tasks import GLUE_TASKS, TASKS
from tests.training.glue.official import write

DATA = os.environ.get("HF_LINEAR_ATTN_DATA")


def rows_of(**given):
    args = TaskArguments(**given)
    task = task_of(args)
    sources = find_sources(args, task)
    return read_rows(sources, task).splits


@pytest.mark.parametrize("task", GLUE_TASKS)
def test_official_folders_are_read(glue, task):
    rows = rows_of(task=task, data_dir=str(glue))
    pair = len(TASKS[task].text_columns) > 1
    expected = {"text", "label", "index"} | ({"text_pair"} if pair else set())
    assert set(rows) >= {"train", "validation", "test"}
    for split, part in rows.items():
        assert set(part.column_names) == expected
        assert len(part) == {"train": 12, "validation": 6}.get(split, 6 if "valid" in split else 4)
        if "test" in split or split == "diagnostic":
            assert set(part["label"]) == {""}
        elif TASKS[task].labels and split != "validation_mismatched":
            assert set(part["label"]) == set(TASKS[task].labels)


def test_quotes_marks_blanks_and_missing_headers_are_text_or_nothing(glue):
    mrpc = rows_of(task="mrpc", data_dir=str(glue))["train"]
    assert mrpc[1]["text"] == '" He said yes 1'
    assert mrpc[1]["text_pair"] == 'She said it "'
    assert mrpc[1]["label"] == "equivalent"
    cola = rows_of(task="cola", data_dir=str(glue))["train"]
    assert cola[0] == {"text": "A wrong line 0.", "label": "unacceptable", "index": 0}
    assert rows_of(task="sst2", data_dir=str(glue))["train"][1]["text"] == "a fine film 1"
    assert rows_of(task="rte", data_dir=str(glue))["train"][1]["label"] == "not_entailment"
    mnli = rows_of(task="mnli", data_dir=str(glue))
    assert set(mnli) == {
        "train", "validation", "validation_mismatched", "test", "test_mismatched", "diagnostic",
    }  # fmt: skip
    assert mnli["test"]["index"][:2] == [7, 8]


def test_columns_may_stand_in_any_order(glue):
    write(glue / "SST-2/train.tsv", "label\tsentence", "1\tgood", "0\tbad")
    rows = rows_of(task="sst2", data_dir=str(glue))["train"]
    assert [(r["text"], r["label"]) for r in rows] == [("good", "positive"), ("bad", "negative")]


def test_the_tasks_own_folder_may_be_named(glue):
    assert len(rows_of(task="rte", data_dir=str(glue / "RTE"))["train"]) == 12


def test_rows_that_are_cut_off_are_counted_in_qqp_and_refused_elsewhere(glue):
    args = TaskArguments(task="qqp", data_dir=str(glue))
    assert left_out(find_sources(args, TASKS["qqp"]), TASKS["qqp"]) == 1
    write(glue / "RTE/train.tsv", "index\tsentence1\tsentence2\tlabel", "0\tcut off")
    with pytest.raises(ValueError, match=r"RTE/train.tsv, line 2: got 2 columns, expected 4"):
        rows_of(task="rte", data_dir=str(glue))


def test_a_changed_file_is_read_again(glue):
    assert len(rows_of(task="sst2", data_dir=str(glue))["train"]) == 12
    write(glue / "SST-2/train.tsv", "sentence\tlabel", "good\t1", "bad\t0")
    assert len(rows_of(task="sst2", data_dir=str(glue))["train"]) == 2


def jsonl(path: Path, *rows: dict) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def test_samples_in_jsonl_stand_in_for_official_files(tmp_path):
    row = {"premise": "a", "hypothesis": "b"}
    for split in ("train", "dev"):
        labels = [{**row, "label": label} for label in (0, 1, 2)]
        jsonl(tmp_path / f"MNLI/sample_{split}.jsonl", *labels)
    rows = rows_of(task="mnli", data_dir=str(tmp_path))
    assert rows["train"]["label"][:3] == ["entailment", "neutral", "contradiction"]
    assert set(rows) == {"train", "validation"}


def test_a_folder_with_configs_loads_like_the_hub(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Value

    names = ["not_equivalent", "equivalent"]
    features = Features(
        {
            "sentence1": Value("string"),
            "sentence2": Value("string"),
            "label": ClassLabel(names=names),
            "idx": Value("int32"),
        }
    )
    data = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [1, 0], "idx": [4, 5]}
    folder = tmp_path / "glue"
    (folder / "mrpc").mkdir(parents=True)
    for split in ("train", "validation", "test"):
        hidden = {"label": [-1, -1]} if split == "test" else {}
        part = Dataset.from_dict({**data, **hidden}, features=features)
        part.to_parquet(str(folder / f"mrpc/{split}.parquet"))
    files = "".join(
        f"  - split: {split}\n    path: mrpc/{split}.parquet\n"
        for split in ("train", "validation", "test")
    )
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{files}---\n"
    )
    rows = rows_of(task="mrpc", dataset_name=str(folder))
    assert rows["train"]["label"][:] == ["equivalent", "not_equivalent"]
    assert rows["test"]["label"][:] == ["", ""]
    assert rows["test"]["index"][:] == [4, 5]


def test_imdb_is_read_from_jsonl_and_from_the_released_folder(tmp_path):
    for split in ("train", "test"):
        jsonl(tmp_path / f"imdb/{split}.jsonl", {"text": "fine", "label": 1})
        for name in ("neg", "pos"):
            write(tmp_path / f"aclImdb/{split}/{name}/0_7.txt", f"a {name} review")
    rows = rows_of(task="imdb", data_dir=str(tmp_path / "imdb"))
    assert rows["test"][0] == {"text": "fine", "label": "pos", "index": 0}
    rows = rows_of(task="imdb", data_dir=str(tmp_path / "aclImdb"))
    found = [(r["text"], r["label"]) for r in rows["train"]]
    assert found == [("a neg review", "neg"), ("a pos review", "pos")]


@pytest.mark.parametrize(
    ("label", "values", "expected"),
    [
        pytest.param("stars", [1, 5], ["1", "5"], id="stars"),
        pytest.param("overall", [1.0, 5.0], ["1", "5"], id="overall-as-floats"),
        pytest.param("label", [0, 4], ["1", "5"], id="label-from-0"),
    ],
)
def test_amazon_style_reviews_know_their_columns(tmp_path, label, values, expected):
    rows = [{"reviewText": "so so", label: value} for value in values]
    file = jsonl(tmp_path / "reviews.jsonl", *rows)
    read = rows_of(task="amazon", train_file=file, validation_file=file)
    assert read["train"]["label"][:] == expected


def test_a_custom_file_has_the_columns_that_are_named(tmp_path):
    (tmp_path / "mine.csv").write_text('body,other,kind\n"one, two",x,NA\nthree,y,spam\n')
    rows = rows_of(
        task="custom",
        train_file="mine.csv",
        text_column="body",
        text_pair_column="other",
        label_column="kind",
    )["train"]
    assert rows[0] == {"text": "one, two", "text_pair": "x", "label": "NA", "index": 0}


@pytest.mark.slow
def test_the_embedded_task_needs_no_file_and_is_balanced():
    rows = rows_of(task="embedded")["train"]
    labels = list(rows["label"])
    assert labels.count("reference") == labels.count("library") > 500
    assert len(set(rows["text"])) == len(rows)


def test_sources_are_described_without_folders_of_the_machine(glue):
    args = TaskArguments(task="rte", data_dir=str(glue))
    text = describe_sources(find_sources(args, TASKS["rte"]))
    assert text == "Files: RTE/train.tsv, RTE/dev.tsv, RTE/test.tsv"


BAD_ROWS = [
    pytest.param(
        {"task": "rte", "data_dir": "glue/QNLI"}, "is the folder of task qnli", id="other-folder"
    ),
    pytest.param(
        {"task": "mrpc", "data_dir": "renamed"}, "no column '#1 String'", id="other-columns"
    ),
    pytest.param({"task": "cola", "data_dir": "renamed"}, "expected 4 without", id="other-width"),
    pytest.param({"task": "imdb", "data_dir": "glue"}, "no training rows", id="no-such-task"),
    pytest.param({"task": "rte", "data_dir": "none"}, "does not exist", id="no-folder"),
    pytest.param({"task": "rte"}, "needs its data", id="no-data"),
    pytest.param(
        {"task": "sst2", "train_file": "mine.csv"}, "no column 'sentence'", id="no-column"
    ),
    pytest.param(
        {"task": "wnli", "data_dir": "swapped"}, "label 'entailment' is unknown", id="other-labels"
    ),
    pytest.param(
        {"task": "rte", "data_dir": "swapped"}, "line 2: label '0' is unknown", id="ids-for-names"
    ),
]


@pytest.mark.parametrize(("given", "message"), BAD_ROWS)
def test_what_belongs_to_another_task_is_refused(glue, given, message):
    (glue / "SST-2").joinpath("train.tsv").rename(glue / "SST-2/x.tsv")
    write(Path("renamed/train.tsv"), "sentence\tlabel", "good\t1")
    write(Path("mine.csv"), "body,label", "good,1")
    for name, other in (("WNLI", "RTE"), ("RTE", "WNLI")):
        text = (glue / other / "train.tsv").read_text()
        write(Path(f"swapped/{name}/train.tsv"), *text.splitlines())
    with pytest.raises(ValueError, match=message):
        rows_of(**given)


@pytest.mark.skipif(DATA is None, reason="HF_LINEAR_ATTN_DATA is not set")
@pytest.mark.parametrize(
    ("task", "sizes"),
    [
        ("cola", (8551, 1043, 1063)),
        ("sst2", (67349, 872, 1821)),
        ("mrpc", (3668, 408, 1725)),
        ("stsb", (5749, 1500, 1379)),
        ("rte", (2490, 277, 3000)),
        ("wnli", (635, 71, 146)),
        ("qnli", (8999, 5463, 5463)),
        ("mnli", (8999, 1000, None)),
        ("qqp", (8999, 1000, None)),
    ],
)
def test_real_folders_have_the_official_numbers_of_rows(task, sizes):
    rows = rows_of(task=task, data_dir=f"{DATA}/glue")
    for split, size in zip(("train", "validation", "test"), sizes, strict=True):
        assert (split in rows and len(rows[split])) == (size or False)


def test_hidden_scores_of_the_hub_are_hidden(tmp_path):
    row = {"sentence1": "a", "sentence2": "b"}
    file = jsonl(tmp_path / "train.jsonl", {**row, "label": 1.0}, {**row, "label": 2.5})
    hidden = jsonl(tmp_path / "test.jsonl", {**row, "label": -1.0})
    rows = rows_of(task="stsb", train_file=file, validation_file=file, test_file=hidden)
    assert rows["train"]["label"][:] == ["1", "2.5"]
    assert rows["test"]["label"][:] == [""]


def test_a_very_long_text_is_read(glue):
    text = "word " * 40_000
    write(glue / "SST-2/train.tsv", "sentence\tlabel", f"{text}\t1", "bad\t0")
    assert rows_of(task="sst2", data_dir=str(glue))["train"][0]["text"] == text.strip()


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "official", "aclImdb"])
def test_a_file_without_rows_is_one_clear_line(glue, suffix):
    write(Path("none.csv"), "sentence,label")
    write(Path("none.tsv"), "sentence\tlabel")
    write(Path("none.json"), "[]")
    write(glue / "SST-2/train.tsv", "sentence\tlabel", "")
    for name in ("neg", "pos"):
        Path(f"aclImdb/train/{name}").mkdir(parents=True)
    given = {"task": "sst2", "train_file": f"none.{suffix}"}
    if suffix == "official":
        given = {"task": "sst2", "data_dir": str(glue)}
    if suffix == "aclImdb":
        given = {"task": "imdb", "data_dir": "aclImdb"}
    with pytest.raises(ValueError, match=r"has no rows.*; give"):
        rows_of(**given)


@pytest.mark.parametrize("labels", [([1], [0]), ({"a": 1}, {"a": 0}), ("good", 1)], ids=str)
def test_labels_that_are_no_words_or_numbers_are_refused(tmp_path, labels):
    rows = [{"text": "a film", "label": label} for label in labels]
    write(tmp_path / "mine.jsonl", *map(json.dumps, rows))
    given = {"task": "custom", "text_column": "text", "label_column": "label"}
    with pytest.raises(ValueError, match="column 'label' holds values of several kinds, lists or"):
        rows_of(**given, train_file=str(tmp_path / "mine.jsonl"))


def test_a_broken_header_of_a_data_set_is_one_line(tmp_path):
    write(tmp_path / "data/README.md", "---", "configs: [", "---")
    write(tmp_path / "data/train.jsonl", json.dumps({"sentence": "a", "label": 1}))
    with pytest.raises(ValueError, match=r"README\.md: its header cannot be read"):
        rows_of(task="sst2", dataset_name=str(tmp_path / "data"))


def test_the_embedded_rows_follow_their_corpus(monkeypatch):
    from hf_linear_attn.training.glue import rows

    made = [[{"text": name, "label": "library", "index": 0}] for name in ("first", "second")]
    for expected in made:
        monkeypatch.setattr(rows, "embedded_rows", lambda expected=expected: iter(expected))
        assert list(rows_of(task="embedded")["train"]) == expected
