"""The tokenizer that comes along when a checkpoint is converted, and what it must agree on."""

from typing import Any

from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

_FILES = (
    "tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "tokenizer.model",
    "spiece.model", "sentencepiece.bpe.model",
)  # fmt: skip


def read_tokenizer(source: str, where: dict[str, Any]) -> PreTrainedTokenizerBase | None:
    """The checkpoint's tokenizer; None if it has none.

    Args:
        source: folder, or name on the Hub.
        where: `revision` and `gguf_file`, as in `from_pretrained`.

    Raises:
        ValueError: there is one that cannot be read.
    """
    if "gguf_file" in where and not _is_in_gguf(source, where):
        where = {name: value for name, value in where.items() if name != "gguf_file"}
    if "gguf_file" not in where and not any(_has_file(source, name, where) for name in _FILES):
        # Transformers would make an empty one of the model's type.
        return None
    try:
        return AutoTokenizer.from_pretrained(source, **where)
    except Exception as error:  # the tokenizers library has no narrower one
        raise ValueError(f"the tokenizer of {source} cannot be read: {error}") from error


def _has_file(source: str, name: str, where: dict[str, Any]) -> bool:
    found = cached_file(source, name, _raise_exceptions_for_missing_entries=False, **where)
    return found is not None


def _is_in_gguf(source: str, where: dict[str, Any]) -> bool:
    """Does the GGUF file hold a tokenizer? Otherwise it may lie beside it."""
    from gguf import GGUFReader

    rest = {name: value for name, value in where.items() if name != "gguf_file"}
    file: Any = cached_file(source, where["gguf_file"], **rest)
    return GGUFReader(file).get_field("tokenizer.ggml.tokens") is not None


def rows_needed(tokenizer: PreTrainedTokenizerBase) -> int:
    """One above the highest id; ids may have gaps, so it is not the number of tokens."""
    return max(tokenizer.get_vocab().values()) + 1


def fit_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, unused: str | None
) -> list[str]:
    """See that model and tokenizer agree; what was done, in sentences.

    Args:
        model: its vocabulary is cut with unused="drop".
        tokenizer: the one it came with.
        unused: "keep" or "drop" the rows that no token uses; None = refuse them.

    Raises:
        ValueError: rows without a token where `unused` is None, or ids without a row.
    """
    rows, needed = model.config.vocab_size, rows_needed(tokenizer)
    if needed > rows:
        raise ValueError(
            f"the tokenizer has ids up to {needed - 1}, the model a vocabulary of {rows}: ids from "
            f"{rows} on would be outside its table. The folder mixes two models"
        )
    if needed == rows:
        return []
    if unused is None:
        raise ValueError(
            f"the model's vocabulary of {rows} is larger than the tokenizer's, whose ids end at "
            f"{needed - 1}: pass --unused_vocab keep (as the source has it) or --unused_vocab drop "
            "(cut the rows that no token uses)"
        )
    if unused == "keep":
        return [f"{rows - needed} rows of the vocabulary have no token and are kept."]
    _check_special_tokens(model.config, needed)
    model.resize_token_embeddings(needed)
    return [f"{rows - needed} rows of the vocabulary that no token uses were cut off."]


def _check_special_tokens(config: Any, needed: int) -> None:
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        value = getattr(config, name)
        ids = value if isinstance(value, list) else [value]
        if any(i is not None and i >= needed for i in ids):
            raise ValueError(
                f"{name} is {value}, one of the rows that --unused_vocab drop would cut off: give "
                f"another one (--config_overrides {name}=…), or keep the rows"
            )


def fit_length(tokenizer: PreTrainedTokenizerBase, before: int | None, after: int) -> list[str]:
    """Let a tokenizer that stops at the source's last position go on to the model's.

    Args:
        tokenizer: its `model_max_length` is changed.
        before: positions of the source.
        after: positions of the model.
    """
    if before is None or after <= before or tokenizer.model_max_length != before:
        return []
    tokenizer.model_max_length = after
    return [f"the tokenizer's model_max_length was {before} and is {after} now."]
