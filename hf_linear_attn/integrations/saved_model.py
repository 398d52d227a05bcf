"""A saved model of this package, from a folder or the Hub, with all that lies beside it."""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer
from transformers.utils.hub import cached_file

from hf_linear_attn.integrations.config_card import heads_of
from hf_linear_attn.integrations.hub_errors import hub_errors
from hf_linear_attn.models.generation_settings import check_generation_settings
from hf_linear_attn.models.saved_weights import check_no_pickle, check_numbers
from hf_linear_attn.models.with_code import ConfigWithCode

REPORT, PLOT = "conversion.md", "attention_transfer.png"
"""Files beside a converted model: what became of every tensor, and the losses of a transfer."""


@dataclass(frozen=True)
class SavedModel:
    """What was found.

    Attributes:
        model: with the head it was saved with, in the dtype it was saved in.
        tokenizer: None where there is none.
        card: text of the card; None where there is none.
        left_out: names of saved tensors that the model has no place for.
        pages: files that its card speaks of (what a conversion did).
    """

    model: Any
    tokenizer: Any
    card: str | None
    left_out: tuple[str, ...] = ()
    pages: tuple[Path, ...] = ()


def load_saved_model(source: str, revision: str | None = None) -> SavedModel:
    """Load a model of this package with its tokenizer and card.

    Args:
        source: a folder, or a name on the Hub.
        revision: branch, tag or commit there; None = the default branch.

    Raises:
        ValueError: there is no such model, it is none of this package, its files are not whole, or
            one that is handed on as it stands is a link to a file outside of the folder.
    """
    _check_source(source, revision)
    try:
        with hub_errors(source, revision):
            config = _config(source, revision)
            model, left_out = _model(source, revision, config)
            tokenizer = _tokenizer(source, revision)
            card = _own(source, revision, "README.md")
            pages = [_own(source, revision, name) for name in (REPORT, PLOT)]
    except ValueError as error:
        path = Path(source)
        if not path.exists() and len(path.parts) > 1 and path.parent.is_dir():  # a slip, likely
            error.args = (f"there is no folder {source} here, and {error}",)
        raise
    text = card and _text(Path(card))
    return SavedModel(model, tokenizer, text, left_out, tuple(Path(page) for page in pages if page))


def _check_source(source: str, revision: str | None) -> None:
    """Refuse what is neither a folder nor can be a name on the Hub."""
    path = Path(source)
    if path.is_dir():
        if revision is not None:
            raise ValueError(f"{source} is a folder, and revision {revision!r} is for the Hub.")
        if not (path / "config.json").is_file():
            raise ValueError(f"{source} holds no saved model: there is no config.json in it.")
        return
    if path.exists():
        raise ValueError(f"{source} is a file; give the folder of a saved model.")
    try:
        validate_repo_id(source)
    except HFValidationError:
        raise ValueError(f"there is no folder {source} here.") from None


def _config(source: str, revision: str | None) -> ConfigWithCode:
    try:
        config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
    except (OSError, KeyError, TypeError) as error:
        raise ValueError(f"the config of {source} cannot be loaded: {error}") from error
    if not isinstance(config, ConfigWithCode):
        raise ValueError(
            f"{source} is a model of type {config.model_type!r}, not one of hf_linear_attn: "
            "convert it first."
        )
    return config


def _model(
    source: str, revision: str | None, config: ConfigWithCode
) -> tuple[Any, tuple[str, ...]]:
    """The model, and what was saved and has no place in it."""
    heads = heads_of(config)
    saved_as = next((name for name in config.architectures or () if name in heads), None)
    if saved_as is None:
        raise ValueError(
            f"{source} says it was saved as {config.architectures}; expected one of "
            f"{', '.join(sorted(set(heads) - {type(config).__name__}))} in its config.json."
        )
    loader = getattr(transformers, heads[saved_as])
    check_no_pickle(source)
    check_generation_settings(source, {"revision": revision})
    try:
        model, report = loader.from_pretrained(
            source, revision=revision, config=config, dtype="auto", output_loading_info=True,
            ignore_mismatched_sizes=True, use_safetensors=True,
        )  # fmt: skip
    except (OSError, RuntimeError, SafetensorError, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"the weights of {source} cannot be loaded: {error}") from error
    if report["mismatched_keys"]:
        name, found, wanted = min(report["mismatched_keys"])
        raise ValueError(
            f"the weights of {source} do not fit its config: {name} is {tuple(found)}, and "
            f"{tuple(wanted)} is asked for{_and_more(report['mismatched_keys'])}."
        )
    if report["missing_keys"]:
        raise ValueError(
            f"the weights of {source} lack {min(report['missing_keys'])}"
            f"{_and_more(report['missing_keys'])}, which its config asks for."
        )
    check_numbers(model, f"the weights of {source}")
    return model, tuple(sorted(report["unexpected_keys"]))


def _and_more(names: Any) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _tokenizer(source: str, revision: str | None) -> Any:
    if _beside(source, revision, "tokenizer_config.json") is None:
        return None
    try:
        return AutoTokenizer.from_pretrained(source, revision=revision)
    except Exception as error:  # the tokenizers library has no narrower one
        raise ValueError(f"the tokenizer of {source} cannot be loaded: {error}") from error


def _text(card: Path) -> str:
    try:
        return card.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the card {card} is not UTF-8 text: {error}") from error


def _beside(source: str, revision: str | None, name: str) -> str | None:
    """A file of the model, or None if it has none of that name."""
    return cached_file(source, name, revision=revision, _raise_exceptions_for_missing_entries=False)


def _own(source: str, revision: str | None, name: str) -> str | None:
    """The same for a file whose content is handed on: that of a stranger's link is not."""
    file = _beside(source, revision, name)
    if file is None or not Path(source).is_dir():
        return file
    folder, target = Path(source).resolve(), Path(file).resolve()
    if target.is_relative_to(folder) or _is_blob(target, folder):
        return file
    raise ValueError(
        f"{file} is a link that leads out of the folder, and what it leads to would be handed on; "
        "put a copy in its place, or remove it"
    )


def _is_blob(target: Path, folder: Path) -> bool:
    """Whether a folder is one of the Hub's cache, and the file its content there."""
    snapshots, repository = folder.parent, folder.parent.parent
    is_cache = snapshots.name == "snapshots" and repository.name.startswith("models--")
    return is_cache and target.parent == repository / "blobs"
