"""Labelled rows: files without rows, other columns, labels that are none."""

import json

from tests.hostile.case import Case
from tests.hostile.given import folder, symlink, write, write_json


def _rows(*rows: object) -> str:
    return "\n".join(json.dumps(row) for row in rows)


def _row(text: object, label: object) -> dict[str, object]:
    return {"text": text, "label": label}


_FILES: list[tuple[str, str, str, str | bytes, str]] = [
    ("empty", "an empty file", "a.jsonl", "", "file 'a.jsonl' is empty"),
    ("no-rows", "a header and no row", "a.csv", "text,label\n", "a.csv has no rows; give a file with rows, or leave it out"),
    ("no-label", "no column of labels", "a.jsonl", _rows({"text": "one"}), "a.jsonl: no column 'label' for the label, only text; name it with --label_column, or give the file of this task"),
    ("no-text", "no column of text", "a.jsonl", _rows({"label": 1}), "a.jsonl: no column 'text' for the text, only label; name it with --text_column, or give the file of this task"),
    ("null-text", "a text that is null", "a.jsonl", _rows(_row(None, 1), _row("one", 0)), "a.jsonl, row 0: column 'text' holds None, expected text"),
    ("number-text", "texts that are numbers", "a.jsonl", _rows(_row(1, 1), _row(2, 0)), "a.jsonl, row 0: column 'text' holds 1, expected text"),
    ("list-text", "texts that are lists", "a.jsonl", _rows(_row(["one"], 1), _row(["two"], 0)), "a.jsonl, row 0: column 'text' holds ['one'], expected text"),
    ("null-label", "a label that is null", "a.jsonl", _rows(_row("one", None), _row("two", 1)), "the labels of the validation rows are hidden (all 1 are missing), so they serve neither training nor evaluation; give rows with labels"),
    ("nan-label", "a label that is no number", "a.jsonl", '{"text": "one", "label": NaN}\n{"text": "two", "label": 1}', "the labels of the validation rows are hidden (all 1 are missing), so they serve neither training nor evaluation; give rows with labels"),
    ("float-label", "a label of 0.5", "a.jsonl", _rows(_row("one", 0.5), _row("two", 1.0)), "a.jsonl: column 'label' holds fractions (0.5), which name no class: pass --problem regression to learn them as numbers, or list them as --class_names"),
    ("list-label", "labels that are lists", "a.jsonl", _rows(_row("one", [1]), _row("two", [0])), "a.jsonl: column 'label' holds values of several kinds, lists or mappings (List(Value('int64'))); expected words or numbers, one a row"),
    ("dict-label", "labels that are mappings", "a.jsonl", _rows(_row("one", {"a": 1}), _row("two", {"a": 2})), "a.jsonl: column 'label' holds values of several kinds, lists or mappings ({'a': Value('int64')}); expected words or numbers, one a row"),
    ("mixed-label", "words and numbers as labels", "a.jsonl", _rows(_row("one", "good"), _row("two", 1)), "a.jsonl: column 'label' holds values of several kinds, lists or mappings (Json(decode=True)); expected words or numbers, one a row"),
    ("one-class", "rows of one class", "a.jsonl", _rows(*(_row(f"film {i}", 1) for i in range(10))), "all 8 training rows are of class '1': there is nothing to learn; give rows of two classes at least, or raise max_train_examples"),
    ("one-row", "a single row", "a.jsonl", _rows(_row("one", 1)), "only 1 distinct training row: nothing can be held out for evaluation; give --validation_file"),
    ("negative-label", "a class of -1", "a.jsonl", _rows(*(_row(f"film {i}", -1) for i in range(5))), "all 4 training rows are of class '-1': there is nothing to learn; give rows of two classes at least, or raise max_train_examples"),
    ("nul", "a NUL in a tab-separated file", "a.tsv", "text\tlabel\none\0\t1\n", "file 'a.tsv' is binary: NUL at byte 14"),
    ("latin1", "Latin-1 in a table", "a.csv", "text,label\ncaf\u00e9,1\n".encode("latin-1"), "file 'a.csv' is not UTF-8 text (near byte 14: invalid continuation byte); convert it to UTF-8"),
    ("broken-json", "a line of JSON that is cut off", "a.jsonl", _rows(_row("one", 1)) + '\n{"text": "tw', "'a.jsonl' cannot be read: …"),
    ("ragged", "rows of different lengths", "a.csv", "text,label\none,1\ntwo,0,extra,cells\n", "'a.csv' cannot be read: …"),
    ("parquet", "text under the name of a parquet file", "a.parquet", "text,label\n", "'a.parquet' cannot be read: …"),
    ("suffix", "a kind of file that is not read", "a.xlsx", "text,label\n", "file 'a.xlsx': got the suffix '.xlsx', expected one of .txt, .jsonl, .json, .parquet, .csv, .tsv"),
]  # fmt: skip

