"""The tasks: columns, class names in the official order, metrics, official files and submissions.

The files are those of the GLUE benchmark (Wang et al. 2018, https://gluebenchmark.com), the class
names and their order those of the data set `nyu-mll/glue` on the Hub.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hf_linear_attn.training.casting import did_you_mean

LabelForm = Literal["names", "ids"]
# In which order results are shown. Validation rows are what a run is evaluated on.
EVALUATION_SPLITS = ("validation", "validation_mismatched")
TEST_SPLITS = ("test", "test_mismatched", "diagnostic")


@dataclass(frozen=True)
class TsvLayout:
    """An official tab-separated file, without any quoting.

    Attributes:
        file: its name in the task's folder.
        columns: ours (text, text_pair, label, index) -> the name in the header, or the position
            where the file has none.
        width: number of columns where there is no header.
        label_form: what stands in the label column.
        skips_broken: rows that are cut off belong to the official file; they are left out.
    """

    file: str
    columns: Mapping[str, str | int]
    width: int | None = None
    label_form: LabelForm = "ids"
    skips_broken: bool = False


@dataclass(frozen=True)
class Task:
    """What a task is.

    Attributes:
        name: as given to `--task`.
        title: a line for people.
        text_columns: one or two; for each the names under which data files have it.
        labels: class names in the official order; () is a regression, None is not known before the
            training rows are read.
        metrics: names of `metrics.METRICS`; their mean is the task's score.
        label_columns: name in data files -> whether it holds the classes' names or numbers from 0.
        folder: the official folder's name.
        layouts: split -> its official file.
        hub: data set and configuration on the Hub.
        submissions: test split -> name of the file that is handed in.
        submits_names: predictions are handed in as names, not as numbers.
        label_range: least and greatest target of a regression.
        positive: the class that F1 is about.
        test_is_evaluation: there are no validation rows by custom; results are those of the
            labelled test rows.
    """

    name: str
    title: str
    text_columns: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    label_columns: Mapping[str, LabelForm] = field(default_factory=lambda: {"label": "ids"})
    folder: str | None = None
    layouts: Mapping[str, TsvLayout] = field(default_factory=dict)
    hub: tuple[str, str | None] | None = None
    submissions: Mapping[str, str] = field(default_factory=dict)
    submits_names: bool = False
    label_range: tuple[float, float] | None = None
    positive: str | None = None
    test_is_evaluation: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether targets are numbers and not classes."""
        return self.labels == ()


def find_task(name: str) -> Task:
    """The task of that name; ValueError with the nearest known name for another one."""
    if name not in TASKS:
        known = ", ".join(TASKS)
        raise ValueError(
            f"task: got {name!r}, expected one of {known}, custom or all{did_you_mean(name, TASKS)}"
        )
    return TASKS[name]


def _tsv(columns: dict[str, str], label_form: LabelForm = "ids") -> dict[str, TsvLayout]:
    """Train, dev and test files with headers; the test file has an index and no label."""
    texts = {ours: name for ours, name in columns.items() if ours != "label"}
    return {
        "train": TsvLayout("train.tsv", columns, label_form=label_form),
        "validation": TsvLayout("dev.tsv", columns, label_form=label_form),
        "test": TsvLayout("test.tsv", {**texts, "index": "index"}),
    }


def _pair(first: str, second: str, label: str = "label") -> dict[str, str]:
    return {"text": first, "text_pair": second, "label": label}


_COLA = TsvLayout("", {"text": 3, "label": 1}, width=4)
_MNLI_TEXTS = {"text": "sentence1", "text_pair": "sentence2"}
_MNLI_LABELED = {**_MNLI_TEXTS, "label": "gold_label"}
_MNLI_TEST = {**_MNLI_TEXTS, "index": "index"}
_QQP = _pair("question1", "question2", "is_duplicate")

