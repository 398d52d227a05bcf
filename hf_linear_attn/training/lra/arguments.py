"""The arguments of a Long Range Arena run, by kind."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from transformers import TrainingArguments

from hf_linear_attn.training.arguments import ModelArguments, check_workers
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.lra.listops import ListOpsParameters
from hf_linear_attn.training.lra.pathfinder import PathfinderParameters
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.tasks import TASKS

OverLong = Literal["cut", "drop", "refuse"]
Schedule = Literal["one_cycle", "cosine_cycle"]
ALL = "all"
_MOST_EXAMPLES = 100_000_000


@dataclass
class LraArguments:
    """Which task, under whose protocol."""

    _argument_group_name = "task"

    task: str = field(
        default="listops",
        metadata={
            "help": "listops, text, retrieval, image, pathfinder, pathx, or all for one after the "
            "other, each in a folder of its own inside output_dir"
        },
    )
    preset: str = field(
        default="official",
        metadata={
            "help": "official (google-research/long-range-arena) or nystromformer "
            "(mlpen/Nystromformer): pooling, head, initial weights, and the published rows a "
            "result stands beside; the two are never mixed"
        },
    )
    suite: list[str] | None = field(
        default=None,
        metadata={"help": "with task=all, only these tasks (null: all of the preset)"},
    )
    data_dir: str | None = field(
        default=None,
        metadata={
            "help": "folder with the task's files, or with the folders of several tasks, in the "
            "released layouts; null draws the examples of listops, pathfinder and pathx. A "
            "relative name that the current folder lacks is looked for under the folder in "
            "HF_LINEAR_ATTN_DATA"
        },
    )
    generate: list[str] | None = field(
        default=None,
        metadata={"help": "tasks whose examples are drawn although there is a data_dir"},
    )
    max_length: int | None = field(
        default=None,
        metadata={"help": "longest example in symbols (null: that of the task)"},
    )
    over_long: OverLong | None = field(
        default=None,
        metadata={
            "help": "what becomes of longer examples, which are counted in any case: cut, drop, or "
            "refuse to run (null: cut in text and retrieval, as the protocol has it, else refuse)"
        },
    )
    validation_fraction: float = field(
        default=0.1,
        metadata={"help": "share of the training reviews that text validates on"},
    )
    max_train_examples: int | None = field(
        default=None,
        metadata={"help": "use only so many training examples, chosen at random"},
    )
    max_eval_examples: int | None = field(
        default=None,
        metadata={"help": "validate on only so many examples, chosen at random"},
    )
    max_test_examples: int | None = field(
        default=None,
        metadata={"help": "test on only so many examples, chosen at random"},
    )
    lr_schedule: Schedule | None = field(
        default=None,
        metadata={
            "help": "instead of lr_scheduler_type: one_cycle (Nyströmformer: torch's OneCycleLR, "
            "linear, with its cycle of beta1) or cosine_cycle (Long Range Arena: warm-up times a "
            "cosine over max_steps steps that begins after it)"
        },
    )
    preprocessing_num_workers: int | None = field(
        default=None,
        metadata={
            "help": "processes that draw and read examples (null: all usable cores, 16 "
            "at most, where there is work enough for each)"
        },
    )

    def __post_init__(self) -> None:
        """Check what can be known without looking at the data."""
        for name in ("suite", "generate"):
            value = getattr(self, name)
            setattr(self, name, [value] if isinstance(value, str) else value)
        _check_choice("task", self.task, [*TASKS, ALL])
        _check_choice("preset", self.preset, list(PRESETS))
        known = list(PRESETS[self.preset].tasks)
        for name in [*(self.suite or []), *([] if self.task == ALL else [self.task])]:
            if name not in known:
                raise ValueError(
                    f"the preset {self.preset} has no task {name!r}; it has {', '.join(known)}"
                )
        drawn = [name for name, task in TASKS.items() if task.generated]
        for name in self.generate or []:
            _check_choice("generate", name, drawn)
        if self.suite is not None and self.task != ALL:
            raise ValueError(f"suite names tasks of task=all; got task={self.task}; leave it out")
        if self.over_long is not None:
            _check_choice("over_long", self.over_long, list(get_args(OverLong)))
        if self.lr_schedule is not None:
            _check_choice("lr_schedule", self.lr_schedule, list(get_args(Schedule)))
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction: got {self.validation_fraction}, expected a number above 0 "
                "and below 1"
            )
        for name in ("max_length", "max_train_examples", "max_eval_examples",
                     "max_test_examples", "preprocessing_num_workers"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: got {value}, expected 1 or more, or null for no limit")
        check_workers(self.preprocessing_num_workers)

    @property
    def tasks(self) -> list[str]:
        """The tasks to run, in the order of the published tables."""
        if self.task != ALL:
            return [self.task]
        return [name for name in PRESETS[self.preset].tasks if name in (self.suite or TASKS)]

    def is_drawn(self, task: str) -> bool:
        """Whether a task's examples are drawn rather than read."""
        named = task in (self.generate or ())
        return named or (self.data_dir is None and TASKS[task].generated)


