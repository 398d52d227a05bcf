"""Documents from files, data sets and the embedded corpus."""

import json
import os
from pathlib import Path

import pytest

from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.data import load_documents
from hf_linear_attn.training.text_files import find_file


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Whatever `datasets` writes goes to a folder of the test."""
    import datasets

    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", cache)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0, raising=False)
    monkeypatch.delenv("HF_LINEAR_ATTN_DATA", raising=False)


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def texts(dataset) -> list[str]:
    return [row["text"] for row in dataset]


def both(train: str | list[str], validation: str | list[str] | None = None, **kwargs):
    """The documents of a training file that is also the evaluation file, unless one is given."""
    args = DataArguments(train_file=train, validation_file=validation or train, **kwargs)
    return load_documents(args, seed=0)


def test_blank_lines_end_documents_in_text_files(tmp_path):
    wiki = '<doc id="1" title="A">\nA\n\nFirst.\nSecond.\n</doc>\n'
    wikitext = " \n = Title = \n \n Text , text . \n\n\n\n last"
    train = [write(tmp_path / "a.txt", wiki), write(tmp_path / "b.txt", wikitext)]
    loaded = both(train)
    assert texts(loaded["train"]) == [
        '<doc id="1" title="A">\nA',
        "First.\nSecond.\n</doc>",
        " = Title = ",
        " Text , text . ",
        " last",
    ]
    assert loaded["train"].column_names == ["text"]
    assert texts(loaded["validation"]) == texts(loaded["train"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]


def test_lines_of_text_files_are_documents_of_the_lines_format(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffone\r\n\r\n  two\r\nthree")
    assert texts(both(path, data_format="lines")["train"]) == ["one", "  two", "three"]
    assert texts(both(path)["train"]) == ["one", "  two\nthree"]


def test_rows_are_documents_elsewhere_and_blank_ones_are_left_out(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = ["one\n\nparagraph", "", "two", "  \n", "NA"]
    as_json = [{"text": row, "n": 1} for row in rows]
    lines = "\n".join(map(json.dumps, as_json))
    pq.write_table(pa.table({"text": rows}), tmp_path / "a.parquet")
    files = [
        write(tmp_path / "a.jsonl", lines),
        write(tmp_path / "a.json", json.dumps(as_json)),
        str(tmp_path / "a.parquet"),
        write(tmp_path / "a.csv", 'text,n\n"one\n\nparagraph",1\n,1\n"two",1\n"  \n",1\nNA,1\n'),
    ]
    for file in files:
        assert texts(both(file)["train"]) == ["one\n\nparagraph", "two", "NA"], file
    assert len(both(files)["train"]) == 12


def test_tab_separated_files_know_no_quotes(tmp_path):
    path = write(tmp_path / "a.tsv", 'n\tsentence\n1\tShe said "no\n2\t"so\n')
    assert texts(both(path, text_column="sentence")["train"]) == ['She said "no', '"so']


def test_a_changed_file_is_read_again(tmp_path):
    for name, first, second in [
        ("a.txt", "one", "two"),
        ("a.jsonl", '{"text": "one"}', '{"text": "two"}'),
    ]:
        path = write(tmp_path / name, first)
        assert texts(both(path)["train"]) == ["one"]
        write(tmp_path / name, second)
        assert texts(both(path)["train"]) == ["two"]


def test_relative_files_are_sought_here_then_under_the_data_folder(tmp_path, monkeypatch):
    here, data = tmp_path / "here", tmp_path / "data"
    for folder in (here, data):
        folder.mkdir()
    write(data / "a.txt", "from data")
    monkeypatch.chdir(here)
    with pytest.raises(ValueError, match=r"'a.txt' does not exist in '.*here'"):
        find_file("a.txt")
    monkeypatch.setenv("HF_LINEAR_ATTN_DATA", str(data))
    assert texts(both("a.txt")["train"]) == ["from data"]
    write(here / "a.txt", "from here")
    assert texts(both("a.txt")["train"]) == ["from here"]
    with pytest.raises(ValueError, match=r"nor under HF_LINEAR_ATTN_DATA=.*did you mean 'a.txt'"):
        find_file("b.txt")


def split(path: str, fraction: float = 0.25, seed: int = 0, **kwargs):
    args = DataArguments(train_file=[path], validation_fraction=fraction, **kwargs)
    return load_documents(args, seed)


def test_no_document_falls_on_both_sides(tmp_path):
    # Each document twice: copies must follow the first one.
    documents = [f"document {n}" for n in range(40)] * 2
    path = write(tmp_path / "a.txt", "\n\n".join(documents))
    loaded = split(path)
    train, validation = texts(loaded["train"]), texts(loaded["validation"])
    assert sorted(train + validation) == sorted(documents)
    assert not set(train) & set(validation)
    assert len(set(validation)) == 10


def test_the_split_follows_the_seed_alone(tmp_path):
    path = write(tmp_path / "a.txt", "\n\n".join(f"document {n}" for n in range(40)))
    once, again, other = split(path), split(path), split(path, seed=1)
    for name in ("train", "validation"):
        assert texts(once[name]) == texts(again[name])
        assert set(texts(once[name])) != set(texts(other[name]))
    for name in ("train", "validation"):  # not in the order of the file
        numbers = [int(text.split()[1]) for text in texts(once[name])]
        assert numbers != sorted(numbers)


def test_the_split_leaves_a_document_on_each_side(tmp_path):
    path = write(tmp_path / "a.txt", "one\n\ntwo\n\nthree")
    assert len(split(path, 0.01)["validation"]) == 1
    assert len(split(path, 0.99)["train"]) == 1
    single = write(tmp_path / "b.txt", "one\ntwo\n\none\ntwo")
    with pytest.raises(ValueError, match="only 1 distinct document"):
        split(single)
    assert len(split(single, data_format="lines")["train"]) == 2


def test_the_embedded_corpus_is_the_default(monkeypatch):
    documents = [f"topic {n}" for n in range(20)]
    monkeypatch.setattr("hf_linear_attn.training.data.embedded_documents", lambda: list(documents))
    loaded = load_documents(DataArguments(), seed=0)
    assert sorted(texts(loaded["train"]) + texts(loaded["validation"])) == sorted(documents)
    assert len(loaded["validation"]) == 1


def local_repository(folder: Path, validation: bool) -> str:
    """A folder that loads as a data set on the Hub does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "data").mkdir(parents=True)
    rows = pa.table({"content": [f"row {n}" for n in range(8)], "n": range(8)})
    configs = "configs:\n- config_name: small\n  data_files:\n"
    for name in ["train", "validation"] if validation else ["train"]:
        pq.write_table(rows, folder / "data" / f"{name}.parquet")
        configs += f"  - split: {name}\n    path: data/{name}.parquet\n"
    write(folder / "README.md", f"---\n{configs}---\n")
    return str(folder)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_local_folder_is_a_data_set(tmp_path, streaming):
    name = local_repository(tmp_path / "repo", validation=True)
    args = DataArguments(
        dataset_name=name,
        dataset_config_name="small",
        text_column="content",
        streaming=streaming,
    )
    loaded = load_documents(args, seed=0)
    assert sorted(texts(loaded["train"])) == [f"row {n}" for n in range(8)]
    assert texts(loaded["validation"]) == [f"row {n}" for n in range(8)]