_ALL = (
    Task(
        "cola",
        "CoLA: is a sentence grammatical?",
        (("sentence",),),
        ("unacceptable", "acceptable"),
        ("matthews_correlation",),
        folder="CoLA",
        layouts={
            "train": TsvLayout("train.tsv", _COLA.columns, _COLA.width),
            "validation": TsvLayout("dev.tsv", _COLA.columns, _COLA.width),
            "test": TsvLayout("test.tsv", {"text": "sentence", "index": "index"}),
        },
        hub=("nyu-mll/glue", "cola"),
        submissions={"test": "CoLA.tsv"},
    ),
    Task(
        "sst2",
        "SST-2: is a review's sentence positive?",
        (("sentence",),),
        ("negative", "positive"),
        ("accuracy",),
        folder="SST-2",
        layouts=_tsv({"text": "sentence", "label": "label"}),
        hub=("nyu-mll/glue", "sst2"),
        submissions={"test": "SST-2.tsv"},
    ),
    Task(
        "mrpc",
        "MRPC: do two sentences say the same?",
        (("sentence1",), ("sentence2",)),
        ("not_equivalent", "equivalent"),
        ("accuracy", "f1"),
        folder="MRPC",
        layouts=_tsv(_pair("#1 String", "#2 String", "Quality")),
        hub=("nyu-mll/glue", "mrpc"),
        submissions={"test": "MRPC.tsv"},
        positive="equivalent",
    ),
    Task(
        "stsb",
        "STS-B: how similar are two sentences, from 0 to 5?",
        (("sentence1",), ("sentence2",)),
        (),
        ("pearson", "spearmanr"),
        # On the Hub the column is called label, and hidden ones are -1.
        label_columns={"label": "ids", "score": "names"},
        folder="STS-B",
        layouts=_tsv(_pair("sentence1", "sentence2", "score"), "names"),
        hub=("nyu-mll/glue", "stsb"),
        submissions={"test": "STS-B.tsv"},
        label_range=(0.0, 5.0),
    ),
    Task(
        "qqp",
        "QQP: do two questions ask the same?",
        (("question1",), ("question2",)),
        ("not_duplicate", "duplicate"),
        ("accuracy", "f1"),
        folder="QQP",
        layouts={
            "train": TsvLayout("train.tsv", _QQP, skips_broken=True),
            "validation": TsvLayout("dev.tsv", _QQP, skips_broken=True),
            "test": TsvLayout(
                "test.tsv", {"text": "question1", "text_pair": "question2", "index": "id"}
            ),
        },
        hub=("nyu-mll/glue", "qqp"),
        submissions={"test": "QQP.tsv"},
        positive="duplicate",
    ),
    Task(
        "mnli",
        "MNLI: does the first sentence entail the second?",
        (("premise",), ("hypothesis",)),
        ("entailment", "neutral", "contradiction"),
        ("accuracy",),
        folder="MNLI",
        layouts={
            "train": TsvLayout("train.tsv", _MNLI_LABELED, label_form="names"),
            "validation": TsvLayout("dev_matched.tsv", _MNLI_LABELED, label_form="names"),
            "validation_mismatched": TsvLayout(
                "dev_mismatched.tsv", _MNLI_LABELED, label_form="names"
            ),
            "test": TsvLayout("test_matched.tsv", _MNLI_TEST),
            "test_mismatched": TsvLayout("test_mismatched.tsv", _MNLI_TEST),
            "diagnostic": TsvLayout("../diagnostic/diagnostic.tsv", _MNLI_TEST),
        },
        hub=("nyu-mll/glue", "mnli"),
        submissions={
            "test": "MNLI-m.tsv",
            "test_mismatched": "MNLI-mm.tsv",
            "diagnostic": "AX.tsv",
        },
        submits_names=True,
    ),
    Task(
        "qnli",
        "QNLI: does a sentence answer a question?",
        (("question",), ("sentence",)),
        ("entailment", "not_entailment"),
        ("accuracy",),
        folder="QNLI",
        layouts=_tsv(_pair("question", "sentence"), "names"),
        hub=("nyu-mll/glue", "qnli"),
        submissions={"test": "QNLI.tsv"},
        submits_names=True,
    ),
    Task(
        "rte",
        "RTE: does the first text entail the second?",
        (("sentence1",), ("sentence2",)),
        ("entailment", "not_entailment"),
        ("accuracy",),
        folder="RTE",
        layouts=_tsv(_pair("sentence1", "sentence2"), "names"),
        hub=("nyu-mll/glue", "rte"),
        submissions={"test": "RTE.tsv"},
        submits_names=True,
    ),
    Task(
        "wnli",
        "WNLI: is the pronoun resolved rightly?",
        (("sentence1",), ("sentence2",)),
        ("not_entailment", "entailment"),
        ("accuracy",),
        folder="WNLI",
        layouts=_tsv(_pair("sentence1", "sentence2")),
        hub=("nyu-mll/glue", "wnli"),
        submissions={"test": "WNLI.tsv"},
    ),
    Task(
        "imdb",
        "IMDB: is a film review positive?",
        (("text",),),
        ("neg", "pos"),
        ("accuracy",),
        folder="imdb",
        hub=("stanfordnlp/imdb", None),
        test_is_evaluation=True,
    ),
    Task(
        "amazon",
        "Amazon reviews: how many stars?",
        (("text", "reviewText", "review_body", "review_text", "content"),),
        ("1", "2", "3", "4", "5"),
        ("accuracy",),
        label_columns={
            "stars": "names",
            "overall": "names",
            "star_rating": "names",
            "rating": "names",
            "label": "ids",
        },
        folder="amazon",
        test_is_evaluation=True,
    ),
    Task(
        "embedded",
        "Embedded corpus: language reference or standard library?",
        (("text",),),
        ("library", "reference"),
        ("accuracy",),
        label_columns={"label": "names"},
    ),
)
TASKS: Mapping[str, Task] = {task.name: task for task in _ALL}
# The tasks of the benchmark, in the order of its own table.
GLUE_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
