"""The card of a model of which nothing but its config is known."""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from hf_linear_attn.integrations.card_drafts import signed
from hf_linear_attn.integrations.citations import CITATIONS, citations_of
from hf_linear_attn.models.export import auto_map

_PIPELINES = {
    "AutoModel": "feature-extraction",
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForMultipleChoice": "multiple-choice",
}
"""What the Hub calls the task of each head."""

_FACTS = (
    "layer_attention",
    "is_decoder",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "position_embedding_type",
    "max_position_embeddings",
    "vocab_size",
)


def config_card(
    model: Any,
    where: str,
    *,
    with_code: bool,
    has_tokenizer: bool,
    origin: str | None = None,
    revision: str | None = None,
) -> str:
    """A card that says what the model is and how it is loaded; its author knows the rest.

    It is signed, so that it gives way to a newer one while nobody edits it, unless it knows an
    origin, which newer ones do not.

    Args:
        model: one of this package.
        where: what `from_pretrained` is given: a folder or a name on the Hub.
        with_code: whether the code lies beside the model.
        has_tokenizer: whether a tokenizer does.
        origin: the checkpoint whose weights it was converted from.
        revision: branch of `where` that has the model; None = the default one.
    """
    config, auto_class = model.config, auto_class_of(model)
    with_tokenizer = {"has_tokenizer": has_tokenizer, "revision": revision}
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=_PIPELINES[auto_class] if has_tokenizer else None,
        tags=[config.model_type, "linear-attention"],
        base_model=origin if origin is not None and _is_on_the_hub(origin) else None,
    )
    trunk = getattr(config, "trunk", None) or config
    facts = "\n".join(f"| {name} | {getattr(trunk, name)} |" for name in _FACTS)
    papers = "\n\n".join(
        f"```bibtex\n{entry}\n```"
        for entry in citations_of([n for n in config.attention_names if n in CITATIONS])
    )
    sections = [
        f"---\n{data.to_yaml()}\n---",
        f"# {where.rstrip('/').split('/')[-1]}",
        f"{_architecture(model)}, {model.num_parameters():,} parameters. "
        + ("" if origin is None else _converted(origin))
        + "The author has yet to say what it was trained on, what it reaches and under which "
        "licence it may be used.",
        "## Use",
        loading_code(where, auto_class, **with_tokenizer),
        *([code_note(where, auto_class, **with_tokenizer)] if with_code else []),
        f"## Model\n\n| | |\n|---|---|\n{facts}",
        *([f"## Citation\n\n{papers}"] if papers else []),
    ]
    card = "\n\n".join(sections) + "\n"
    return signed(card) if origin is None else card


def _architecture(model: Any) -> str:
    """What the model is; the Auto classes load a class of this package."""
    own, found = class_of(model), type(model).__name__
    if own == found:
        return f"A `{found}` of `hf_linear_attn`"
    return (
        f"A `{found}`, which is built on `{own}` of `hf_linear_attn` (the code below loads its "
        f"weights as `{own}`; for the rest of `{found}` ask the author)"
    )


def _converted(origin: str) -> str:
    name = origin.rstrip("/").split("/")[-1] if not _is_on_the_hub(origin) else origin
    return (
        f"Its weights were converted from `{name}`, whose licence holds for them; `conversion.md` "
        "accounts for every tensor. With another attention than the one they were trained with it "
        "has to be finetuned. "
    )


def _is_on_the_hub(origin: str) -> bool:
    """Is this a name on the Hub, and no folder here?"""
    try:
        validate_repo_id(origin)
    except HFValidationError:
        return False
    return "/" in origin and not Path(origin).exists()


def heads_of(config: Any) -> dict[str, str]:
    """The Auto class for each class of a config."""
    return {entry.split(".")[1]: auto for auto, entry in auto_map(config).items()}


def auto_class_of(model: Any) -> str:
    """Name of the Auto class that loads a model with its head."""
    return heads_of(model.config)[class_of(model)]


def class_of(model: Any) -> str:
    """Name of the class of this package that a model is of, or is built on."""
    heads = heads_of(model.config)
    return next(found.__name__ for found in type(model).__mro__ if found.__name__ in heads)


def loading_code(
    where: str, auto_class: str, *, has_tokenizer: bool, revision: str | None = None
) -> str:
    """Python that loads a model where the package is installed."""
    path = place(where, revision)
    lines = [
        "import hf_linear_attn  # registers the models with the Auto classes",
        f"from transformers import {auto_class}{', AutoTokenizer' if has_tokenizer else ''}",
        "",
        *([f"tokenizer = AutoTokenizer.from_pretrained({path})"] if has_tokenizer else []),
        f"model = {auto_class}.from_pretrained({path})",
    ]
    return "```python\n{}\n```".format("\n".join(lines))


def place(where: str, revision: str | None) -> str:
    """Arguments that say where a model is, in Python."""
    path = json.dumps(where, ensure_ascii=False)
    if revision is None:
        return path
    return f"{path}, revision={json.dumps(revision, ensure_ascii=False)}"


def code_note(
    where: str, auto_class: str, *, has_tokenizer: bool, revision: str | None = None
) -> str:
    """How a model that carries its code is loaded without the package."""
    given = f"{place(where, revision)}, trust_remote_code=True"
    lines = [
        f"from transformers import {auto_class}{', AutoTokenizer' if has_tokenizer else ''}",
        "",
        *([f"tokenizer = AutoTokenizer.from_pretrained({given})"] if has_tokenizer else []),
        f"model = {auto_class}.from_pretrained({given})",
    ]
    code = "\n".join(lines)
    return f"The model brings its own code. Without `hf_linear_attn`:\n\n```python\n{code}\n```"
