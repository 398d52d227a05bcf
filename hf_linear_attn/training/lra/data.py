"""Everything a run needs of a task's data."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_linear_attn.training.lra.arguments import GeneratorArguments, LraArguments
from hf_linear_attn.training.lra.examples import Examples, build_examples, fingerprint
from hf_linear_attn.training.lra.generated import drawn_folder
from hf_linear_attn.training.lra.images import read_images
from hf_linear_attn.training.lra.listops_files import read_listops
from hf_linear_attn.training.lra.pathfinder_files import read_pathfinder
from hf_linear_attn.training.lra.retrieval import read_retrieval
from hf_linear_attn.training.lra.splits import SPLITS, RawSplit
from hf_linear_attn.training.lra.tasks import LraTask, find_folder
from hf_linear_attn.training.lra.texts import read_texts

CHANCE = "the training split's most frequent label on the test split"
"""What the chance level is."""


@dataclass(frozen=True)
class LraData:
    """A task's data.

    Attributes:
        task: which.
        splits: train, validation, test.
        source: a sentence on where they come from, without folders of the machine.
        max_length: of a tower, in symbols.
        rule: for longer ones.
    """

    task: LraTask
    splits: dict[str, Examples]
    source: str
    max_length: int
    rule: str

    @property
    def chance(self) -> float:
        """Accuracy of the training split's most frequent label on the test split."""
        most = np.bincount(self.splits["train"].labels).argmax()
        return float((self.splits["test"].labels == most).mean())

    @property
    def fingerprint(self) -> dict[str, str]:
        """A digest a split."""
        return {name: fingerprint(examples) for name, examples in self.splits.items()}

    @property
    def over_long(self) -> dict[str, int]:
        """How many examples were longer than the limit, by split."""
        return {name: examples.over_long for name, examples in self.splits.items()}

    def describe(self) -> list[str]:
        """Source, counts, and what became of over-long examples."""
        lines = [self.source]
        for name, examples in self.splits.items():
            became = "cut" if self.rule == "cut" else "left out"
            longer = f"{examples.over_long:,} were longer and are {became}"
            longer = longer if examples.over_long else "none was longer"
            limit = f"at most {self.max_length:,} symbols"
            lines.append(f"{name}: {len(examples):,} examples of {limit}; {longer}")
        return lines


def max_length(args: LraArguments, task: LraTask) -> int:
    """Longest tower in symbols."""
    return task.max_length if args.max_length is None else args.max_length


def prepare_task(task: LraTask, args: LraArguments, generators: GeneratorArguments) -> LraData:
    """Draw or read a task's examples, and check them.

    Raises:
        ValueError: data that are not there, or not the task's.
    """
    raw, source = _read(task, args, generators)
    rule = args.over_long or ("cut" if task.cut else "refuse")
    length = max_length(args, task)
    limits = (args.max_train_examples, args.max_eval_examples, args.max_test_examples)
    splits = {
        name: build_examples(name, raw[name], task, length, rule, limit)
        for name, limit in zip(SPLITS, limits, strict=True)
    }
    return LraData(task, splits, source, length, rule)


def _read(
    task: LraTask, args: LraArguments, generators: GeneratorArguments
) -> tuple[dict[str, RawSplit], str]:
    drawn = args.is_drawn(task.name)
    folder = _folder(task, args, generators, drawn)
    processes = args.preprocessing_num_workers
    where = (
        f"drawn at random (generator_seed {generators.generator_seed})"
        if drawn
        else f"read from the folder {folder.name}"
    )
    if task.name == "listops":
        return read_listops(folder, processes), f"ListOps expressions, {where}."
    if task.name == "text":
        share = args.validation_fraction
        held_out = f"{share:.0%} of the training reviews are held out to validate on"
        return read_texts(folder, share), f"Bytes of IMDB reviews, {where}; {held_out}."
    if task.name == "retrieval":
        return read_retrieval(folder), f"Bytes of pairs of ACL papers, one tower each, {where}."
    if task.name == "image":
        return read_images(folder), f"Grey CIFAR-10 images, pixel by pixel, {where}."
    side = 32 if task.name == "pathfinder" else 128
    length = generators.pathfinder_contour_length
    hard = {6: "easy", 9: "intermediate", 14: "hard"}.get(length, f"{length} dashes")
    splits, about = read_pathfinder(folder, side, length, processes)
    return splits, f"{side} x {side} Pathfinder {about} ({hard}), {where}."


def _folder(task: LraTask, args: LraArguments, generators: GeneratorArguments, drawn: bool) -> Path:
    if drawn:
        return drawn_folder(task.name, generators, args.preprocessing_num_workers)
    if args.data_dir is None:
        raise ValueError(
            f"task {task.name} needs data_dir, a folder with {task.files}: its examples cannot be "
            "drawn"
        )
    return find_folder(task, args.data_dir)