_STSB = (
    "--text_column",
    "null",
    "--label_column",
    "null",
    "--validation_fraction",
    "null",
    "--train_file",
    "null",
)

CASES = [
    Case(f"rows-{name}", "glue", given, says, ("--train_file", file), (write(file, content),))
    for name, given, file, content, says in _FILES
] + [
    Case("rows-missing", "glue", "a file that is not there", "file 'row.jsonl' does not exist in '…'; did you mean 'rows.jsonl'?", ("--train_file", "row.jsonl")),
    Case("rows-unreadable", "glue", "a file that cannot be read", "Input/output error", ("--train_file", "a.csv"), (symlink("a.csv", "/proc/self/mem"),)),
    Case("rows-folder", "glue", "a folder instead of a file", "'rows' is a folder; give its files, or the folder as --dataset_name", ("--train_file", "rows"), (folder("rows"),)),
    Case("rows-same-column", "glue", "one column for text and label", "text_column, text_pair_column, label_column: got text, text, expected different columns", ("--label_column", "text")),
    Case("rows-validation-classes", "glue", "an evaluation class that was never trained", "validation, row 0: label '7' is unknown (1 rows in all), expected one of 0, 1", ("--validation_fraction", "null", "--validation_file", "v.jsonl"), (write("v.jsonl", _rows(_row("one", 7))),)),
    Case("rows-validation-empty", "glue", "evaluation rows that are none", "file 'v.jsonl' is empty", ("--validation_fraction", "null", "--validation_file", "v.jsonl"), (write("v.jsonl", ""),)),
    Case("rows-test-some-labels", "glue", "test rows of which some have labels", "test, row 1: the label is missing (1 of 2 rows); give labels to all rows, or leave those without out", ("--test_file", "t.jsonl"), (write("t.jsonl", _rows(_row("one", 1), _row("two", None))),)),
    Case("rows-class-names", "glue", "names for three classes of two", "train, row 0: label '0' is unknown (16 rows in all), expected one of a, b, c", ("--class_names", "a", "b", "c")),
    Case("rows-regression", "glue", "a regression on words", "train, row 1: label 'bad' is no number", ("--problem", "regression", "--train_file", "a.jsonl"), (write("a.jsonl", _rows(_row("one", "good"), _row("two", "bad"))),)),
    Case("rows-regression-nan", "glue", "a regression on what is no number", "train, row 0: label nan lies outside of -inf to inf, the range of custom", ("--problem", "regression", "--train_file", "a.csv"), (write("a.csv", "text,label\none,nan\ntwo,1\nthree,2\n"),)),
    Case("rows-regression-inf", "glue", "a regression on infinity", "train, row 0: label inf lies outside of -inf to inf, the range of custom", ("--problem", "regression", "--train_file", "a.csv"), (write("a.csv", "text,label\none,inf\ntwo,1\nthree,2\n"),)),
    Case("rows-official-columns", "glue", "the official file of another task", "d/train.tsv: no column 'sentence1', only sentence, label; task rte has sentence1, sentence2, label: is it the file of another task?", ("--task", "rte", "--data_dir", "d", *_STSB), (write("d/train.tsv", "sentence\tlabel\ngood\t1\n"),)),
    Case("rows-official-label", "glue", "an official file with an unknown label", "d/train.tsv, line 2: label '2' is unknown in task wnli, expected one of 0, 1", ("--task", "wnli", "--data_dir", "d", *_STSB), (write("d/train.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t2\n"), write("d/dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n"))),
    Case("rows-official-cut", "glue", "an official file that is cut off", "d/train.tsv, line 2: got 2 columns, expected 4 at least; the row is cut off", ("--task", "wnli", "--data_dir", "d", *_STSB), (write("d/train.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\n"), write("d/dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n"))),
    Case("rows-official-binary", "glue", "an official file that is binary", "file 'd/train.tsv' is binary: NUL at byte 15", ("--task", "sst2", "--data_dir", "d", *_STSB), (write("d/train.tsv", b"sentence\tlabel\n\0\t1\n"),)),
    Case("rows-dir-missing", "glue", "a folder that is not there", "data_dir none does not exist in '…'", ("--task", "sst2", "--data_dir", "none", *_STSB)),
    Case("rows-dir-file", "glue", "a file instead of the folder", "data_dir text.txt is no folder", ("--task", "sst2", "--data_dir", "text.txt", *_STSB)),
    Case("rows-dir-empty", "glue", "an empty folder", "data_dir d has no training rows of task sst2: expected a folder SST-2 or a file train.tsv or train.jsonl or sample_train.jsonl, got nothing", ("--task", "sst2", "--data_dir", "d", *_STSB), (folder("d"),)),
    Case("rows-dir-nul", "glue", "a folder's name with a NUL", "nul.yaml: data_dir: got 'a\\x00b', expected text without a NUL", ("--config", "config.yaml", "nul.yaml", "--task", "sst2", *_STSB), (write_json("nul.yaml", {"data_dir": "a\0b"}),)),
    Case("rows-review-latin1", "glue", "a review that is not UTF-8", "…/d/train/neg/0_1.txt is not UTF-8 text ('utf-8' codec can't decode byte 0xe9 in position 3: unexpected end of data); convert it to UTF-8", ("--task", "imdb", "--data_dir", "d", *_STSB), tuple(write(f"d/{s}/{c}/0_1.txt", b"caf\xe9") for s in ("train", "test") for c in ("neg", "pos"))),
    Case("rows-review-empty", "glue", "folders of reviews without a review", "d/train has no rows; give a file with rows, or leave it out", ("--task", "imdb", "--data_dir", "d", *_STSB), tuple(folder(f"d/{s}/{c}") for s in ("train", "test") for c in ("neg", "pos"))),
    Case("rows-dataset-script", "glue", "a data set that is a program", "'./d' cannot be read: Dataset scripts are no longer supported, but found d.py", ("--train_file", "null", "--dataset_name", "./d"), (write("d/d.py", "import os; os.mkdir('run')\n"),)),
    Case("rows-dataset-readme", "glue", "a data set whose README is broken YAML", "d/README.md: its header cannot be read as that of a data set", ("--train_file", "null", "--task", "rte", "--text_column", "null", "--label_column", "null", "--dataset_name", "./d"), (write("d/README.md", "---\nconfigs: [\n---\n"), write("d/train.jsonl", _rows(_row("one", 1))))),
    # Unusual, and right.
    Case("rows-empty-text", "glue", "texts without a letter", "empty texts: 10", ("--train_file", "a.jsonl"), (write("a.jsonl", _rows(*(_row(f"film {i}" if i % 2 else "", i // 2 % 2) for i in range(20)))),), works=True),
]  # fmt: skip
