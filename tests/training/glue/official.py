"""Small folders with the official files' layouts and quirks."""

from pathlib import Path

BOM = "\ufeff"


def write(path: Path, *lines: str, bom: bool = False, end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (BOM if bom else "") + end.join(lines) + end
    path.write_text(text, encoding="utf-8", newline="")


def _rows(count: int, row) -> list[str]:
    return [row(i) for i in range(count)]


def glue_folder(root: Path, train: int = 12, dev: int = 6, test: int = 4) -> Path:
    """All nine tasks; the words tell the classes apart."""
    for split, count in (("train", train), ("dev", dev)):
        write(
            root / f"CoLA/{split}.tsv",
            *_rows(
                count, lambda i: f"gj04\t{i % 2}\t\tA {'right' if i % 2 else 'wrong'} line {i}."
            ),
        )
        write(
            root / f"SST-2/{split}.tsv",
            "sentence\tlabel",
            *_rows(count, lambda i: f"a {'fine' if i % 2 else 'bad'} film {i} \t{i % 2}"),
        )
        write(
            root / f"MRPC/{split}.tsv",
            "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            *_rows(count, lambda i: f'{i % 2}\t{i}\t{i + 100}\tHe said " yes {i}\tShe said it "'),
            bom=True,
        )
        write(
            root / f"STS-B/{split}.tsv",
            "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
            *_rows(
                count,
                lambda i: f'{i}\tg\tf\ty\t0\tn\tn\tA man {i}\tA "dog {i % 3}\t{(i % 6) * 1.0:.3f}',
            ),
        )
        write(
            root / f"QQP/{split}.tsv",
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            *_rows(count, lambda i: f"{i}\t1\t2\tWhy {i}?\tWhy not {i}?\t{i % 2}"),
            *(["99\t1\t2\tcut off"] if split == "train" else []),
        )
        write(
            root / f"QNLI/{split}.tsv",
            "index\tquestion\tsentence\tlabel",
            *_rows(count, lambda i: f"{i}\tWho {i}?\tHe {i}.\t{'not_' * (i % 2)}entailment"),
        )
        write(
            root / f"RTE/{split}.tsv",
            "index\tsentence1\tsentence2\tlabel",
            *_rows(count, lambda i: f"{i}\tIt rains {i}.\tWet {i}.\t{'not_' * (i % 2)}entailment"),
            end="\r\n",
        )
        write(
            root / f"WNLI/{split}.tsv",
            "index\tsentence1\tsentence2\tlabel",
            *_rows(count, lambda i: f"{i}\tThe pin {i}.\tThe hole {i}.\t{i % 2}"),
        )
    names = ("entailment", "neutral", "contradiction")
    for split in ("train", "dev_matched", "dev_mismatched"):
        count = train if split == "train" else dev
        write(
            root / f"MNLI/{split}.tsv",
            "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label",
            *_rows(
                count,
                lambda i: (
                    f"{i}\t0\tPremise {i}\tThen {i}\tneutral\t"
                    + names[0 if split == "dev_mismatched" else i % 3]
                ),
            ),
        )
    _tests(root, test)
    return root


def _tests(root: Path, count: int) -> None:
    pairs = {
        "MRPC": "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "STS-B": "index\tgenre\told\tsentence1\tsentence2",
        "QQP": "id\tx\ty\tquestion1\tquestion2",
        "QNLI": "index\tx\ty\tquestion\tsentence",
        "RTE": "index\tx\ty\tsentence1\tsentence2",
        "WNLI": "index\tx\ty\tsentence1\tsentence2",
    }
    for folder, header in pairs.items():
        rows = _rows(count, lambda i: f"{i}\t0\t0\tOne {i}\tTwo {i}")
        write(root / folder / "test.tsv", header, *rows)
    for split in ("test_matched", "test_mismatched"):
        rows = _rows(count, lambda i: f"{i + 7}\tOne {i}\tTwo {i}")
        write(root / f"MNLI/{split}.tsv", "index\tsentence1\tsentence2", *rows)
    rows = _rows(count, lambda i: f"{i}\tOne {i}\tTwo {i}")
    write(root / "diagnostic/diagnostic.tsv", "index\tsentence1\tsentence2", *rows)
    for folder in ("CoLA", "SST-2"):
        rows = _rows(count, lambda i: f"{i}\tA line {i}")
        write(root / folder / "test.tsv", "index\tsentence", *rows)
