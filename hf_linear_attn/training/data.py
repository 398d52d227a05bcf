"""Documents from files, the Hub or the embedded corpus, split into training and evaluation."""

import hashlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.corpus import embedded_documents
from hf_linear_attn.training.text_files import BUILDERS, find_file, identity, read_documents

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

    AnyDataset = Dataset | IterableDataset

STREAM_BUFFER = 1_000  # documents; named in the help of --streaming


def load_documents(args: DataArguments, seed: int) -> "DatasetDict | IterableDatasetDict":
    """Read the documents of both splits.

    Args:
        args: where the text is. Without evaluation text, `validation_fraction` of the documents
            (at least one) is held out; equal documents never fall on both sides.
        seed: decides which documents are held out and the order of the rows.

    Returns:
        Splits `train` and `validation`, one column `text`, a row a document, no blank rows.
        Iterable datasets with `args.streaming`.

    Raises:
        ValueError: no such file, data set or column; an empty or binary file; nothing to split;
            arguments that contradict each other.
    """
    from datasets import DatasetDict, IterableDatasetDict

    _check_sources(args)
    train, validation = _read_sources(args)
    if args.streaming:
        if validation is None:
            raise ValueError(
                "streaming cannot hold documents out: give --validation_file, or a data set with a "
                "validation split"
            )
        stream = cast("IterableDataset", train).shuffle(seed=seed, buffer_size=STREAM_BUFFER)
        splits: dict[Any, Any] = {"train": stream, "validation": validation}
        return IterableDatasetDict(splits)
    if validation is None:
        return _hold_out(cast("Dataset", train), args.validation_fraction, seed)
    both: dict[Any, Any] = {"train": train, "validation": validation}
    return DatasetDict(both)


def _check_sources(args: DataArguments) -> None:
    if args.train_file and args.dataset_name:
        raise ValueError("give --train_file or --dataset_name, not both")
    if args.validation_file and not (args.train_file or args.dataset_name):
        raise ValueError("--validation_file needs --train_file or --dataset_name beside it")
    if args.dataset_config_name and not args.dataset_name:
        raise ValueError("--dataset_config_name needs --dataset_name")
    if args.streaming and not (args.train_file or args.dataset_name):
        raise ValueError("--streaming needs --train_file or --dataset_name")


def _read_sources(args: DataArguments) -> "tuple[AnyDataset, AnyDataset | None]":
    """Training and evaluation text; None for the second where it has to be held out."""
    from datasets import Dataset

    if args.dataset_name:
        train, validation = _from_hub(args)
    elif args.train_file:
        train, validation = read_files(args.train_file, args), None
    else:
        return Dataset.from_dict({"text": embedded_documents()}), None
    if args.validation_file:
        validation = read_files(args.validation_file, args)
    return train, validation


def read_files(names: list[str], args: DataArguments) -> "AnyDataset":
    """The files' documents, kind by kind, in the order given.

    Args:
        names: of files, see `find_file`.
        args: format, column and streaming.

    Raises:
        ValueError: no such file or column, or one that cannot be read.
    """
    from datasets import concatenate_datasets

    kinds: dict[str, list[Path]] = {}
    for path in [find_file(name) for name in names]:
        kinds.setdefault(path.suffix.lower(), []).append(path)
    parts = [_load_files(suffix, paths, args) for suffix, paths in kinds.items()]
    return concatenate_datasets(parts)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _load_files(suffix: str, paths: list[Path], args: DataArguments) -> "AnyDataset":
    from datasets import Dataset, Features, IterableDataset, Value
    from datasets.fingerprint import Hasher

    named = ", ".join(str(path) for path in paths)
    if suffix == ".txt":
        features = Features({"text": Value("string")})
        by_line = args.data_format == "lines"
        as_it_stands = args.data_format == "text"
        given = {
            "files": [identity(path) for path in paths],
            "by_line": by_line,
            "as_it_stands": as_it_stands,
        }
        if args.streaming:
            return IterableDataset.from_generator(read_documents, features, given)
        # By itself the cache would not follow a change of the reading rule, only of the files.
        key = Hasher.hash([inspect.getsource(read_documents), given])
        return cast(
            "Dataset",
            Dataset.from_generator(read_documents, features, gen_kwargs=given, fingerprint=key),
        )
    options: dict[str, Any] = {"data_files": {"train": [str(path) for path in paths]}}
    if BUILDERS[suffix] == "csv":
        # An empty cell or the word NA is text. A tab-separated file knows no quotes.
        options |= {"na_filter": False} | ({"sep": "\t", "quoting": 3} if suffix == ".tsv" else {})
    loaded = load_rows(BUILDERS[suffix], named, split="train", streaming=args.streaming, **options)
    return _text_only(loaded, named, args.text_column)


