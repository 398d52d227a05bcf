"""A tokenizer: loaded, or trained on the documents: a byte-level BPE, or words."""

import re
import sys
from collections.abc import Iterable
from typing import cast

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # RoBERTa's; ids 0 to 4
SMALLEST_VOCABULARY = len(SPECIAL_TOKENS) + 256
_LARGEST_VOCABULARY = 2**31 - 1  # ids are int32


def load_or_train_tokenizer(
    name: str | None,
    texts: Iterable[str],
    vocab_size: int,
    max_length: int,
    total: int | None = None,
    *,
    causal: bool = False,
    kind: str = "bpe",
) -> PreTrainedTokenizerFast:
    """Load a tokenizer, or train one.

    Args:
        name: a folder or a name on the Hub; None trains a byte-level BPE, in which any text
            round-trips, with RoBERTa's special tokens (`<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3,
            `<mask>` 4).
        texts: the documents to train on; not read when a tokenizer is loaded.
        vocab_size: of the tokenizer to train, special tokens included; 261 is plain bytes. A small
            corpus may have fewer merges to offer: `len(tokenizer)` is the true size.
        max_length: longest input in tokens, special tokens included.
        total: number of documents, for the progress bar.
        causal: for a causal language model: no mask token is needed, padding may be the end token,
            and a text is left open (no end token behind it), since the model is to go on with it.
        kind: of a tokenizer to train: "bpe", or "word": what white space parts, the most frequent
            words, `<unk>` for the others; the end of a line is `</s>`.

    Raises:
        ValueError: nothing to load, a tokenizer that cannot serve such a model, a vocabulary below
            261, or no text to train on.
    """
    if max_length < 1:
        raise ValueError(f"max_length: got {max_length}, expected 1 or more")
    if name is None:
        check_vocabulary_size(vocab_size, kind)
        train = _train_words if kind == "word" else _train_bytes
        tokenizer = _wrap(train(_some(texts), vocab_size, total), max_length)
    else:
        tokenizer = _load(name)
        (_check_causal if causal else _check_masked)(tokenizer, name)
        tokenizer.model_max_length = max_length
    if causal:
        _leave_open(tokenizer)
    return tokenizer


def describe_tokenizer(name: str | None, tokenizer: PreTrainedTokenizerBase) -> str:
    """Say, in one line, whether a tokenizer was trained or loaded.

    Args:
        name: as given to `load_or_train_tokenizer`.
        tokenizer: what that returned.
    """
    whose = "trained on the training text" if name is None else f"that of {name}"
    return f"Tokenizer: {whose}, {len(tokenizer):,} tokens"


def edge_tokens(tokenizer: PreTrainedTokenizerFast) -> tuple[int | None, int | None]:
    """The ids of the tokens for the start and the end of a text, None where there is none."""
    start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    start = tokenizer.bos_token_id if start is None else start
    end = tokenizer.eos_token_id if end is None else end
    return cast("tuple[int | None, int | None]", (start, end))


def _load(name: str) -> PreTrainedTokenizerFast:
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # the tokenizers library has no narrower one
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if "trust_remote_code" in str(error):
            reason = "it has code of its own, which is never run here"
        raise ValueError(f"tokenizer {name!r} cannot be loaded: {reason}") from error
    for where_it_was in ("is_local", "local_files_only"):
        # Saved again, it is elsewhere; a run that goes on saves the same tokenizer as one that
        # was not stopped.
        tokenizer.init_kwargs.pop(where_it_was, None)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ValueError(
            f"tokenizer {name!r} is a {type(tokenizer).__name__}; expected a fast tokenizer, which "
            "knows where words begin (a folder with tokenizer.json)"
        )
    return tokenizer


