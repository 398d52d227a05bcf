"""Text to pretrain on: files that are no text, hold none, or hold it where nobody looks."""

import gzip
import json
import os

from tests.hostile.case import Case
from tests.hostile.given import folder, symlink, write, write_json

_LINE = json.dumps({"text": "one two three four five"})


def _file(
    name: str,
    program: str,
    given: str,
    file: str,
    content: str | bytes,
    says: str,
    *argv: str,
    works: bool = False,
) -> Case:
    """A training file of some content."""
    return Case(
        f"text-{name}",
        program,
        given,
        says,
        ("--train_file", file, *argv),
        (write(file, content),),
        works,
    )


_LINES = "\n".join(f"one two three four five six seven {i}" for i in range(60))

CASES = [
    _file("empty", "mlm", "an empty file", "a.txt", "", "file 'a.txt' is empty"),
    _file("blank", "clm", "a file of white space", "a.txt", " \n\t\n  \n", "file 'a.txt' is empty: only white space"),
    _file("mark-only", "mlm", "a file with a byte-order mark alone", "a.txt", b"\xef\xbb\xbf", "file 'a.txt' is empty: only white space"),
    _file("nul-first", "mlm", "a binary file", "a.txt", b"\x00\x01\x02text", "file 'a.txt' is binary: NUL at byte 0"),
    _file("nul-late", "clm", "a NUL after two megabytes", "a.txt", b"word " * 400_000 + b"\x00", "file 'a.txt' is binary: NUL at byte 2000000"),
    _file("invalid-utf8", "mlm", "bytes that are not UTF-8", "a.txt", "one two\n\ncaf\u00e9\n".encode("latin-1"), "file 'a.txt' is not UTF-8 text (near byte 12: invalid continuation byte); convert it to UTF-8"),
    _file("cut-utf8", "mlm", "a file cut in the middle of a letter", "a.txt", "one two caf\u00e9".encode()[:-1], "file 'a.txt' is not UTF-8 text (near byte 11: unexpected end of data); convert it to UTF-8"),
    _file("utf16", "clm", "UTF-16 with its mark", "a.txt", "one two three".encode("utf-16"), "file 'a.txt' is binary: NUL at byte 3"),
    _file("surrogate", "mlm", "half a surrogate pair as UTF-8", "a.txt", b"one \xed\xa0\x80 two", "file 'a.txt' is not UTF-8 text (near byte 4: invalid continuation byte); convert it to UTF-8"),
    _file("one-document", "mlm", "one document, which cannot be held out and trained on", "a.txt", "one two three four\n" * 50, "only 1 distinct document to split into training and evaluation text; give --validation_file, put blank lines between documents, or use --data_format lines"),
    _file("same-documents", "clm", "the same document a hundred times", "a.txt", "one two three\n\n" * 100, "only 1 distinct document to split into training and evaluation text; give --validation_file, put blank lines between documents, or use --data_format lines"),
    _file("too-short", "mlm", "two documents of a word", "a.txt", "one\n\ntwo", "train: 3 tokens do not fill one block of 16; use a smaller --block_size, --remainder pad or keep, or more text"),
    _file("too-short-causal", "clm", "two documents of a word", "a.txt", "one\n\ntwo", "train: 3 tokens do not fill one block of 16; use a smaller --block_size, --remainder pad or keep, or more text"),
    _file("gzip", "mlm", "a compressed file under the name of a text", "a.txt", gzip.compress(b"one two", mtime=0), "file 'a.txt' is binary: NUL at byte 3"),
    _file("suffix", "mlm", "a kind of file that is not read", "a.docx", "one two", "file 'a.docx': got the suffix '.docx', expected one of .txt, .jsonl, .json, .parquet, .csv, .tsv"),
    _file("no-suffix", "clm", "a file without a suffix", "corpus", "one two", "file 'corpus': got the suffix '', expected one of .txt, .jsonl, .json, .parquet, .csv, .tsv"),
    _file("jsonl-broken", "mlm", "a line of JSON that is cut off", "a.jsonl", f'{_LINE}\n{{"text": "one', "'a.jsonl' cannot be read: …"),
    _file("jsonl-list", "mlm", "JSON lines that are lists", "a.jsonl", '["one"]\n["two"]\n', "'a.jsonl' cannot be read: …"),
    _file("jsonl-numbers", "clm", "JSON lines that are numbers", "a.jsonl", "1\n2\n", "'a.jsonl' cannot be read: …"),
    _file("jsonl-column", "mlm", "another column than `text`", "a.jsonl", '{"txet": "one"}\n{"txet": "two"}\n', "a.jsonl: no column 'text', only txet; did you mean 'txet'?; name the column of the text with --text_column"),
    _file("jsonl-number", "mlm", "numbers in the column of the text", "a.jsonl", '{"text": 1}\n{"text": 2}\n', "a.jsonl: column 'text' holds int64, expected text"),
    _file("jsonl-mixed", "clm", "text and numbers in one column", "a.jsonl", '{"text": "one"}\n{"text": 2}\n', "a.jsonl: column 'text' holds Json(decode=True), expected text"),
    _file("jsonl-nested", "mlm", "lists in the column of the text", "a.jsonl", '{"text": ["one", "two"]}\n', "a.jsonl: column 'text' holds List(Value('string')), expected text"),
    _file("jsonl-null", "mlm", "nulls in the column of the text", "a.jsonl", '{"text": null}\n{"text": null}\n', "a.jsonl: column 'text' holds null, expected text"),
    _file("jsonl-empty-texts", "clm", "empty texts alone", "a.jsonl", '{"text": ""}\n{"text": "  "}\n', "only 0 distinct document to split into training and evaluation text; give --validation_file, put blank lines between documents, or use --data_format lines"),
    _file("jsonl-nul", "mlm", "a NUL between lines of JSON", "a.jsonl", f"{_LINE}\n\0\n", "file 'a.jsonl' is binary: NUL at byte 36"),
    _file("jsonl-latin1", "mlm", "lines of JSON in Latin-1", "a.jsonl", '{"text": "caf\u00e9"}\n'.encode("latin-1"), "file 'a.jsonl' is not UTF-8 text (near byte 13: invalid continuation byte); convert it to UTF-8"),
    _file("json-scalar", "mlm", "a JSON file of one word", "a.json", '"one"', "'a.json' cannot be read: …"),
    _file("json-empty-list", "mlm", "a JSON file of an empty list", "a.json", "[]", "a.json has no rows; give a file with rows, or leave it out"),
    _file("parquet-text", "mlm", "a text under the name of a parquet file", "a.parquet", "one two three", "'a.parquet' cannot be read: …"),
    _file("parquet-empty", "clm", "an empty parquet file", "a.parquet", "", "'a.parquet' cannot be read: …"),
    _file("parquet-cut", "mlm", "a parquet file that is cut off", "a.parquet", b"PAR1" + b"\0" * 100, "'a.parquet' cannot be read: …"),
    _file("csv-ragged", "mlm", "rows of different lengths", "a.csv", "text,b\none,1\ntwo,2,3,4\n", "'a.csv' cannot be read: …"),
    _file("csv-quote", "mlm", "a quote that is never closed", "a.csv", 'text\n"one\ntwo\n', "'a.csv' cannot be read: …"),
    _file("csv-header", "clm", "a header and no row", "a.csv", "text\n", "a.csv has no rows; give a file with rows, or leave it out"),
    _file("csv-column", "mlm", "a table without a column of text", "a.csv", "a,b\n1,2\n", "a.csv: no column 'text', only a, b; name the column of the text with --text_column"),
    _file("tsv-column", "mlm", "a tab-separated file with commas", "a.tsv", "text,b\none,two\n", "a.tsv: no column 'text', only text,b; did you mean 'text,b'?; name the column of the text with --text_column"),
    Case("text-missing", "mlm", "a file that is not there", "file 'texd.txt' does not exist in '…'; did you mean 'text.txt'?", ("--train_file", "texd.txt")),
    Case("text-folder", "clm", "a folder instead of a file", "'corpus' is a folder; give its files, or the folder as --dataset_name", ("--train_file", "corpus"), (folder("corpus"),)),
    Case("text-nul-name", "mlm", "a name with a NUL", "nul.yaml: train_file: got 'a\\x00.txt', expected text without a NUL", ("--config", "config.yaml", "nul.yaml"), (write_json("nul.yaml", {"train_file": "a\0.txt"}),)),
    Case("text-newline-name", "mlm", "a name with a line end", "file 'a\\nb.txt' does not exist in '…'", ("--train_file", "a\nb.txt")),
    Case("text-long-name", "mlm", "a name of five thousand letters", "[Errno 36] File name too long: 'aaa…", ("--train_file", "a" * 5000 + ".txt")),
    Case("text-empty-name", "mlm", "an empty name", "got an empty name for a file; leave it out, or give its name", ("--train_file", "")),
    Case("text-url", "mlm", "an address for a file", "file 'https://example.org/a.txt' does not exist in '…'", ("--train_file", "https://example.org/a.txt")),
    Case("text-loop", "mlm", "a link that leads to itself", "file 'a.txt' is a link that leads nowhere; give the file itself", ("--train_file", "a.txt"), (symlink("a.txt", "a.txt"),)),
    Case("text-unreadable", "mlm", "a file that cannot be read", "Input/output error", ("--train_file", "a.txt"), (symlink("a.txt", "/proc/self/mem"),)),
    Case("text-unreadable-rows", "clm", "a file of rows that cannot be read", "Input/output error", ("--train_file", "a.jsonl"), (symlink("a.jsonl", "/proc/self/mem"),)),
    Case("text-dangling", "clm", "a link that leads nowhere", "file 'a.txt' is a link that leads nowhere; give the file itself", ("--train_file", "a.txt"), (symlink("a.txt", "none.txt"),)),
    Case("text-fifo", "mlm", "a pipe instead of a file", "'a.txt' is a pipe or a device; write the text to a file and give that", ("--train_file", "a.txt"), (lambda at, _: os.mkfifo(at / "a.txt"),)),
    Case("text-device", "mlm", "a device instead of a file", "'a.txt' is a pipe or a device; write the text to a file and give that", ("--train_file", "a.txt"), (symlink("a.txt", "/dev/zero"),)),
    Case("text-validation-missing", "mlm", "evaluation text that is not there", "file 'none.txt' does not exist in '…'; did you mean 'text.txt'?", ("--validation_file", "none.txt")),
    Case("text-validation-empty", "clm", "evaluation text without a word", "file 'a.txt' is empty: only white space", ("--validation_file", "a.txt"), (write("a.txt", "\n"),)),
    Case("text-validation-short", "mlm", "evaluation text that fills no block", "validation: 3 tokens do not fill one block of 16; use a smaller --block_size, --remainder pad or keep, or more text", ("--validation_file", "a.txt"), (write("a.txt", "one"),)),
    Case("text-validation-column", "mlm", "evaluation text without the column", "a.jsonl: no column 'text', only body; name the column of the text with --text_column", ("--validation_file", "a.jsonl"), (write("a.jsonl", '{"body": "one"}'),)),
    Case("text-both", "mlm", "files and a data set", "give --train_file or --dataset_name, not both", ("--dataset_name", "somebody/corpus")),
    Case("text-config-alone", "mlm", "a configuration without a data set", "--dataset_config_name needs --dataset_name", ("--dataset_config_name", "en")),
    Case("text-stream-held-out", "mlm", "a stream of which rows are to be held out", "streaming cannot hold documents out: give --validation_file, or a data set with a validation split", ("--streaming",)),
    Case("text-stream-epochs", "clm", "a stream without a number of steps", "a stream has no known length: streaming needs max_steps", ("--streaming", "--max_steps", "-1")),
    Case("text-stream-column", "mlm", "a stream without the column", "a.jsonl: no column 'text', only body; name the column of the text with --text_column", ("--streaming", "--train_file", "a.jsonl", "--validation_file", "text.txt"), (write("a.jsonl", '{"body": "one"}'),)),
    Case("text-column-path", "mlm", "a path for a column", "a.jsonl: no column '../text', only text; did you mean 'text'?; name the column of the text with --text_column", ("--train_file", "a.jsonl", "--text_column", "../text"), (write("a.jsonl", _LINE),)),
    Case("text-dataset-missing", "mlm", "a data set that cannot be reached", "'nobody/none' cannot be read: Couldn't reach 'nobody/none' on the Hub (OfflineModeIsEnabled)", ("--train_file", "null", "--dataset_name", "nobody/none")),
    Case("text-dataset-empty", "clm", "an empty folder as a data set", "'./corpus' cannot be read: The directory at …/corpus doesn't contain any data files", ("--train_file", "null", "--dataset_name", "./corpus"), (folder("corpus"),)),
    Case("text-dataset-script", "mlm", "a data set that is a program", "'./corpus' cannot be read: Dataset scripts are no longer supported, but found corpus.py", ("--train_file", "null", "--dataset_name", "./corpus"), (write("corpus/corpus.py", "import os; os.mkdir('run')\n"),)),
    Case("text-dataset-tricks", "mlm", "a path out of the folder as a data set", "'../../../none' cannot be read: Couldn't find any data file at …", ("--train_file", "null", "--dataset_name", "../../../none")),
    Case("text-dataset-name", "mlm", "a data set's name that cannot be one", "'a//b:c' cannot be read: Couldn't find any data file at …/a/b:c.", ("--train_file", "null", "--dataset_name", "a//b:c")),
    Case("text-dataset-nul", "mlm", "a data set's name with a NUL", "nul.yaml: dataset_name: got 'a\\x00b', expected text without a NUL", ("--config", "config.yaml", "nul.yaml", "--train_file", "null"), (write_json("nul.yaml", {"dataset_name": "a\0b"}),)),
    Case("text-dataset-splits", "mlm", "a data set without training rows", "data set './corpus': expected a split 'train', got test", ("--train_file", "null", "--dataset_name", "./corpus"), (write("corpus/test.jsonl", _LINE),)),
    # Unusual, and right.
    _file("crlf", "mlm", "line ends of Windows, and a byte-order mark", "a.txt", b"\xef\xbb\xbf" + _LINES.replace("\n", "\r\n").encode(), "train: 48 lines with", "--data_format", "lines", works=True),
    _file("long-line", "clm", "a line of ten megabytes", "a.txt", f"{'x' * 49} {'y' * 49} " * 100_000, "train: 1 documents with 200,000 tokens", "--validation_file", "text.txt", "--tokenizer_type", "word", works=True),
    _file("json-nul", "mlm", "a NUL inside a text of JSON", "a.jsonl", "\n".join(json.dumps({"text": f"one\0two {i} three four five six"}) for i in range(40)), "train: 32 documents with", works=True),
    _file("empty-rows", "clm", "rows without text between others", "a.jsonl", "\n".join(json.dumps({"text": t}) for i in range(40) for t in ("", f"one two three four {i}")), "train: 32 documents with", works=True),
]  # fmt: skip
