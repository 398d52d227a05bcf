"""A saved model to go on from: its files are looked at, its config and its weights are taken."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from hf_linear_attn.models import CONFIG_CLASSES, LinearAttnConfig
from hf_linear_attn.models.foreign_config import WEIGHT_MAPS
from hf_linear_attn.models.generation_settings import check_generation_settings
from hf_linear_attn.models.saved_weights import check_no_pickle, check_numbers
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.saved_files import (
    INDEX_FILE,
    WEIGHTS_FILE,
    DamagedFileError,
    check_adapter,
    check_weights,
    read_json,
)

# They change how a saved model trains or how fast it is, not what its weights compute.
_FREE_ON_A_SAVED_MODEL = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "chunk_size",
)


def check_saved_files(source: str) -> None:
    """Look at the files of a saved model in a folder, before any is read as a whole.

    Args:
        source: `model_name_or_path`; a name on the Hub passes.

    Raises:
        ValueError: no saved model, one without safetensors, or one with a damaged file.
    """
    folder = Path(source)
    if folder.is_file():
        raise ValueError(f"model_name_or_path {source} is a file; give the folder of a saved model")
    if not folder.is_dir():
        return
    if not (folder / "config.json").is_file():
        raise ValueError(f"model_name_or_path {folder} holds no config.json: not a saved model")
    try:
        check_no_pickle(folder)
    except ValueError as error:
        raise ValueError(f"model_name_or_path {error}") from None
    if not any((folder / name).is_file() for name in (WEIGHTS_FILE, INDEX_FILE)):
        raise ValueError(
            f"model_name_or_path {folder} holds no {WEIGHTS_FILE}: not a saved model, or one "
            "without its weights"
        )
    try:
        read_json(folder / "config.json")
        check_weights(folder)
        check_adapter(folder)
    except DamagedFileError as error:
        raise ValueError(
            f"model_name_or_path: {error}; save the model again or choose another one"
        ) from error


def saved_config(
    source: str, attention: str, config_class: type[LinearAttnConfig]
) -> LinearAttnConfig:
    """The config of a saved model.

    Args:
        source: `model_name_or_path`.
        attention: what the model has to be of.
        config_class: of that attention.

    Raises:
        ValueError: no saved model that can be used, or one of another attention.
    """
    check_saved_files(source)
    _check_generation_settings(source)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except OSError as error:
        raise ValueError(
            f"model_name_or_path {source} is neither a folder with a saved model nor a model that "
            "can be reached on the Hub"
        ) from error
    except (TypeError, KeyError, AttributeError) as error:
        # Transformers works with the fields before anything has looked at their types.
        raise ValueError(
            f"model_name_or_path {source}: its config.json cannot be used ({error}); put a sound "
            "one there or choose another model"
        ) from error
    except ValueError as error:
        asks = "trust_remote_code" in str(error)
        reason = "it has code of its own, which is never run here" if asks else error
        raise ValueError(f"model_name_or_path {source}: {reason}") from error
    if type(config) is not config_class:
        raise ValueError(
            f"attention {attention} and model_name_or_path {source} do not agree: the saved model "
            f"is of type {config.model_type}; " + _advice(config, source, attention)
        )
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(
            f"model_name_or_path {source} has a quantization_config: packed weights cannot be "
            "trained; take the model before it was quantised"
        )
    return config


def _check_generation_settings(source: str) -> None:
    try:
        check_generation_settings(source)
    except ValueError as error:
        raise ValueError(f"model_name_or_path: {error}") from error


def apply_to_saved(config: LinearAttnConfig, fields: dict[str, Any], source: str) -> None:
    """A saved model keeps its fields: what is asked for must repeat them or leave weights alone.

    Args:
        config: of the saved model; dropout and chunks are set in it.
        fields: asked for, by name.
        source: `model_name_or_path`.

    Raises:
        ValueError: an unknown field, or one that would change what the weights compute.
    """
    for name, value in fields.items():
        if not hasattr(config, name):
            known = [n for n in config.to_dict() if not n.startswith("_")]
            raise ValueError(f"unknown field {name!r} of the model{did_you_mean(name, known)}")
        if name in _FREE_ON_A_SAVED_MODEL:
            setattr(config, name, value)
        elif getattr(config, name) != value:
            raise ValueError(
                f"{name} {value!r} would change what the saved model {source} computes (it has "
                f"{getattr(config, name)!r}); only {', '.join(_FREE_ON_A_SAVED_MODEL)} can be "
                "changed on a saved model"
            )
    config.check()


def load_saved(source: str, config: LinearAttnConfig, auto_class: Any) -> PreTrainedModel:
    """The saved model.

    Args:
        source: `model_name_or_path`.
        config: its own, with what may be changed.
        auto_class: of Transformers. Where the saved model is of another kind, its trunk is taken
            and the head is new.

    Raises:
        ValueError: weights that cannot be read or are no numbers, or not those of the config: what
            its file lacks would be drawn anew without a word.
    """
    try:
        # Never a pickle, which is a program.
        model, report = auto_class.from_pretrained(
            source, config=config, output_loading_info=True, use_safetensors=True,
            ignore_mismatched_sizes=True,
        )  # fmt: skip
    except (OSError, RuntimeError, KeyError, TypeError) as error:
        raise ValueError(f"model_name_or_path {source} cannot be loaded: {error}") from error
    if report["mismatched_keys"]:
        name, found, wanted = min(report["mismatched_keys"])
        raise ValueError(
            f"model_name_or_path {source} cannot be loaded: {name} is {tuple(found)}, and its "
            f"config asks for {tuple(wanted)}; save the model again or choose another one"
        )
    missing, beside = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    trunk = f"{model.base_model_prefix}."
    if type(model).__name__ not in (config.architectures or ()):
        # A model of another kind brings its trunk; the head is new.
        missing = [key for key in missing if key.startswith(trunk)]
    _refuse_weights(source, "lack", missing, "its config asks for")
    beside = [key for key in beside if key.startswith(trunk)]
    _refuse_weights(source, "hold", beside, "its config has no place for")
    check_numbers(model, f"model_name_or_path {source}")
    return model


def _refuse_weights(source: str, fault: str, names: Sequence[str], which: str) -> None:
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise ValueError(
            f"model_name_or_path {source}: its weights {fault} {', '.join(names[:3])}{more}, which "
            f"{which}; save the model again or choose another one"
        )


def _advice(config: PreTrainedConfig, source: str, attention: str) -> str:
    """What to do about a saved model that is not of the attention asked for."""
    convert = f"python scripts/convert.py {source} --to {attention} --output runs/converted"
    name = next((n for n, known in CONFIG_CLASSES.items() if known is type(config)), None)
    if name is not None:
        return f"pass --attention {name}, or convert it first: {convert}"
    if config.model_type in WEIGHT_MAPS:
        return f"convert it first: {convert}"
    return f"known are {', '.join(CONFIG_CLASSES)}"
