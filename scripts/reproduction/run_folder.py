"""What a finished run says of itself: its results, and the card it has written."""

import re
from pathlib import Path
from typing import Any

import safetensors
import torch

from hf_linear_attn.training.results_file import ResultsFile
from reproduction.figures import RunFigures

_CONDITIONS = ("device", "torch", "transformers", "hf_linear_attn")


def run_figures(folder: Path, model: str, seed: int, steps: int) -> RunFigures:
    """The figures of a finished run.

    Args:
        folder: of the run.
        model: row of the grid.
        seed, steps: its settings.
    """
    results = ResultsFile(folder)
    card = (folder / "README.md").read_text(encoding="utf-8")
    return RunFigures(
        model=model,
        seed=seed,
        perplexity=results.get("eval_perplexity", float),
        loss=results.get("eval_loss", float),
        unigram_perplexity=results.get("eval_unigram_perplexity", float),
        steps=steps,
        parameters=_parameters(folder / "model.safetensors"),
        predicted=int(
            _only(r"^Evaluation on ([\d,]+) (?:masked|predicted) tokens", card).replace(",", "")
        ),
        conditions=conditions(card),
    )


def conditions(card: str) -> dict[str, str]:
    """Machine, threads and versions of a run."""
    return {name: _only(rf"^\| {name} \| (.+) \|$", card) for name in _CONDITIONS}


def data_lines(folder: Path) -> list[str]:
    """What became of the texts of a run: documents, tokens and blocks."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    return [f"{part}: {_only(rf'^- {part}: (.+)$', card)}" for part in ("train", "validation")]


def _only(pattern: str, card: str) -> Any:
    found = re.findall(pattern, card, re.MULTILINE)
    if len(found) != 1:
        raise ValueError(f"a card has {len(found)} places for {pattern!r}, expected one")
    return found[0]


def _parameters(file: Path) -> int:
    with safetensors.safe_open(file, "pt") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    return sum(torch.Size(shape).numel() for shape in shapes)
