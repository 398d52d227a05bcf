"""The texts that the runs take, and where they are from."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_linear_attn.training.atomic_files import replaced


@dataclass(frozen=True)
class Text:
    """A text file.

    Attributes:
        file: below the data folder.
        what: in words.
        repository, commit: public, on GitHub.
        size: in bytes.
        sha256: of its bytes.
    """

    file: str
    what: str
    repository: str
    commit: str
    size: int
    sha256: str


TEXTS = (
    Text(
        "wikipedia_extract.txt", "2,349 Wikipedia articles",
        "turboderp/exllamav2", "b9c025b", 2_093_275,
        "d53fe0aeadf3355eb5d32b48bf8691575244c31caccae88ed46be8e1b40209c7",
    ),
    Text(
        "wikitext-2/valid.txt", "WikiText-2, validation",
        "pytorch/examples", "77f55b9", 1_121_681,
        "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
    ),
    Text(
        "wikitext-2/test.txt", "WikiText-2, test",
        "pytorch/examples", "77f55b9", 1_256_449,
        "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
    ),
    Text(
        "gutenberg/2600_war_and_peace.txt", "War and Peace, Project Gutenberg 2600",
        "GITenberg/War-and-Peace_2600", "fa22ab9", 3_359_542,
        "6cbcc5ca5e590fb9ace161a5b93e4ecf280d7118104be0d63b686c004cfa70ae",
    ),
    Text(
        "gutenberg/2701_moby_dick.txt", "Moby-Dick, Project Gutenberg 2701",
        "GITenberg/Moby-Dick--Or-The-Whale_2701", "bdf1948", 1_276_201,
        "baf9b04fcf6e0008f30eaaa6697277751448c1070b20175e0082f28cbb161fd3",
    ),
    Text(
        "gutenberg/1661_sherlock_holmes.txt",
        "The Adventures of Sherlock Holmes, Project Gutenberg 1661",
        "GITenberg/The-Adventures-of-Sherlock-Holmes_1661", "7e5dd27", 594_941,
        "2a0ce5568625a304f54fbb6bfdeeadf527a1437254b5f0e06b5a9e233d4784a2",
    ),
)  # fmt: skip


def text_lines() -> list[str]:
    """A table of the texts as Markdown, and how to get them."""
    rows = [f"| `{t.file}` | {t.what} | {t.size:,} | {t.repository} {t.commit} |" for t in TEXTS]
    clones = dict.fromkeys((t.repository, t.commit) for t in TEXTS)
    return [
        "| file | what | bytes | from |",
        "| --- | --- | ---: | --- |",
        *rows,
        "",
        "In the repositories the files have other names and are found by their SHA-256:",
        "",
        "```",
        *(
            f"git clone https://github.com/{name} clones/{i} && git -C clones/{i} checkout {commit}"
            for i, (name, commit) in enumerate(clones, 1)
        ),
        "python scripts/reproduce.py --collect clones --data_dir texts",
        "```",
    ]


def collect_texts(source: Path, folder: Path) -> None:
    """Copy the texts out of a folder, by their content.

    Args:
        source: they are anywhere below it, under any names.
        folder: of the texts; made where there is none. A file that is there is never replaced.

    Raises:
        ValueError: some are not found, or another file has the name of one. Those that are found
            are copied.
    """
    sizes = {text.size for text in TEXTS}
    files = (path for path in source.rglob("*") if path.is_file())
    found = {_sha256(path): path for path in files if path.stat().st_size in sizes}
    for text in (text for text in TEXTS if text.sha256 in found):
        target = folder / text.file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            with replaced(target) as temporary:
                shutil.copyfile(found[text.sha256], temporary)
    check_texts(folder, [text.file for text in TEXTS])


def check_texts(folder: Path, names: Sequence[str]) -> None:
    """Raise ValueError where a text is missing or another one than that of the page.

    Args:
        folder: of the texts.
        names: of their files.
    """
    for text in (text for text in TEXTS if text.file in names):
        file = folder / text.file
        where = (
            f"it is in https://github.com/{text.repository} at {text.commit}; clone that, and "
            "--collect takes it from there"
        )
        if not file.is_file():
            raise ValueError(f"data_dir {folder} has no {text.file}: {where}")
        if _sha256(file) != text.sha256:
            raise ValueError(
                f"{file} is not the text that the results are of: move it away; {where}"
            )


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
