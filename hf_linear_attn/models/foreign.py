"""The door for foreign checkpoints: what `from_pretrained` of our models does with one."""

import dataclasses
from typing import Any, TypeVar, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.conversion import carry_over, keep_settings
from hf_linear_attn.models.conversion_report import ConversionReport
from hf_linear_attn.models.foreign_config import is_own, target_config, weight_map
from hf_linear_attn.models.foreign_source import read_source
from hf_linear_attn.models.gguf_source import gguf_errors
from hf_linear_attn.models.weight_maps import head_of_class

logger = logging.get_logger(__name__)

Model = TypeVar("Model", bound=PreTrainedModel)


def config_class_of(model_class: type[PreTrainedModel]) -> type[LinearAttnConfig]:
    """The config class of a model class of ours."""
    return cast(type[LinearAttnConfig], model_class.config_class)


_WHERE = {
    "cache_dir", "force_download", "gguf_file", "local_files_only", "proxies", "revision",
    "subfolder", "token", "use_safetensors", "variant", "weights_only",
}  # fmt: skip
"""Keywords of `from_pretrained` that say where and how a file is read."""
_SAYS_NOTHING = {
    "_commit_hash", "_from_auto", "_from_pipeline", "adapter_kwargs", "low_cpu_mem_usage",
    "trust_remote_code",
}  # fmt: skip
"""Keywords of Transformers that ask for nothing a conversion could do otherwise."""


def read_config(path: Any, kwargs: dict[str, Any]) -> PreTrainedConfig:
    """The config of a checkpoint.

    Args:
        path: of the checkpoint.
        kwargs: keywords of `from_pretrained`; others than where to read are not looked at.

    Raises:
        ValueError: a GGUF file that cannot be read, or fields of a wrong type.
    """
    try:
        with gguf_errors(kwargs):
            return AutoConfig.from_pretrained(path, **_config_keywords(kwargs))
    except (StrictDataclassError, TypeError, KeyError, AttributeError) as error:
        # Transformers works with some fields before it checks their types.
        raise ValueError(f"the config.json of {path} cannot be used: {error}") from error


def _config_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Those keywords of `from_pretrained` that reading a config takes, too."""
    not_there = {"use_safetensors", "variant", "weights_only"}
    return {k: v for k, v in kwargs.items() if k in _WHERE - not_there}


def foreign_source(
    path: Any, model_class: type[PreTrainedModel], kwargs: dict[str, Any]
) -> PreTrainedConfig | None:
    """The config of a checkpoint that is another kind of model than `model_class`; else None.

    Args:
        path: as given to `from_pretrained`.
        model_class: whose `from_pretrained` was called.
        kwargs: the keywords given beside it.

    Raises:
        ValueError: an architecture without a weight map, or none named.
    """
    config_class = config_class_of(model_class)
    if path is None or not config_class.default_attention:
        return None
    try:
        with gguf_errors(kwargs):
            found, _ = PreTrainedConfig.get_config_dict(path, **_config_keywords(kwargs))
    except OSError:
        # No such place, or no config in it: Transformers says what is wrong.
        return None
    model_type = found.get("model_type")
    if model_type == config_class.model_type:
        return None
    if model_type is None and "architectures" in found:
        raise ValueError(
            f"the config.json of {path} names no model_type: add it, such as "
            '"model_type": "bert", for nothing else says what its weights are.'
        )
    if model_type is None:
        return None
    if not is_own(model_type):
        weight_map(model_type)
    return read_config(path, kwargs)


def load_foreign(
    model_class: type[Model], path: Any, source_config: PreTrainedConfig, config: Any,
    kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """What `from_pretrained` of a model of ours does with a foreign checkpoint.

    Args:
        model_class: of the model to make.
        path: of the checkpoint.
        source_config: of the checkpoint.
        config: as given to `from_pretrained`.
        kwargs: the other keywords.

    Returns:
        The model in evaluation mode, its report as `conversion_report`; with
        output_loading_info=True also Transformers' dictionary of what is missing and unexpected.

    Raises:
        ValueError: the checkpoint cannot be converted, is incomplete, or a keyword has no meaning
            here.
    """
    where, overrides, others = _sort_keywords(model_class, kwargs)
    # Once before the weights are read, which may take long.
    plan_conversion(source_config, model_class, config, overrides)
    dtype = _wanted_dtype(config, others)
    reading = where if dtype is None else {**where, "dtype": dtype}
    source, absent, beside = read_source(path, source_config, head_of_class(model_class), reading)
    model, report = convert_model(source, model_class, config, overrides, absent, dtype=dtype)
    for name in sorted(beside):
        report.dropped[name] = f"{type(source).__name__} does not read it"
    model.config.name_or_path = str(path)
    if others.get("attn_implementation") is not None:
        model.set_attn_implementation(others["attn_implementation"])
    if others.get("device_map") is not None:
        model.to(_device(others["device_map"]))
    if not others.get("output_loading_info"):
        return model
    info = {
        "missing_keys": set(report.new), "unexpected_keys": set(report.dropped),
        "mismatched_keys": set(), "error_msgs": [],
    }  # fmt: skip
    return model, info


def convert_in_memory(
    source: PreTrainedModel, model_class: type[Model], config: Any, kwargs: dict[str, Any]
) -> Model:
    """What `convert` does with a model that is loaded.

    Args:
        source: never changed.
        model_class: of the model to make.
        config: one of its config class, or None.
        kwargs: config fields, and `dtype`.

    Raises:
        ValueError: see `convert`.
    """
    where, overrides, others = _sort_keywords(model_class, kwargs)
    plan_conversion(source.config, model_class, config, overrides)
    dtype = _wanted_dtype(config, others)
    idle = [*where, *(name for name in others if name not in ("dtype", "torch_dtype"))]
    if idle:
        raise ValueError(
            f"{', '.join(idle)}: keywords about loading, and this model is loaded already. Leave "
            "them out, or give its path."
        )
    return convert_model(source, model_class, config, overrides, dtype=dtype)[0]


def plan_conversion(
    source: PreTrainedConfig, model_class: type[PreTrainedModel], config: Any,
    overrides: dict[str, Any],
) -> tuple[LinearAttnConfig, list[str]]:  # fmt: skip
    """The config of the model to make, and what has to be said about it.

    Args:
        source: config of the source.
        model_class: of the model to make.
        config: one of its config class, or None.
        overrides: config fields.

    Raises:
        ValueError: source, class, config and fields do not go together.
    """
    config_class = config_class_of(model_class)
    if config is not None and not isinstance(config, config_class):
        raise ValueError(f"config must be a {config_class.__name__}; got {type(config).__name__}.")
    check_kind(model_class, source)
    made, notes = target_config(config_class, source, config, overrides)
    made.settle(is_decoder=getattr(model_class, "is_decoder", None))
    return made, notes


def convert_model(
    source: PreTrainedModel, model_class: type[Model], config: LinearAttnConfig | None,
    overrides: dict[str, Any], absent: frozenset[str] = frozenset(), dtype: Any = None,
) -> tuple[Model, ConversionReport]:  # fmt: skip
    """A model of ours with a source's weights, in evaluation mode, and the report.

    Args:
        source: never changed.
        model_class, config, overrides: as in `plan_conversion`.
        absent: tensors of the source that its checkpoint did not hold.
        dtype: of the model; None = the source's.
    """
    made, notes = plan_conversion(source.config, model_class, config, overrides)
    model = model_class(made)
    named = {} if config is None else {n: getattr(config, n) for n in config.given_fields}
    keep_settings(source, model, {**named, **overrides}, dtype)
    report = carry_over(source, model, absent)
    report.notes[:0] = notes
    model.eval()
    # No tensor and no module: it is not saved.
    cast(Any, model).conversion_report = report
    logger.info("%s", report)
    _warn_of_another_function(source.config, model)
    fresh = [name for name, why in report.new.items() if why.startswith("drawn anew")]
    if fresh:
        logger.warning(
            f"{report.summary()}. New and to be trained: {', '.join(fresh[:4])}"
            f"{', …' if len(fresh) > 4 else ''}. `model.conversion_report` lists all."
        )
    return model, report


def _warn_of_another_function(source: Any, model: Any) -> None:
    names = model.config.attention_names
    before = source.attention_names if isinstance(source, LinearAttnConfig) else ["softmax"]
    other = sorted(set(names) - set(before))
    if other:
        logger.warning(
            f"{type(model).__name__} has the weights of a {source.model_type} model and another "
            f"attention ({', '.join(other)}): it computes another function until it is finetuned."
        )


def _wanted_dtype(config: LinearAttnConfig | None, others: dict[str, Any]) -> Any:
    """The type of numbers that keywords or a config ask for; None = the checkpoint's."""
    dtype = others.get("dtype", others.get("torch_dtype"))
    if dtype is None and config is not None and "dtype" in config.given_fields:
        dtype = config.dtype
    if isinstance(dtype, str) and dtype != "auto":
        dtype = getattr(torch, dtype, dtype)
    if dtype == "auto" or dtype is None:
        return None
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"dtype={dtype!r} is no type of torch; accepted: such as torch.bfloat16.")
    return dtype


