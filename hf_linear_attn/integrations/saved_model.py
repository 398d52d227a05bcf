"""A saved model of this package, from a folder or the Hub, with all that lies beside it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer
from transformers.utils.hub import cached_file

from hf_linear_attn.integrations.config_card import auto_class_of, code_note
from hf_linear_attn.integrations.hub_errors import hub_errors
from hf_linear_attn.models.export import auto_map
from hf_linear_attn.models.with_code import ConfigWithCode


@dataclass(frozen=True)
class SavedModel:
    """What was found.

    Attributes:
        model: with the head it was saved with, in the dtype it was saved in.
        tokenizer: None where there is none.
        card: text of the card; None where there is none.
    """

    model: Any
    tokenizer: Any
    card: str | None


def load_saved_model(source: str, revision: str | None = None) -> SavedModel:
    """Load a model of this package with its tokenizer and card.

    Args:
        source: a folder, or a name on the Hub.
        revision: branch, tag or commit there; None = the default branch.

    Raises:
        ValueError: there is no such model, it is none of this package, or its weights are not
            whole.
    """
    with hub_errors(source, revision):
        config = _config(source, revision)
        model = _model(source, revision, config)
        tokenizer = None
        if _beside(source, revision, "tokenizer_config.json") is not None:
            tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
        card = _beside(source, revision, "README.md")
        return SavedModel(model, tokenizer, card and Path(card).read_text(encoding="utf-8"))


def moved_card(saved: SavedModel, source: str, where: str, *, with_code: bool) -> str | None:
    """The card that came with a model, for the place the model goes to.

    Args:
        saved: the model.
        source: where it was; the card's code loads it from there.
        where: where it will be.
        with_code: whether its code goes along; then the card says how to load it by that.
    """
    if saved.card is None:
        return None
    text = saved.card
    for old in {source, str(Path(source))}:
        text = text.replace(
            json.dumps(old, ensure_ascii=False), json.dumps(where, ensure_ascii=False)
        )
    if with_code and "trust_remote_code" not in text:
        auto_class, has_tokenizer = auto_class_of(saved.model), saved.tokenizer is not None
        note = code_note(where, auto_class, has_tokenizer=has_tokenizer)
        text = f"{text.rstrip()}\n\n## Without hf_linear_attn\n\n{note}\n"
    return text


def _config(source: str, revision: str | None) -> ConfigWithCode:
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise ValueError(f"{source} holds no saved model: there is no config.json in it.")
    config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
    if not isinstance(config, ConfigWithCode):
        raise ValueError(
            f"{source} is a model of type {config.model_type!r}, not one of hf_linear_attn: "
            "convert it first."
        )
    return config


def _model(source: str, revision: str | None, config: ConfigWithCode) -> Any:
    heads = {entry.split(".")[1]: auto for auto, entry in auto_map(config).items()}
    saved_as = next((name for name in config.architectures or () if name in heads), None)
    if saved_as is None:
        raise ValueError(
            f"{source} says it was saved as {config.architectures}; expected one of "
            f"{', '.join(sorted(set(heads) - {type(config).__name__}))} in its config.json."
        )
    loader = getattr(transformers, heads[saved_as])
    try:
        model, report = loader.from_pretrained(
            source, revision=revision, config=config, dtype="auto", output_loading_info=True
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        if not Path(source).is_dir() and isinstance(error, OSError):
            raise
        raise ValueError(f"the weights of {source} cannot be loaded: {error}") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise ValueError(
            f"the weights of {source} lack {missing[0]}"
            f"{f' and {len(missing) - 1} more' if missing[1:] else ''}, which its config asks for."
        )
    return model


def _beside(source: str, revision: str | None, name: str) -> str | None:
    """A file of the model, or None if it has none of that name."""
    return cached_file(source, name, revision=revision, _raise_exceptions_for_missing_entries=False)
