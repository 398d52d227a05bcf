"""Where the suite comes from: fetched once, and looked at before it is trusted."""

import subprocess
import tarfile

import pytest

from tests.suite import source


def distribution(folder, version, *, tests=True):
    """A source distribution like Transformers'."""
    top = folder / f"transformers-{version}"
    (top / "src").mkdir(parents=True)
    (top / "src" / "code.py").write_text("")
    (top / "PKG-INFO").write_text(f"Metadata-Version: 2.4\nVersion: {version}\n")
    if tests:
        (top / "tests").mkdir()
        (top / "tests" / "test_modeling_common.py").write_text("")
    archive = folder / f"{top.name}.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(top, top.name)
    return archive


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """Calls of pip, each of which would bring version 9.1."""
    calls = []

    def download(version, scratch):
        calls.append(version)
        return distribution(scratch / "sent", "9.1")

    monkeypatch.setenv(source.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(source, "_download", download)
    return calls


def test_fetched_once_and_nothing_but_the_tests(fetched, tmp_path):
    folder = source.fetch_tests("9.1")
    assert folder == source.fetch_tests("9.1") == tmp_path / "cache/transformers-9.1/tests"
    assert fetched == ["9.1"]
    found = {path.name for path in folder.parent.iterdir()}
    assert found == {"tests", "PKG-INFO"}
    assert [path.name for path in folder.parent.parent.iterdir()] == ["transformers-9.1"]


def test_another_version_is_refused(fetched):
    with pytest.raises(ValueError, match=r"the tests of transformers 9\.2\. Delete it"):
        source.fetch_tests("9.2")


def test_what_broke_off_is_refused(fetched, tmp_path):
    (tmp_path / "cache/transformers-9.1/tests").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"does not hold the tests of transformers 9\.1\."):
        source.fetch_tests("9.1")
    assert fetched == []


def test_a_distribution_without_tests_is_refused(tmp_path):
    archive = distribution(tmp_path / "sent", "9.1", tests=False)
    with pytest.raises(ValueError, match="has no folder 'tests'"):
        source.unpack(archive, tmp_path)


def test_what_pip_says_is_said(tmp_path, monkeypatch):
    said = subprocess.CompletedProcess([], 1, "", "ERROR: no network\n")
    monkeypatch.setenv(source.CACHE, str(tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda *args, **keywords: said)
    message = r"of transformers 9\.1, which the suite is part of\. It said: ERROR: no network"
    with pytest.raises(ValueError, match=message):
        source.fetch_tests("9.1")
    assert list(tmp_path.iterdir()) == []