def _check_masked(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    for role in ("mask_token", "pad_token"):
        if getattr(tokenizer, role) is None:
            raise ValueError(f"tokenizer {name!r} has no {role}; choose one of a masked model")


def _check_causal(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    start, end = edge_tokens(tokenizer)
    if start is None and end is None:
        raise ValueError(
            f"tokenizer {name!r} has no token for the end of a text (eos_token) and none for its "
            "start; choose one of a language model"
        )
    if tokenizer.pad_token_id is None:
        # Padding is known by the mask, never by its id.
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(
            cast(int, start if end is None else end)
        )


def _leave_open(tokenizer: PreTrainedTokenizerFast) -> None:
    """Texts get the start token alone: behind an end token there is nothing to go on with."""
    start, end = edge_tokens(tokenizer)
    opening = tokenizer.convert_ids_to_tokens(cast(int, end if start is None else start))
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{opening} $A",
        pair=f"{opening} $A {opening} $B",
        special_tokens=[(opening, tokenizer.convert_tokens_to_ids(opening))],
    )


def check_vocabulary_size(vocab_size: int, kind: str) -> None:
    """Raise ValueError for a vocabulary too small to be trained, or too large to be numbered."""
    least = SMALLEST_VOCABULARY if kind == "bpe" else len(SPECIAL_TOKENS) + 1
    if vocab_size < least:
        content = "256 bytes" if kind == "bpe" else "a word"
        raise ValueError(
            f"vocab_size: got {vocab_size}, expected at least {least}: {content} and the "
            f"{len(SPECIAL_TOKENS)} special tokens"
        )
    if vocab_size > _LARGEST_VOCABULARY:
        raise ValueError(f"vocab_size: got {vocab_size}, expected {_LARGEST_VOCABULARY} at most")


def _train_bytes(texts: Iterable[str], vocab_size: int, total: int | None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[_special(token) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=_shows_progress(),
    )
    tokenizer.train_from_iterator(texts, trainer=trainer, length=total)
    return tokenizer


def _train_words(texts: Iterable[str], vocab_size: int, total: int | None) -> Tokenizer:
    _, _, end, unknown, _ = SPECIAL_TOKENS
    tokenizer = Tokenizer(models.WordLevel(unk_token=unknown))
    # Special tokens written out are words of a text: no document can bring an end or a mask.
    written_out = "|".join(re.escape(token) for token in SPECIAL_TOKENS)
    neutral = normalizers.Replace(Regex(rf"(?<!\S)(?:{written_out})(?!\S)"), unknown)
    tokenizer.normalizer = neutral
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size,
        special_tokens=[_special(token) for token in SPECIAL_TOKENS],
        show_progress=_shows_progress(),
    )
    tokenizer.train_from_iterator(texts, trainer=trainer, length=total)
    # An <unk> that stands in the text, as in WikiText, has left a gap.
    places = tokenizer.get_vocab()
    vocab = {token: at for at, token in enumerate(sorted(places, key=places.__getitem__))}
    tokenizer.model = models.WordLevel(vocab, unk_token=unknown)
    line_ends = normalizers.Replace("\n", f" {end} ")
    tokenizer.normalizer = normalizers.Sequence([neutral, line_ends])
    return tokenizer


def _shows_progress() -> bool:
    # The bars come with line ends on stdout, written in Rust, which panics where nobody reads it.
    return sys.stdout is not None and sys.stdout.isatty()


def _some(texts: Iterable[str]) -> Iterable[str]:
    """Pass the texts on; an error when there is not one."""
    empty = True
    for text in texts:
        empty = False
        yield text
    if empty:
        raise ValueError("no text to train a tokenizer on")


def _special(token: str) -> AddedToken:
    # As in RoBERTa, <mask> swallows the space before it: the word it stands for brings its own.
    return AddedToken(token, special=True, normalized=False, lstrip=token == "<mask>")


def _wrap(tokenizer: Tokenizer, max_length: int) -> PreTrainedTokenizerFast:
    start, pad, end, unknown, mask = SPECIAL_TOKENS
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} {end} $B {end}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (start, end)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=start,
        cls_token=start,
        pad_token=pad,
        eos_token=end,
        sep_token=end,
        unk_token=unknown,
        mask_token=_special(mask),
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )
