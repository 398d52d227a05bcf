"""Reading the model that is to be converted, whole or not at all."""

import pickle
from typing import Any

import transformers
from safetensors import SafetensorError
from transformers import PreTrainedConfig, PreTrainedModel

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.conversion import trunk_prefix
from hf_linear_attn.models.foreign_config import weight_map
from hf_linear_attn.models.generation_settings import check_generation_settings
from hf_linear_attn.models.gguf_source import dense_keywords, forget_packing, gguf_errors
from hf_linear_attn.models.saved_weights import check_numbers, check_shards
from hf_linear_attn.models.weight_maps import head_of


def read_source(
    path: Any, config: PreTrainedConfig, head: str, keywords: dict[str, Any]
) -> tuple[PreTrainedModel, frozenset[str], frozenset[str]]:
    """The source model, those of its tensors that the checkpoint lacks, and what it holds beside.

    Args:
        path: of the checkpoint.
        config: of the checkpoint.
        head: of the model to make, such as "ForMaskedLM".
        keywords: of Transformers' `from_pretrained`.

    Raises:
        ValueError: it cannot be read, lacks weights of the trunk, or has some that are no numbers.
    """
    check_shards(path)
    check_generation_settings(path, keywords)
    try:
        with gguf_errors(keywords):
            source, info = _source_class(config, head).from_pretrained(
                path, output_loading_info=True, **dense_keywords(keywords)
            )
    except (SafetensorError, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(
            f"the checkpoint {path} cannot be read: its file of weights is damaged, not whole, or "
            f"a pointer of Git LFS in its place ({_first_line(error)})."
        ) from error
    except (OSError, RuntimeError, KeyError) as error:
        raise ValueError(f"the checkpoint {path} cannot be read: {error}") from error
    forget_packing(source)
    absent = frozenset(info["missing_keys"])
    trunk = trunk_prefix(source)
    # Poolers come with an architecture whether or not anyone trained one.
    lost = sorted(n for n in absent if n.startswith(trunk) and "pooler" not in n.split("."))
    if lost:
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        raise ValueError(
            f"the checkpoint {path} is incomplete: it lacks {', '.join(lost[:3])}{more}."
        )
    check_numbers(source, f"the checkpoint {path}")
    return source, absent, frozenset(info["unexpected_keys"])


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).split("\n")[0]


def _source_class(config: PreTrainedConfig, head: str) -> Any:
    """The class to read a checkpoint with; its config names the one it was saved from.

    Args:
        config: of the checkpoint.
        head: of the model to make.

    Raises:
        ValueError: Transformers does not have that class.
    """
    architecture = (config.architectures or [f"Auto{head}"])[0]
    theirs = head_of(architecture)
    if isinstance(config, LinearAttnConfig):
        return _auto_class(theirs)
    known = weight_map(config.model_type)
    if theirs != head and known.with_pooler is not None and known.pooler_of(head) is not None:
        # The class of another head would not read the pooler, where this head begins.
        architecture = known.with_pooler
    found = getattr(transformers, architecture, None)
    if found is None or architecture.startswith("Auto"):
        found = _auto_class(theirs)._model_mapping.get(type(config), None)
    if found is None:
        raise ValueError(
            f"the checkpoint's config names the architecture {architecture!r}, which Transformers "
            "does not have; set `architectures` in its config.json to a class of Transformers."
        )
    return type(found.__name__, (_NamesEverything, found), {"__module__": found.__module__})


def _auto_class(head: str) -> Any:
    return getattr(transformers, f"AutoModel{head.removeprefix('Model')}")


class _NamesEverything:
    """A model class that reports every tensor of a checkpoint it does not read.

    Transformers is silent about buffers that older versions saved.
    """

    def _adjust_missing_and_unexpected_keys(self, loading_info: Any) -> None:
        unexpected = set(loading_info.unexpected_keys)
        # Not a public name: a test sees whether Transformers still calls it.
        above: Any = super()
        above._adjust_missing_and_unexpected_keys(loading_info)
        loading_info.unexpected_keys = unexpected