def check_kind(model_class: type[PreTrainedModel], source: PreTrainedConfig) -> None:
    """Refuse an encoder's weights for a decoder's head, and the reverse.

    Raises:
        ValueError: says which class to use.
    """
    if isinstance(source, LinearAttnConfig):
        decodes = bool(source.is_decoder)
    else:
        decodes = weight_map(source.model_type).is_decoder
    wanted = getattr(model_class, "is_decoder", None)
    if wanted is None or wanted == decodes:
        return
    kinds, heads = ("an encoder", "a decoder"), ("ForMaskedLM", "ForCausalLM")
    name = model_class.__name__.removesuffix(heads[wanted])
    raise ValueError(
        f"{model_class.__name__} is {kinds[wanted]} and the checkpoint ({source.model_type}) is "
        f"{kinds[decodes]}, trained to look at other tokens; use {name}{heads[decodes]}."
    )


def _sort_keywords(
    model_class: type[PreTrainedModel], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Keywords that say where to read, config fields, and the few others that mean something."""
    meant = ("attn_implementation", "device_map", "dtype", "output_loading_info", "torch_dtype")
    known = {f.name for f in dataclasses.fields(config_class_of(model_class))}
    fields = (known | {"num_labels"}) - {"architectures", "dtype", "transformers_version"}
    where, overrides, others = {}, {}, {}
    for name, value in kwargs.items():
        if name in meant:
            others[name] = value
        elif name in _WHERE:
            where[name] = value
        elif name in fields:
            overrides[name] = value
        elif name not in _SAYS_NOTHING:
            hint = did_you_mean(name, fields)
            raise ValueError(
                f"{name}={value!r} has no meaning while a foreign checkpoint is converted.{hint} "
                "Convert and save the model first, then load it with that."
            )
    return where, overrides, others


def _device(device_map: Any) -> Any:
    whole = isinstance(device_map, dict) and list(device_map) == [""]
    device: Any = device_map[""] if whole else device_map
    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device_map={device_map!r}: a foreign checkpoint is converted on one device; give its "
            "name, or save the converted model and load that with a device_map."
        ) from None
