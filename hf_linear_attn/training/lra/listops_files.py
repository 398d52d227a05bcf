"""ListOps files in the released layout, `basic_{train,val,test}.tsv`: written and read.

A header `Source<TAB>Target`, then an expression and its value a line; lines end with CR LF.
"""

import random
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, cast

from hf_linear_attn.training.lra.damaged import reading
from hf_linear_attn.training.lra.listops import ListOpsParameters, check_possible, draw
from hf_linear_attn.training.lra.listops_check import evaluate
from hf_linear_attn.training.lra.splits import RawSplit, single
from hf_linear_attn.training.lra.symbols import listops_ids
from hf_linear_attn.training.processes import worthwhile_processes

FILES = {
    "train": "basic_train.tsv",
    "validation": "basic_val.tsv",
    "test": "basic_test.tsv",
}
_HEADER = "Source\tTarget"
# Each piece has its own seed, so that the number of processes changes nothing.
_PIECE = 100
# So many pieces to draw, or rows to read, are worth the start of a process.
_PIECES = 5
_ROWS = 2000


def generate_listops(
    folder: Path,
    parameters: ListOpsParameters,
    counts: dict[str, int],
    seed: int,
    processes: int | None = None,
) -> None:
    """Draw expressions and write the three files; none occurs twice in all of them.

    Every value is found a second time, from the text, and compared.

    Args:
        folder: exists.
        parameters: of the expressions.
        counts: how many, by split.
        seed: the same one gives the same files, on any number of processes.
        processes: that draw; None = all usable cores.

    Raises:
        ValueError: parameters that give too few expressions, before any is drawn.
    """
    check_possible(parameters, sum(counts.values()))
    expressions = _draw_different(parameters, sum(counts.values()), seed, processes)
    for split, count in counts.items():
        with open(folder / FILES[split], "w", encoding="utf-8", newline="") as file:
            file.write(f"{_HEADER}\r\n")
            for source in islice(expressions, count):
                file.write(f"{source}\t{evaluate(source)}\r\n")


def read_listops(folder: Path, processes: int | None = None) -> dict[str, RawSplit]:
    """Read the three files; every label is compared with the value of its expression.

    Args:
        folder: holds the files.
        processes: that read; None = all usable cores.

    Raises:
        ValueError: another file, or a row that is wrong; names file and row.
    """
    return {split: _read_file(folder / name, processes) for split, name in FILES.items()}


def listops_processes(wanted: int | None, examples: int) -> int | None:
    """How many processes draw so many expressions; None = this one alone."""
    return worthwhile_processes(wanted, -(-examples // _PIECE), _PIECES)


def encode_rows(batch: dict[str, list[Any]], name: str) -> dict[str, list[Any]]:
    """Ids and labels of lines of a file.

    Args:
        batch: columns `line` and `number`.
        name: of the file, for the message.

    Raises:
        ValueError: a line that is no expression with its value.
    """
    ids, labels = [], []
    for line, number in zip(batch["line"], batch["number"], strict=True):
        source, tab, target = line.partition("\t")
        try:
            if not tab or not target.strip().isdecimal():
                raise ValueError("expected an expression, a TAB and its value")
            ids.append(listops_ids(source).tolist())
            value = evaluate(source)
            if value != int(target):
                raise ValueError(f"the label is {target}, the value of the expression is {value}")
        except ValueError as error:
            raise ValueError(f"{name}, line {number}: {error}") from error
        labels.append(value)
    return {"ids": ids, "label": labels}


def draw_pieces(
    batch: dict[str, list[Any]], parameters: ListOpsParameters, seed: int
) -> dict[str, list[Any]]:
    """The expressions of pieces, `_PIECE` of each.

    Args:
        batch: column `piece`.
        parameters: of the expressions.
        seed: of all pieces.
    """
    sources: list[str] = []
    for piece in batch["piece"]:
        drawn = islice(draw(parameters, random.Random(f"listops {seed} {piece}")), _PIECE)
        for expression in drawn:
            if evaluate(expression.source) != expression.value:
                raise RuntimeError(f"two evaluations differ: {expression}")
            sources.append(expression.source)
    return {"source": sources}


def _draw_different(
    parameters: ListOpsParameters, count: int, seed: int, processes: int | None
) -> Iterable[str]:
    """So many different expressions, piece after piece."""
    from datasets import Dataset

    kept: dict[str, None] = {}
    begin = 0
    while len(kept) < count:
        end = begin + -(-(count - len(kept)) // _PIECE)
        pieces = Dataset.from_dict({"piece": list(range(begin, end))}).map(
            draw_pieces,
            batched=True,
            batch_size=1,
            remove_columns=["piece"],
            fn_kwargs={"parameters": parameters, "seed": seed},
            num_proc=worthwhile_processes(processes, end - begin, _PIECES),
            load_from_cache_file=False,
            desc="Drawing ListOps expressions, 100 a step",
        )
        for source in pieces["source"]:
            kept.setdefault(source)
        begin = end
    return iter(kept)


def _read_file(path: Path, processes: int | None) -> RawSplit:
    from datasets import Dataset

    with reading(path, "a ListOps file"):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    if not lines or lines[0] != _HEADER:
        raise ValueError(
            f"{path}: got the first line {(lines or [''])[0][:40]!r}, expected the header of a "
            f"ListOps file, {_HEADER!r}"
        )
    if len(lines) == 1:
        raise ValueError(f"{path}: no expression in this file")
    numbered = {"line": lines[1:], "number": list(range(2, len(lines) + 1))}
    rows = Dataset.from_dict(numbered).map(
        encode_rows,
        batched=True,
        remove_columns=["line", "number"],
        fn_kwargs={"name": path.name},
        num_proc=worthwhile_processes(processes, len(lines) - 1, _ROWS),
        load_from_cache_file=False,
        desc=f"Reading and checking {path.name}",
    )
    arrays = (cast(Any, row)["ids"] for row in rows.with_format("numpy"))
    return single([ids.astype("uint16") for ids in arrays], rows["label"])
