"""Transformers' own tests, from the source distribution of the version that is installed.

pip fetches it once; only its `tests/` is unpacked, and none of it is committed or changed.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import transformers

CACHE = "HF_LINEAR_ATTN_SUITE_CACHE"


def cache_folder() -> Path:
    """Where fetched distributions are kept: the environment variable, else the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(CACHE) or Path(home) / "hf_linear_attn" / "suite")


def fetch_tests(version: str = transformers.__version__) -> Path:
    """The folder `tests` of Transformers' source distribution; fetched if it is not there yet.

    Args:
        version: of Transformers.

    Raises:
        ValueError: pip cannot fetch it, or what is in the cache is another version's.
    """
    folder = cache_folder() / f"transformers-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            archive = _download(version, Path(scratch))
            unpack(archive, Path(scratch)).rename(folder)
    check_version(folder, version)
    return folder / "tests"


def _download(version: str, scratch: Path) -> Path:
    # --no-build-isolation: pip asks the distribution for its name and builds nothing.
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
        "--no-build-isolation", "--dest", str(scratch), f"transformers=={version}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    found = list(scratch.glob("*.tar.gz"))
    if done.returncode or len(found) != 1:
        raise ValueError(
            f"pip found no source distribution of transformers {version}, which the suite is part "
            f"of. It said: {done.stderr.strip()[-500:]}"
        )
    return found[0]


def unpack(archive: Path, scratch: Path) -> Path:
    """Unpack the tests and the metadata of an archive; the folder of the distribution.

    Args:
        archive: a source distribution.
        scratch: where to.

    Raises:
        ValueError: the archive has no tests.
    """
    with tarfile.open(archive) as opened:
        top = opened.getnames()[0].split("/")[0]
        wanted = (f"{top}/tests/", f"{top}/PKG-INFO")
        for member in opened.getmembers():
            if member.isfile() and member.name.startswith(wanted):
                _write(opened, member, scratch)
    folder = scratch / top
    if not (folder / "tests").is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        raise ValueError(f"{archive.name} has no folder 'tests': the suite does not come with it.")
    return folder


def _write(opened: tarfile.TarFile, member: tarfile.TarInfo, scratch: Path) -> None:
    """Write one file; by hand, as the first releases of Python 3.11 have no filters of tarfile."""
    target = scratch / member.name
    content = opened.extractfile(member)
    if content is None or not target.resolve().is_relative_to(scratch.resolve()):
        raise ValueError(f"{opened.name} holds {member.name!r}, which leads out of its folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.read())


def check_version(folder: Path, version: str) -> None:
    """See that a folder holds what its name says.

    Raises:
        ValueError: it does not.
    """
    metadata = folder / "PKG-INFO"
    lines = metadata.read_text(encoding="utf-8").splitlines() if metadata.is_file() else []
    if f"Version: {version}" not in lines or not (folder / "tests").is_dir():
        raise ValueError(
            f"{folder} does not hold the tests of transformers {version}. Delete it, and they are "
            "fetched again."
        )
