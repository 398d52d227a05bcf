"""The embedded corpus."""

import logging
import sys

import pytest

from hf_linear_attn.training.corpus import embedded_documents


@pytest.fixture(scope="module")
def documents():
    return embedded_documents()


def test_about_two_megabytes_of_distinct_documents(documents):
    assert 1_500_000 < sum(map(len, documents)) < 4_000_000
    assert len(documents) == len(set(documents)) > 400
    assert all(document == document.strip() != "" for document in documents)


def test_topics_come_first_and_modules_follow(documents):
    from pydoc_data.topics import topics

    assert documents[0] == topics[min(topics)].strip()
    modules = documents[len(set(topics.values())) :]
    assert any(document.startswith("Heap queue algorithm") for document in modules)


def write_library(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_reads_without_importing_sorted_and_without_repeats(tmp_path):
    write_library(
        tmp_path,
        {
            "b.py": '"""Module b."""\ndef f():\n    """Common."""\n',
            "a/__init__.py": '"""Package a."""\nraise SystemExit\n',
            "a.py": 'class C:\n    """Class C.\n\n    More.\n    """\n    async def g(self):\n'
            '        """Common."""\n',
            "none.py": "x = 1\n",
            "test/t.py": '"""A test."""\n',
            "site-packages/s.py": '"""Foreign."""\n',
            "idlelib/i.py": '"""An editor."""\n',
            "empty.py": '"""   """\n',
        },
    )
    read = embedded_documents(tmp_path)[-3:]
    assert read == ["Class C.\n\nMore.\n\nCommon.", "Package a.", "Module b."]
    assert "a" not in sys.modules
    assert embedded_documents(tmp_path) == embedded_documents(tmp_path)


def test_a_broken_source_file_is_left_out_and_named(tmp_path, caplog):
    write_library(tmp_path, {"a.py": '"""Fine."""\n', "bad.py": "def (:\n"})
    (tmp_path / "latin.py").write_bytes(b'"""\xe9"""\n')
    with caplog.at_level(logging.WARNING):
        assert embedded_documents(tmp_path)[-1] == "Fine."
    assert "bad.py" in caplog.text
    assert "latin.py" in caplog.text


def test_a_python_without_sources_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="give --train_file or --dataset_name"):
        embedded_documents(tmp_path)
