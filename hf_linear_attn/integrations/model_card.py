"""The model card of a trained model, whatever its task."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results
from huggingface_hub.utils import validate_repo_id

from hf_linear_attn.integrations.card_file import write_card
from hf_linear_attn.integrations.citations import CITATIONS, citations_of

_TEMPLATE = Path(__file__).with_name("model_card_template.md")


@dataclass(frozen=True)
class Loading:
    """How the model is loaded and tried.

    Attributes:
        model_class: an Auto class, or the model's own.
        module: where it is imported from.
        has_tokenizer: whether one is saved with the model.
        pipeline: name of the pipeline that runs it, also the card's `pipeline_tag`; None where
            there is none.
        example: what the pipeline is called with.
        options: further arguments of the call, numbers or words.
        imports: where there is no pipeline, what `code` imports.
        code: Python lines that go from an input to `model`'s answer.
        input_kind: what they begin with, such as "an expression".
    """

    model_class: str
    module: str = "transformers"
    has_tokenizer: bool = True
    pipeline: str | None = None
    example: str = ""
    options: Mapping[str, int | float | str] = field(default_factory=dict)
    imports: str = ""
    code: str = ""
    input_kind: str = ""


@dataclass(frozen=True)
class ResultTable:
    """What was measured.

    Attributes:
        columns: headings, the first one usually empty.
        rows: one text a column.
        introduction: on which data, and what the columns mean.
        notes: what stands below the table.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    introduction: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class CardFacts:
    """What a card says.

    Attributes:
        name: title of the card.
        path: what `from_pretrained` is given to load the model: a folder or a name on the Hub.
        model_type: of the config, such as "cosformer".
        purpose: such as "masked language modelling".
        parameters: number of weights.
        loading: see `Loading`.
        tags: of the task.
        mechanisms: registry names of the attentions in the model, whose papers are cited.
        model_facts: attention, layers, width and so on.
        data: on the data, one item each.
        results: see `ResultTable`.
        eval_results: the same for the Hub's `model-index`.
        summary: one or two sentences on the run.
        hyper_parameters: of the optimiser, the batches and the task.
        hardware: what it ran on, and the versions of the libraries.
        limits: what the model is not good for, or what was not measured; one sentence each.
        datasets: names on the Hub.
        base_model: name on the Hub of the model that training began with.
    """

    name: str
    path: str
    model_type: str
    purpose: str
    parameters: int
    loading: Loading
    tags: Sequence[str]
    mechanisms: Sequence[str]
    model_facts: Mapping[str, Any]
    data: Sequence[str]
    results: ResultTable
    eval_results: Sequence[EvalResult]
    summary: str
    hyper_parameters: Mapping[str, Any]
    hardware: Mapping[str, Any]
    limits: Sequence[str]
    datasets: Sequence[str] = field(default_factory=tuple)
    base_model: str | None = None


def write_model_card(folder: Path, facts: CardFacts) -> Path:
    """Write the card of a model as `README.md` into a folder.

    No licence is stated: that is the author's choice, and the card says so.

    Args:
        folder: exists; for a card in it see `write_card`.
        facts: see `CardFacts`.

    Raises:
        ImportError: without jinja2 (extra `recipes`).
        ValueError: metadata that the Hub would refuse.
    """
    data = card_metadata(facts)
    known = [name for name in dict.fromkeys(facts.mechanisms) if name in CITATIONS]
    card = ModelCard.from_template(
        data,
        template_path=str(_TEMPLATE),
        facts=facts,
        path=_python_string(facts.path),
        example=_python_string(facts.loading.example),
        options="".join(f", {name}={value!r}" for name, value in facts.loading.options.items()),
        model_facts=_cells(facts.model_facts),
        hyper_parameters=_cells(facts.hyper_parameters),
        hardware=_cells(facts.hardware),
        columns=[_cell(column) for column in facts.results.columns],
        rows=[[_cell(text) for text in row] for row in facts.results.rows],
        citations=citations_of(facts.mechanisms),
        uncited=[name for name in dict.fromkeys(facts.mechanisms) if name not in known],
    )
    return write_card(folder / "README.md", str(card))


def card_metadata(facts: CardFacts) -> ModelCardData:
    """The card's header, with a `model-index`.

    `ModelCard.validate` asks the Hub. What can be known without it is checked here: the fields
    that `huggingface_hub` requires, names that can be names on the Hub, numbers that JSON has, and
    a `model-index` that is read back as it was written. A result that is no finite number is left
    out of the header; it stands in the card's table.

    Raises:
        ValueError: metadata that the Hub would refuse.
    """
    results = [result for result in facts.eval_results if math.isfinite(result.metric_value)]
    data = ModelCardData(
        library_name="transformers",
        model_name=facts.name,
        pipeline_tag=facts.loading.pipeline,
        tags=[facts.model_type, "linear-attention", *facts.tags],
        datasets=list(facts.datasets) or None,
        base_model=facts.base_model,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        eval_results=results or None,
    )
    names = [*facts.datasets, *([facts.base_model] if facts.base_model else [])]
    for name in [*names, *(result.dataset_type for result in results)]:
        _check_hub_name(name)
    if results:
        index = eval_results_to_model_index(facts.name, results)
        name, again = model_index_to_eval_results(index)
        if name != facts.name or sorted(map(repr, again)) != sorted(map(repr, results)):
            raise ValueError("the card's model-index is not read back as it was written")
    return data


def _check_hub_name(name: str) -> None:
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(f"the model card names {name!r}, which the Hub refuses: {error}") from None


def _python_string(text: str) -> str:
    """A Python literal in double quotes, as the card's code has them; JSON writes the same."""
    return json.dumps(text, ensure_ascii=False)


def _cells(table: Mapping[str, Any]) -> dict[str, str]:
    return {name: _cell(value) for name, value in table.items()}


def _cell(value: Any) -> str:
    """A value as a Markdown table cell: a bar or a line break would end the cell."""
    return " ".join(str(value).split()).replace("|", "\\|")
