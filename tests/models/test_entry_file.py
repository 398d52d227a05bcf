"""The file that Transformers is pointed to: which code it takes, and where it refuses to run."""

import sys
import types

import pytest
import transformers

import hf_linear_attn as hla
from hf_linear_attn.models.entry_file import CODE, entry_text

NAME = "CosformerConfig"


def run(monkeypatch, installed=None, version=hla.__version__):
    """Run the file beside code of its own, with this in the place of the package."""
    carried = types.ModuleType(f"beside.{CODE}")
    setattr(carried, NAME, "carried")
    monkeypatch.setitem(sys.modules, "beside", types.ModuleType("beside"))
    monkeypatch.setitem(sys.modules, f"beside.{CODE}", carried)
    if installed is not None:
        monkeypatch.setitem(sys.modules, "hf_linear_attn", installed)
    names = {"__name__": "beside.entry", "__package__": "beside"}
    exec(entry_text([NAME], version), names)
    return names[NAME]


def test_a_package_that_is_not_older_is_taken(monkeypatch):
    assert run(monkeypatch, hla) is hla.CosformerConfig
    assert run(monkeypatch, hla, "99.0") == "carried"


def test_a_folder_of_the_packages_name_is_not_the_package(monkeypatch, tmp_path):
    """A clone of the repository, or a folder of models, beside the program."""
    (tmp_path / "hf_linear_attn").mkdir()
    for name in [n for n in sys.modules if n.partition(".")[0] == "hf_linear_attn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", [PathFinderOfOne(tmp_path), *sys.meta_path])
    assert run(monkeypatch) == "carried"
    assert sys.modules["hf_linear_attn"].__file__ is None
    monkeypatch.delitem(sys.modules, "hf_linear_attn")


class PathFinderOfOne:
    """Looks for the package in one folder alone."""

    def __init__(self, folder):
        self.folder = str(folder)

    def find_spec(self, name, path=None, target=None):
        from importlib.machinery import PathFinder

        if name == "hf_linear_attn":
            return PathFinder.find_spec(name, [self.folder])
        return None


class Failing:
    """The package is there, and something that it needs is not."""

    def __init__(self, name):
        self.name = name

    def find_spec(self, name, path=None, target=None):
        if name == "hf_linear_attn":
            raise ModuleNotFoundError(f"No module named {self.name!r}", name=self.name)


def test_a_package_that_is_missing_is_no_error_and_one_that_is_broken_is(monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] == "hf_linear_attn"]:
        monkeypatch.delitem(sys.modules, name)
    before = sys.meta_path
    monkeypatch.setattr(sys, "meta_path", [Failing("hf_linear_attn"), *before])
    assert run(monkeypatch) == "carried"
    monkeypatch.setattr(sys, "meta_path", [Failing("triton"), *before])
    with pytest.raises(ModuleNotFoundError, match="triton"):
        run(monkeypatch)


def test_a_python_or_a_transformers_that_is_too_old_is_named(monkeypatch):
    for found in ("5.23.1", "6.0.0"):
        with monkeypatch.context() as patch:
            patch.setattr(transformers, "__version__", found)
            with pytest.raises(ImportError, match=f"needs transformers>=.*installed is {found}"):
                run(patch, hla)
    monkeypatch.setattr(sys, "version_info", (3, 10, 14))
    with pytest.raises(ImportError, match=r"needs Python 3\.11 or newer"):
        run(monkeypatch, hla)
