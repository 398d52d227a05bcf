"""The model card of a pretrained model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

_TEMPLATE = Path(__file__).with_name("model_card_template.md")


@dataclass(frozen=True)
class CardFacts:
    """What a card says.

    Attributes:
        name: title of the card.
        path: what `from_pretrained` is given to load the model.
        model_type: of the config, such as "cosformer".
        parameters: number of weights.
        model_facts: attention, layers, width and so on.
        data: one paragraph on the data.
        masked_tokens: number of evaluation tokens.
        results: rows of text: name, before training, after training, unigram model.
        summary: one sentence on the run.
        hyper_parameters: of the optimiser, the masking and the batches.
        example: a sentence with the mask token.
    """

    name: str
    path: str
    model_type: str
    parameters: int
    model_facts: Mapping[str, Any]
    data: str
    masked_tokens: int
    results: Sequence[Sequence[str]]
    summary: str
    hyper_parameters: Mapping[str, Any]
    example: str


def write_model_card(folder: Path, facts: CardFacts) -> Path:
    """Write the card of a masked language model as `README.md` into a folder.

    No licence is stated: that is the author's choice, and the card says so.

    Args:
        folder: exists; a card in it is replaced.
        facts: see `CardFacts`.

    Raises:
        ImportError: without jinja2 (extra `recipes`).
    """
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="fill-mask",
        tags=[facts.model_type, "linear-attention", "masked-lm", "fill-mask"],
    )
    card = ModelCard.from_template(
        data,
        template_path=str(_TEMPLATE),
        model_name=facts.name,
        path=_python_string(facts.path),
        model_type=facts.model_type,
        parameters=facts.parameters,
        model_facts=_cells(facts.model_facts),
        data=facts.data,
        masked_tokens=facts.masked_tokens,
        results=facts.results,
        summary=facts.summary,
        hyper_parameters=_cells(facts.hyper_parameters),
        example=_python_string(facts.example),
    )
    target = folder / "README.md"
    card.save(target)
    return target


def _python_string(text: str) -> str:
    """A Python literal in double quotes, as the card's code has them; JSON writes the same."""
    return json.dumps(text, ensure_ascii=False)


def _cells(table: Mapping[str, Any]) -> dict[str, str]:
    """Values as Markdown table cells: a bar or a line break would end the cell."""
    return {name: " ".join(str(v).split()).replace("|", "\\|") for name, v in table.items()}