def test_a_data_set_without_validation_is_split_or_takes_a_file(tmp_path):
    name = local_repository(tmp_path / "repo", validation=False)
    args = DataArguments(dataset_name=name, text_column="content", validation_fraction=0.25)
    loaded = load_documents(args, seed=0)
    assert (len(loaded["train"]), len(loaded["validation"])) == (6, 2)
    args.validation_file = [write(tmp_path / "v.jsonl", '{"content": "own"}')]
    loaded = load_documents(args, seed=0)
    assert (len(loaded["train"]), texts(loaded["validation"])) == (8, ["own"])


@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
def test_a_stream_holds_the_same_documents(tmp_path, suffix):
    rows = [f"row {n}" for n in range(30)]
    content = "\n\n".join(rows if suffix == "txt" else [json.dumps({"text": r}) for r in rows])
    path = write(tmp_path / f"a.{suffix}", content)
    loaded = both(path, streaming=True)
    assert texts(loaded["validation"]) == rows
    assert sorted(texts(loaded["train"])) == sorted(rows)
    assert texts(loaded["train"]) != rows
    with pytest.raises(ValueError, match="streaming cannot hold documents out"):
        split(path, streaming=True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b" \n\t\n", "is empty: only white space"),
        ("a.jsonl", b"", "is empty"),
        ("a.txt", b"text\0text", "is binary: NUL at byte 4"),
        ("a.csv", b"text\n\0", "is binary: NUL at byte 5"),
        ("a.txt", b"the\xe9 text", r"is not UTF-8 text \(near byte 3"),
        ("a.txt", b"the\xc3", r"is not UTF-8 text \(near byte 3"),
        ("a.txt", b"x" * (1 << 20) + b"\xff", r"near byte 1048576"),
        ("a.md", b"text", r"got the suffix '.md', expected one of .txt, .jsonl"),
        ("a", b"text", "got the suffix ''"),
        ("a.jsonl", b'{"text": 1}\n', "column 'text' holds int64, expected text"),
        ("a.jsonl", b'{"txt": "a"}\n', "no column 'text', only txt; did you mean 'txt'"),
        ("a.csv", b"body,n\na,1\n", "no column 'text', only body, n"),
        ("a.jsonl", b'{"text": "a"\n', "cannot be read"),
        ("a.parquet", b"PARQUET", "cannot be read"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=message) as caught:
        both(path)
    assert name in str(caught.value)