def _from_hub(args: DataArguments) -> "tuple[AnyDataset, AnyDataset | None]":
    name = str(args.dataset_name)
    splits = load_rows(name, name, name=args.dataset_config_name, streaming=args.streaming)
    if "train" not in splits:
        raise ValueError(f"data set {name!r}: expected a split 'train', got {', '.join(splits)}")
    train = _text_only(splits["train"], name, args.text_column)
    if "validation" not in splits:
        return train, None
    return train, _text_only(splits["validation"], name, args.text_column)


def load_rows(builder: str, source: str, **options: Any) -> Any:
    """`datasets.load_dataset`, whose many ways to fail all become one line."""
    from datasets import load_dataset, logging
    from datasets.exceptions import DatasetsError
    from yaml import YAMLError

    verbosity = logging.get_verbosity()
    # It logs the error it is about to raise; one line is enough.
    logging.set_verbosity(logging.CRITICAL)
    try:
        return load_dataset(builder, **options)
    except (DatasetsError, OSError, ValueError, RuntimeError, YAMLError) as error:
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if "corresponds to no data" in str(cause):  # how `datasets` says it
            raise ValueError(without_rows(source)) from error
        raise ValueError(f"{source!r} cannot be read: {cause}") from error
    finally:
        logging.set_verbosity(verbosity)


def without_rows(source: str) -> str:
    """What there is to say of a file or folder that has none."""
    return f"{source} has no rows; give a file with rows, or leave it out"


def _text_only(dataset: Any, source: str, column: str) -> "AnyDataset":
    """Keep the text column alone, under the name `text`, without blank rows."""
    from datasets import Value

    features = dataset.features
    if features is None:  # a stream may not know before its first row
        dataset = dataset._resolve_features()
        features = dataset.features
    if column not in features:
        hint = did_you_mean(column, features)
        raise ValueError(
            f"{source}: no column {column!r}, only {', '.join(features)}{hint}; name the column of "
            "the text with --text_column"
        )
    kind = getattr(features[column], "dtype", str(features[column]))
    if kind not in ("string", "large_string"):
        raise ValueError(f"{source}: column {column!r} holds {kind}, expected text")
    dataset = dataset.select_columns([column])
    if column != "text":
        dataset = dataset.rename_column(column, "text")
    if kind == "large_string":
        dataset = dataset.cast_column("text", Value("string"))  # so that parts can be joined
    return dataset.filter(_has_text, input_columns="text")


def _has_text(text: str | None) -> bool:
    return bool(text and text.strip())


def _hold_out(documents: "Dataset", fraction: float, seed: int) -> "DatasetDict":
    """Split by distinct documents; both sides in an order drawn from the seed."""
    from datasets import DatasetDict

    digests = [
        int.from_bytes(hashlib.blake2b(row.encode(), digest_size=8).digest(), "big")
        for batch in documents.iter(batch_size=1_000)
        for row in batch["text"]  # pyright: ignore[reportArgumentType, reportCallIssue]
    ]
    distinct = np.unique(np.array(digests, dtype=np.uint64))
    if len(distinct) < 2:
        raise ValueError(
            f"only {len(distinct)} distinct document to split into training and evaluation text; "
            "give --validation_file, put blank lines between documents, or use --data_format lines"
        )
    generator = np.random.default_rng(seed)
    share = min(max(1, round(fraction * len(distinct))), len(distinct) - 1)
    held_out = np.isin(np.array(digests, dtype=np.uint64), generator.permutation(distinct)[:share])
    order = generator.permutation(len(digests))
    return DatasetDict(
        {
            "train": documents.select(order[~held_out[order]]),
            "validation": documents.select(order[held_out[order]]),
        }
    )