@dataclass
class GeneratorArguments:
    """What is drawn where examples are drawn."""

    _argument_group_name = "generators"

    generator_seed: int = field(
        default=0,
        metadata={
            "help": "of the examples that are drawn; the run's own seed does not change them"
        },
    )
    generated_dir: str | None = field(
        default=None,
        metadata={
            "help": "where drawn examples are kept, in the released layout, and found again (null: "
            "in the cache of datasets)"
        },
    )
    listops_train: int = field(default=96_000, metadata={"help": "training expressions"})
    listops_validation: int = field(default=2_000, metadata={"help": "validation expressions"})
    listops_test: int = field(default=2_000, metadata={"help": "test expressions"})
    listops_min_length: int = field(
        default=500, metadata={"help": "expressions are longer than this, in symbols"}
    )
    listops_max_length: int = field(default=2_000, metadata={"help": "and shorter than this"})
    listops_max_depth: int = field(
        default=10, metadata={"help": "greatest depth; a lone digit has depth 1"}
    )
    listops_max_args: int = field(default=10, metadata={"help": "most arguments of an operator"})
    listops_operator_share: float = field(
        default=0.25, metadata={"help": "probability of an operator where one is allowed"}
    )
    pathfinder_images: int = field(
        default=200_000, metadata={"help": "images drawn, of which 80 % train and 10 % test"}
    )
    pathfinder_contour_length: int = field(
        default=14,
        metadata={
            "help": "dashes in each long curve: 14 (hard, the one that is published), 9 "
            "(intermediate), 6 (easy); also tells which images are read"
        },
    )

    def __post_init__(self) -> None:
        """Check every parameter before anything is drawn."""
        for name in ("listops_train", "listops_validation", "listops_test"):
            _check_count(name, getattr(self, name), 1)
        _check_count("pathfinder_images", self.pathfinder_images, 10)
        if not 0 <= self.generator_seed < 2**32:
            raise ValueError(
                f"generator_seed: got {self.generator_seed}, expected at least 0 and below 2**32"
            )
        if self.pathfinder_contour_length < 3:
            raise ValueError(
                f"pathfinder_contour_length: got {self.pathfinder_contour_length}, expected 3 or "
                "more"
            )
        _ = self.listops, self.scenes("pathfinder"), self.scenes("pathx")

    @property
    def listops(self) -> ListOpsParameters:
        """Of the expressions."""
        names = [f.name for f in dataclasses.fields(ListOpsParameters)]
        return ListOpsParameters(**{name: getattr(self, f"listops_{name}") for name in names})

    @property
    def listops_counts(self) -> dict[str, int]:
        """Expressions by split."""
        return {
            "train": self.listops_train,
            "validation": self.listops_validation,
            "test": self.listops_test,
        }

    def scenes(self, task: str) -> list[PathfinderParameters]:
        """Of the images of pathfinder or pathx; one is chosen for each image."""
        length = self.pathfinder_contour_length
        curves = {"contour_length": length, "distractor_length": length // 3}
        if task == "pathfinder":
            return [PathfinderParameters(**curves, distractors=20 // (length // 3))]
        large: dict[str, Any] = {
            "size": 128, "paddle_length": 5, "paddle_thickness": 1.5, "seed_distance": 20,
            "continuity": 1.8, "marker_radius": 3.0, "contour_contrast": 0.9,
            "distractor_contrast": 0.9, "distractors": 35 // (length // 3),
        }  # fmt: skip
        return [PathfinderParameters(**curves, **large, margin=margin) for margin in (2, 3)]


class LraRunArguments(NamedTuple):
    """All arguments of a run, in the order in which `--help` shows them."""

    model: ModelArguments
    lra: LraArguments
    generators: GeneratorArguments
    training: TrainingArguments

    @property
    def output_dir(self) -> Path:
        """Where the run lives."""
        return Path(str(self.training.output_dir))


def _check_count(name: str, number: int, least: int) -> None:
    if not least <= number <= _MOST_EXAMPLES:
        raise ValueError(
            f"{name}: got {number}, expected {least} or more, {_MOST_EXAMPLES} at most"
        )


def _check_choice(name: str, value: str, choices: list[str]) -> None:
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(choices)}{hint}")
