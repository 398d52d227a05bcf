"""Batches for language models: masked (token, whole word, span) and causal.

Masks depend on nothing but (seed, epoch, tokens of the row). The same row is therefore masked in
the same way whatever the batch size, the accumulation, the number of loader workers or processes,
and after a resume; another epoch, another seed or another row gives another mask.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

Masking = Literal["token", "word", "span"]
IGNORED = -100
# Not the run's seed: runs that differ in their seed are compared on the same masked tokens.
EVALUATION_SEED = 0
COLUMNS = {
    "input_ids", "attention_mask", "special_tokens_mask", "word_ids", "labels", "seq_idx",
}  # fmt: skip


class MaskedLMCollator:
    """Masks, pads and stacks rows for masked language modelling.

    `token` masks single tokens, `word` all tokens of a word (column `word_ids`), `span` runs of
    tokens with geometric lengths. Of a row's n maskable tokens (`word`: words) p·n are chosen,
    rounded up or down at random so that every token is masked with probability p exactly; a row
    with p·n < 1 has one chosen, so its rate is 1/n. Padding and special tokens are never chosen.

    Rows are dicts of lists: `input_ids`, and optionally `attention_mask` (1 = real),
    `special_tokens_mask` (1 = special), `word_ids` (-1 = no word). Rows that bring `labels` are
    masked already and only padded. The batch has int64 tensors `input_ids`, `attention_mask`,
    `labels` of shape `(batch, seq)`; `labels` is -100 where nothing is to be predicted.

    Args:
        tokenizer: gives the mask, padding and special ids, the padding side and the vocabulary.
        masking: "token", "word" or "span".
        probability: share of the maskable tokens to predict, in (0, 1].
        span_length: mean length of a span in tokens, at least 1; the last span is cut to the rate.
        mask_replace_prob: share of the chosen tokens replaced by the mask token.
        random_replace_prob: share replaced by a random non-special token; the rest is kept.
        seed: what the masks are drawn from, together with `set_epoch`.

    Raises:
        ValueError: for a value out of range, a tokenizer without mask or padding token, a row
            without any maskable token, or missing `word_ids`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        masking: Masking = "token",
        probability: float = 0.15,
        *,
        span_length: float = 3.0,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        seed: int = 0,
    ) -> None:
        _check_shares(masking, probability, span_length, mask_replace_prob, random_replace_prob)
        self.masking = masking
        self.probability = probability
        self.span_length = span_length
        self.mask_replace_prob = mask_replace_prob
        self.random_replace_prob = random_replace_prob
        self.seed = seed
        self.mask_id = _required_id(tokenizer, "mask_token_id")
        self.pad_id = _required_id(tokenizer, "pad_token_id")
        self.pad_left = tokenizer.padding_side == "left"
        self.special_ids = np.unique(np.array(tokenizer.all_special_ids, dtype=np.int64))
        self.ordinary_ids = np.setdiff1d(list(tokenizer.get_vocab().values()), self.special_ids)
        # Shared memory: loader workers that outlive an epoch see the new one too.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Draw other masks than in the epochs before; reaches running loader workers."""
        self._epoch[0] = epoch

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Mask (unless masked already), pad and stack the rows of one batch."""
        _check_columns(rows)
        masked = [
            row if "labels" in row else self.mask_row(row, index) for index, row in enumerate(rows)
        ]
        return _stack(masked, self.pad_id, self.pad_left)

    def mask_row(self, row: dict[str, Any], index: int = 0) -> dict[str, np.ndarray]:
        """Mask one unpadded or padded row: `input_ids`, `attention_mask`, `labels`, int64 `(seq,)`.

        Args:
            row: as described at the class.
            index: the row's place in its batch, for the error message only.
        """
        ids = np.asarray(row["input_ids"], dtype=np.int64)
        mask = np.asarray(row.get("attention_mask", np.ones_like(ids)), dtype=np.int64)
        maskable = (mask == 1) & ~np.isin(ids, self.special_ids)
        if "special_tokens_mask" in row:
            maskable &= np.asarray(row["special_tokens_mask"]) == 0
        candidates = np.flatnonzero(maskable)
        if not len(candidates):
            raise ValueError(
                f"row {index} of the batch has nothing to mask: its {len(ids)} tokens "
                f"{ids[:8].tolist()}{'…' if len(ids) > 8 else ''} are all padding or special; "
                "remove such rows from the data"
            )
        random = self._generator(ids)
        chosen = self._choose(candidates, row, random)
        labels = np.full_like(ids, IGNORED)
        labels[chosen] = ids[chosen]
        return {
            "input_ids": self._replace(ids, chosen, random),
            "attention_mask": mask,
            "labels": labels,
        }

    def _generator(self, ids: np.ndarray) -> np.random.Generator:
        key = np.array([self.seed, int(self._epoch[0])], dtype=np.int64).tobytes() + ids.tobytes()
        digest = hashlib.blake2b(key, digest_size=16).digest()
        return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))

    def _choose(
        self, candidates: np.ndarray, row: dict[str, Any], random: np.random.Generator
    ) -> np.ndarray:
        if self.masking == "word":
            return self._choose_words(candidates, row, random)
        count = self._count(len(candidates), random)
        if self.masking == "token":
            return random.choice(candidates, count, replace=False)
        return candidates[_spans(len(candidates), count, self.span_length, random)]

    def _choose_words(
        self, candidates: np.ndarray, row: dict[str, Any], random: np.random.Generator
    ) -> np.ndarray:
        if row.get("word_ids") is None:
            raise ValueError(
                'masking "word" needs the column `word_ids` (the number of each token\'s word, '
                f"-1 for none), got the columns {sorted(row)}; tokenise with word ids or choose "
                'masking "token" or "span"'
            )
        word_of = np.asarray(row["word_ids"], dtype=np.int64)[candidates]
        words = np.unique(word_of)
        chosen = random.choice(words, self._count(len(words), random), replace=False)
        return candidates[np.isin(word_of, chosen)]

    def _count(self, total: int, random: np.random.Generator) -> int:
        wanted = self.probability * total
        return min(total, max(1, int(wanted + random.random())))

    def _replace(
        self, ids: np.ndarray, chosen: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        draw = random.random(len(chosen))
        other = random.choice(self.ordinary_ids, len(chosen))
        replaced = ids.copy()
        to_random = draw < self.mask_replace_prob + self.random_replace_prob
        replaced[chosen[to_random]] = other[to_random]
        replaced[chosen[draw < self.mask_replace_prob]] = self.mask_id
        return replaced


class CausalLMCollator:
    """Pads and stacks rows for causal language modelling; labels are the tokens themselves.

    Only padding (`attention_mask` 0) is ignored in the labels, by its position and never by its
    id, so a true end token is learnt also where the padding token is the end token. A token right
    behind a pad, or at the start of a document that sees no other (`seq_idx` changes), is no label
    either: there is nothing to predict it from.

    Rows are dicts of lists: `input_ids`, and optionally `attention_mask` (1 = real), `seq_idx` (the
    document of each token) and `labels`, which are then kept.

    Args:
        tokenizer: gives the padding id and the padding side.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.pad_id = _required_id(tokenizer, "pad_token_id")
        self.pad_left = tokenizer.padding_side == "left"

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Stack rows to `(batch, seq)` tensors of int64."""
        _check_columns(rows)
        labelled = [row if "labels" in row else self.label_row(row) for row in rows]
        return _stack(labelled, self.pad_id, self.pad_left)

    def label_row(self, row: dict[str, Any]) -> dict[str, np.ndarray]:
        """`input_ids`, `attention_mask`, `labels` (and `seq_idx`) of one row, int64 `(seq,)`."""
        ids = np.asarray(row["input_ids"], dtype=np.int64)
        mask = np.asarray(row.get("attention_mask", np.ones_like(ids)), dtype=np.int64)
        # Behind a pad no token predicts a label, and nobody may count it.
        lost = np.concatenate(([self.pad_left], mask[:-1] == 0))[: len(ids)].astype(bool)
        labelled = {"input_ids": ids, "attention_mask": mask}
        if "seq_idx" in row:
            labelled["seq_idx"] = np.asarray(row["seq_idx"], dtype=np.int64)
            lost[1:] |= np.diff(labelled["seq_idx"]) != 0
        labelled["labels"] = np.where((mask == 1) & ~lost, ids, IGNORED)
        return labelled


def label_once(dataset: Any, collator: CausalLMCollator) -> Any:
    """Store labels with the evaluation examples; a row's first token is none.

    Args:
        dataset: a `datasets.Dataset` of tokenised rows.
        collator: labels them.

    Returns the dataset with the columns `input_ids`, `attention_mask`, `labels` (and `seq_idx`).
    """
    kept = ("input_ids", "attention_mask", "seq_idx")
    return dataset.map(
        _label_for_evaluation,
        fn_kwargs={"collator": collator},
        remove_columns=[c for c in dataset.column_names if c not in kept],
        load_from_cache_file=False,
        desc="Labelling (evaluation)",
    )


def _label_for_evaluation(row: dict[str, Any], collator: CausalLMCollator) -> dict[str, np.ndarray]:
    labelled = collator.label_row(row)
    labelled["labels"][:1] = IGNORED  # shifted away by the model; not to be counted
    return labelled


def mask_once(dataset: Any, collator: MaskedLMCollator) -> Any:
    """Store masks with the examples, so that every evaluation sees the same masked tokens.

    Args:
        dataset: a `datasets.Dataset` or `IterableDataset` of tokenised rows.
        collator: gives rate, kind and seed; its epoch at the time of the call is used.

    Returns the dataset with the columns `input_ids`, `attention_mask`, `labels` alone.
    """
    columns = [c for c in dataset.column_names if c not in ("input_ids", "attention_mask")]
    # Data sets in memory or on disk keep results by their arguments, not by this file's version.
    in_store = hasattr(dataset, "cache_files")
    options = {"load_from_cache_file": False, "desc": "Masking (evaluation)"} if in_store else {}
    return dataset.map(collator.mask_row, with_indices=True, remove_columns=columns, **options)


def _spans(total: int, count: int, mean: float, random: np.random.Generator) -> np.ndarray:
    """Indices of `count` of `total` places in runs of geometric length.

    The runs and the free places are shuffled on a ring and the ring is turned at random, which
    gives every place the same probability; laid out on a line the places near the ends would be
    chosen less often.
    """
    begins = random.random(count) < 1 / mean
    begins[0] = True
    runs = int(begins.sum())
    # Items 0 … runs - 1 are the runs, the others one free place each.
    sizes = np.ones(runs + total - count, dtype=np.int64)
    sizes[:runs] = np.bincount(np.cumsum(begins) - 1)
    order = random.permutation(len(sizes))
    covered = np.repeat(order < runs, sizes[order])
    return (np.flatnonzero(covered) + random.integers(total)) % total


def _stack(rows: Sequence[dict[str, Any]], pad_id: int, pad_left: bool) -> dict[str, torch.Tensor]:
    length = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": pad_id, "attention_mask": 0, "labels": IGNORED}
    if "seq_idx" in rows[0]:
        fill["seq_idx"] = 0
    batch = {k: np.full((len(rows), length), v, dtype=np.int64) for k, v in fill.items()}
    for i, row in enumerate(rows):
        size = len(row["input_ids"])
        place = slice(length - size, length) if pad_left else slice(size)
        if "seq_idx" in fill and size:
            batch["seq_idx"][i] = row["seq_idx"][0 if pad_left else -1]  # a pad opens no document
        for name in fill:
            batch[name][i, place] = row.get(name, 1)
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def _check_columns(rows: Sequence[dict[str, Any]]) -> None:
    unknown = sorted(set(rows[0]) - COLUMNS)
    if unknown:
        raise ValueError(
            f"cannot batch the column(s) {', '.join(unknown)}; "
            f"known are {', '.join(sorted(COLUMNS))}: remove the others from the data set"
        )


def _check_shares(
    masking: str, probability: float, span_length: float, to_mask: float, to_random: float
) -> None:
    if masking not in get_args(Masking):
        raise ValueError(f"masking is one of {', '.join(get_args(Masking))}; got {masking!r}")
    if not 0 < probability <= 1:
        raise ValueError(f"the masking probability lies in (0, 1]; got {probability}")
    if span_length < 1:
        raise ValueError(f"span_length is a mean number of tokens, at least 1; got {span_length}")
    if min(to_mask, to_random) < 0 or to_mask + to_random > 1 + 1e-9:
        raise ValueError(
            "mask_replace_prob and random_replace_prob are shares of the masked tokens: not "
            f"negative and at most 1 together; got {to_mask} and {to_random}"
        )


def _required_id(tokenizer: PreTrainedTokenizerBase, name: str) -> int:
    token_id = getattr(tokenizer, name)
    if token_id is None:
        raise ValueError(
            f"the tokenizer has no {name.removesuffix('_id').replace('_', ' ')}; "
            f"add one with tokenizer.add_special_tokens({{{name.removesuffix('_id')!r}: …}})"
        )
    return token_id