def test_a_character_across_two_reads_is_no_error(tmp_path):
    path = write(tmp_path / "a.txt", "x" * ((1 << 20) - 1) + "é")
    assert find_file(path) == Path(path)


def test_missing_files_and_folders(tmp_path):
    write(tmp_path / "train.txt", "text")
    with pytest.raises(ValueError, match=r"trains.txt' does not exist; did you mean 'train.txt'"):
        both(str(tmp_path / "trains.txt"))
    with pytest.raises(ValueError, match="is a folder"):
        both(str(tmp_path))
    (tmp_path / "link.txt").symlink_to("none.txt")
    with pytest.raises(ValueError, match=r"link.txt' is a link that leads nowhere"):
        both(str(tmp_path / "link.txt"))
    with pytest.raises(ValueError, match="an empty name for a file"):
        both("")


def test_a_pipe_is_refused_before_anyone_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(ValueError, match="is a pipe or a device"):
        both(str(tmp_path / "pipe.txt"))


def test_a_header_without_rows_is_one_line(tmp_path):
    with pytest.raises(ValueError, match=r"a\.csv has no rows; give a file with rows"):
        both(write(tmp_path / "a.csv", "text\n"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"validation_file": ["a.txt"]}, "--validation_file needs --train_file"),
        ({"train_file": ["a.txt"], "dataset_name": "x/y"}, "not both"),
        ({"dataset_config_name": "x"}, "needs --dataset_name"),
        ({"streaming": True}, "--streaming needs"),
    ],
)
def test_contradictions(given, message):
    with pytest.raises(ValueError, match=message):
        load_documents(DataArguments(**given), seed=0)


def test_an_unreachable_data_set_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="'nobody/nothing' cannot be read") as caught:
        load_documents(DataArguments(dataset_name="nobody/nothing"), seed=0)
    assert "\n" not in str(caught.value)
    name = local_repository(tmp_path / "repo", validation=False)
    with pytest.raises(ValueError, match=r"cannot be read: .*small"):
        load_documents(DataArguments(dataset_name=name, dataset_config_name="large"), seed=0)
