"""The arguments of a classification run: which task, whose rows, how long a text."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from transformers import TrainingArguments

from hf_linear_attn.training.arguments import ModelArguments, check_workers
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.glue.tasks import GLUE_TASKS, TASKS, find_task

METRIC_NAMES = ("accuracy", "f1", "matthews_correlation", "pearson", "spearmanr")
Problem = Literal["classification", "regression"]
_COLUMN_FIELDS = ("text_column", "text_pair_column", "label_column")
_CUSTOM_FIELDS = ("class_names", "metrics", "positive_class")
_POSITIVE = ("max_train_examples", "max_eval_examples", "preprocessing_num_workers")
SHORTEST = 8  # tokens: room for special tokens and a word of each text


@dataclass
class TaskArguments:
    """Which task and which rows."""

    _argument_group_name = "task"

    task: str = field(
        default="embedded",
        metadata={
            "help": f"{', '.join(TASKS)}, or custom (any file with named columns); several with "
            "commas between them, or all (the nine of GLUE), are a suite"
        },
    )
    seeds: str | None = field(
        default=None,
        metadata={
            "help": "seeds with commas between them: each task is run with each, in "
            "output_dir/<task>/seed-<seed>, and a table of means and deviations is printed"
        },
    )
    tasks: dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": "settings of single tasks, as {rte: {num_train_epochs: 10}}; they go over "
            "the fields outside of tasks, in whichever file of --config those stand, and the "
            "command line goes over all"
        },
    )
    mnli_checkpoint: str | None = field(
        default=None,
        metadata={
            "help": "mrpc, rte and stsb start from the encoder of this model, finetuned on mnli, "
            "with a new head"
        },
    )
    new_head: bool = field(
        default=False,
        metadata={
            "help": "take the encoder of model_name_or_path and put a new classifier on it, also "
            "where it has one"
        },
    )
    data_dir: str | None = field(
        default=None,
        metadata={
            "help": "folder with the official files: of the whole benchmark (CoLA, SST-2, …) or of "
            "the task. A relative name that the current folder lacks is looked for under the "
            "folder in HF_LINEAR_ATTN_DATA"
        },
    )
    dataset_name: str | None = field(
        default=None,
        metadata={
            "help": "data set on the Hub, or a local folder of data files; nyu-mll/glue has the "
            "task as its configuration"
        },
    )
    dataset_config_name: str | None = field(
        default=None,
        metadata={"help": "configuration of dataset_name (null: the task's own)"},
    )
    train_file: str | None = field(
        default=None,
        metadata={
            "help": "training rows: .jsonl, .json, .csv, .tsv or .parquet. A .csv has quotes "
            "around cells as usual; a .tsv has none, as the official files: a quotation mark in it "
            "is text"
        },
    )
    validation_file: str | None = field(
        default=None,
        metadata={"help": "evaluation rows, as train_file"},
    )
    test_file: str | None = field(
        default=None,
        metadata={
            "help": "test rows, as train_file; with labels they are evaluated once, after training"
        },
    )
    validation_fraction: float | None = field(
        default=None,
        metadata={
            "help": "share of the training rows held out for evaluation, equal texts together, of "
            "a task without evaluation rows (null: 0.1; imdb and amazon: none, the test rows are "
            "evaluated)"
        },
    )
    text_column: str | None = field(
        default=None, metadata={"help": "column of the text (null: as the task has it)"}
    )
    text_pair_column: str | None = field(
        default=None, metadata={"help": "column of the second text of a pair"}
    )
    label_column: str | None = field(
        default=None, metadata={"help": "column of the label (null: as the task has it)"}
    )
    class_names: list[str] | None = field(
        default=None,
        metadata={
            "help": "the classes of a custom task in their order (null: those of the training "
            "rows, sorted)"
        },
    )
    problem: Problem = field(
        default="classification",
        metadata={"help": "of a custom task: regression takes the label as a number"},
    )
    metrics: list[str] | None = field(
        default=None,
        metadata={
            "help": f"of a custom task, some of {', '.join(METRIC_NAMES)} (null: accuracy, or "
            "pearson and spearmanr)"
        },
    )
    positive_class: str | None = field(
        default=None,
        metadata={"help": "of a custom task: the class that f1 is about (null: the second)"},
    )
    max_length: int = field(
        default=128,
        metadata={
            "help": "longest input in tokens, special tokens included; a longer text loses its "
            "end, a pair loses the end of the longer text first, and such rows are counted"
        },
    )
    max_train_examples: int | None = field(
        default=None,
        metadata={"help": "train on so many rows, drawn at random, the same for every seed"},
    )
    max_eval_examples: int | None = field(
        default=None,
        metadata={"help": "evaluate on so many rows, drawn at random, the same for every seed"},
    )
    preprocessing_num_workers: int | None = field(
        default=None, metadata={"help": "processes that tokenize (null: this one)"}
    )

    def __post_init__(self) -> None:
        """Check what can be known without looking at the data."""
        self.seed_numbers()
        for name in self.task_names():
            if name != "custom":
                find_task(name)
        self._check_sources()
        self._check_custom()
        self._check_numbers()

    def task_names(self) -> tuple[str, ...]:
        """The tasks asked for, each once, `all` written out."""
        names = [name.strip() for name in self.task.split(",") if name.strip()]
        if not names:
            raise ValueError(f"task: got {self.task!r}, expected a name; known: {', '.join(TASKS)}")
        wanted = [n for name in names for n in (GLUE_TASKS if name == "all" else (name,))]
        return tuple(dict.fromkeys(wanted))

    def seed_numbers(self) -> "list[int] | None":
        """The seeds asked for; None where there is only the run's own."""
        if self.seeds is None:
            return None
        words = [word.strip() for word in self.seeds.split(",")]
        if not all(word.isdecimal() for word in words):
            raise ValueError(f"seeds: got {self.seeds!r}, expected whole numbers such as 1,2,3")
        seeds = [int(word) for word in words]
        if len(set(seeds)) < len(seeds) or max(seeds) >= 2**32:
            raise ValueError(f"seeds: got {self.seeds!r}, expected different numbers below 2**32")
        return seeds

    @property
    def is_suite(self) -> bool:
        """Whether several runs are asked for."""
        return len(self.task_names()) > 1 or self.seeds is not None

    def _check_sources(self) -> None:
        given = [n for n in ("data_dir", "dataset_name", "train_file") if getattr(self, n)]
        if len(given) > 1:
            raise ValueError(
                f"give one of --data_dir, --dataset_name and --train_file; got {given}"
            )
        if given and "embedded" in self.task_names():
            raise ValueError(
                f"task embedded has text of its own: with --{given[0]}, name the --task"
            )
        for name in ("validation_file", "test_file"):
            if getattr(self, name) and not self.train_file:
                raise ValueError(f"--{name} needs --train_file beside it")
        if self.dataset_config_name and not self.dataset_name:
            raise ValueError("--dataset_config_name needs --dataset_name")
        if self.train_file and len(self.task_names()) > 1:
            raise ValueError(
                "--train_file holds the rows of one task, but several are asked for; give "
                "--data_dir or --dataset_name"
            )
        if self.validation_file and self.validation_fraction is not None:
            raise ValueError("give --validation_file or --validation_fraction, not both")

    def _check_custom(self) -> None:
        names = self.task_names()
        if "custom" in names:
            if not (self.text_column and self.label_column):
                raise ValueError("a custom task needs --text_column and --label_column")
            if not (self.train_file or self.dataset_name):
                raise ValueError("a custom task needs --train_file or --dataset_name")
        else:
            given = [n for n in _CUSTOM_FIELDS if getattr(self, n) is not None]
            if given or self.problem != "classification":
                name = given[0] if given else "problem"
                raise ValueError(f"--{name} is for --task custom; the others have their own")
        columns = [column for n in _COLUMN_FIELDS if (column := getattr(self, n))]
        if len(set(columns)) < len(columns):
            raise ValueError(
                f"text_column, text_pair_column, label_column: got {', '.join(columns)}, expected "
                "different columns"
            )
        if len(names) > 1 and any(getattr(self, n) for n in _COLUMN_FIELDS):
            raise ValueError("columns can be named for one task, but several are asked for")
        for name in self.metrics or ():
            if name not in METRIC_NAMES:
                hint = did_you_mean(name, METRIC_NAMES)
                raise ValueError(
                    f"metrics: got {name!r}, expected some of {', '.join(METRIC_NAMES)}{hint}"
                )
        if self.positive_class is not None and "f1" not in (self.metrics or ()):
            raise ValueError("positive_class is for f1: leave it out, or pass --metrics with f1")
        if self.class_names is not None:
            _check_class_names(self.class_names, self.problem)

    def _check_numbers(self) -> None:
        if self.problem not in get_args(Problem):
            raise ValueError(
                f"problem: got {self.problem!r}, expected classification or regression"
            )
        if self.max_length < SHORTEST:
            raise ValueError(f"max_length: got {self.max_length}, expected {SHORTEST} or more")
        fraction = self.validation_fraction
        if fraction is not None and not 0 < fraction < 1:
            raise ValueError(
                f"validation_fraction: got {fraction}, expected a number above 0 and below 1"
            )
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: got {value}, expected 1 or more, or null for no limit")
        check_workers(self.preprocessing_num_workers)


class GlueArguments(NamedTuple):
    """All arguments of a run, in the order in which `--help` shows them."""

    model: ModelArguments
    task: TaskArguments
    training: TrainingArguments

    @property
    def output_dir(self) -> Path:
        """Where the run lives."""
        return Path(str(self.training.output_dir))


def _check_class_names(names: Sequence[str], problem: str) -> None:
    if problem == "regression":
        raise ValueError("class_names are for classes; a regression has none")
    if len(set(names)) < max(2, len(names)):
        raise ValueError(
            f"class_names: got {', '.join(names)}, expected two or more different ones"
        )
