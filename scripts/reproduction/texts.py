"""The texts that the runs take, and where they are from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """A text file.

    Attributes:
        file: below the data folder.
        what: in words.
        source: a public repository, its commit and path.
        size: in bytes.
    """

    file: str
    what: str
    source: str
    size: int


TEXTS = (
    Text(
        "wikipedia_extract.txt", "2,349 Wikipedia articles",
        "turboderp/exllamav2 b9c025b, exllamav2/conversion/standard_cal_data/wiki.utf8", 2_093_275,
    ),
    Text(
        "wikitext-2/valid.txt", "WikiText-2, validation",
        "pytorch/examples 77f55b9, word_language_model/data/wikitext-2", 1_121_681,
    ),
    Text(
        "wikitext-2/test.txt", "WikiText-2, test",
        "pytorch/examples 77f55b9, word_language_model/data/wikitext-2", 1_256_449,
    ),
    Text(
        "gutenberg/2600_war_and_peace.txt", "War and Peace, Project Gutenberg 2600",
        "GITenberg/War-and-Peace_2600 fa22ab9", 3_359_542,
    ),
    Text(
        "gutenberg/2701_moby_dick.txt", "Moby-Dick, Project Gutenberg 2701",
        "GITenberg/Moby-Dick--Or-The-Whale_2701 bdf1948", 1_276_201,
    ),
    Text(
        "gutenberg/1661_sherlock_holmes.txt",
        "The Adventures of Sherlock Holmes, Project Gutenberg 1661",
        "GITenberg/The-Adventures-of-Sherlock-Holmes_1661 7e5dd27", 594_941,
    ),
)  # fmt: skip


def text_lines() -> list[str]:
    """A table of the texts as Markdown."""
    rows = [f"| `{t.file}` | {t.what} | {t.size:,} | {t.source} |" for t in TEXTS]
    return ["| file | what | bytes | from |", "| --- | --- | ---: | --- |", *rows]
