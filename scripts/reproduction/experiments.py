"""What is run, on which texts, and what papers have published about the same comparison."""

from dataclasses import dataclass
from pathlib import Path

GRIDS = Path(__file__).resolve().parents[2] / "recipes" / "configs" / "results"


@dataclass(frozen=True)
class Ordering:
    """A published finding: one model does better than another.

    Attributes:
        better, worse: rows of the experiment's grid.
        table: id of the table in `training/published_results.yaml` that says so; None where a
            paper shows it without figures.
        column: of that table.
        published_better, published_worse: that table's rows.
        said_by: the paper, where there is no table.
    """

    better: str
    worse: str
    table: str | None = None
    column: str = "test"
    published_better: str = ""
    published_worse: str = ""
    said_by: str = ""


@dataclass(frozen=True)
class Section:
    """One table of the page.

    Attributes:
        title: its heading.
        about: what is compared and why, in a sentence or two.
        rows: of the experiment's grid, in this order; the first is what `Δ` is taken from.
        orderings: what was published about it.
    """

    title: str
    about: str
    rows: tuple[str, ...]
    orderings: tuple[Ordering, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """One grid of runs.

    Attributes:
        name: for the command line and of its folder.
        recipe: the program in recipes/.
        train, validation: text files below the data folder.
        tokens: what a token is.
        sections: what the page shows of it.
        same_time: steps of all models but the first follow from what their steps cost.
    """

    name: str
    recipe: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    tokens: str
    sections: tuple[Section, ...]
    same_time: bool = False

    @property
    def grid(self) -> Path:
        """The grid's file."""
        return GRIDS / f"{self.name}.yaml"


_WIKIPEDIA = ("wikipedia_extract.txt", "wikitext-2/valid.txt")
_WIKITEXT = ("wikitext-2/test.txt",)
_NOVELS = ("gutenberg/2600_war_and_peace.txt", "gutenberg/2701_moby_dick.txt")
_UNSEEN_NOVEL = ("gutenberg/1661_sherlock_holmes.txt",)
_BPE = "a token is one of 512 of a byte-level BPE that is learned on the training text"
_BYTES = "a token is a byte"

_ATTENTIONS = ("softmax", "Linear Transformer", "cosFormer", "TransNormer T1", "TransNormer T2")
_PAPERS_NAMES = {"softmax": "Transformer"}


def _published(better: str, worse: str, table: str, column: str = "test") -> Ordering:
    """An ordering whose rows have the paper's names but for the baseline."""
    names = (_PAPERS_NAMES.get(name, name) for name in (better, worse))
    return Ordering(better, worse, table, column, *names)


_TNL = "wikitext103_tnl"
_CAUSAL_ORDER = (
    _published("softmax", "TransNormer T1", _TNL),
    _published("TransNormer T1", "TransNormer T2", _TNL),
    _published("TransNormer T2", "cosFormer", _TNL),
    _published("cosFormer", "Linear Transformer", _TNL),
    _published("softmax", "cosFormer", _TNL),
    _published("softmax", "TransNormer T2", _TNL),
    _published("TransNormer T2", "softmax", "wikitext103_transnormer", "validation"),
    _published("TransNormer T2", "Linear Transformer", "wikitext103_transnormer"),
    _published("softmax", "Linear Transformer", "wikitext103_transnormer"),
)
_FIGURE_4 = (
    "Qin et al. 2022 (cosFormer), Figure 4: loss curves of bidirectional models that fall faster, "
    "from notes on the paper; here: losses after the last step"
)
_MASKED_ORDER = (Ordering("cosFormer", "softmax", said_by=_FIGURE_4),)


def _attentions(kind: str, order: tuple[Ordering, ...]) -> Section:
    return Section(
        f"{kind} language models",
        "The same trunk, width, number of layers, text and steps. TransNormer attends inside "
        "blocks in the first half of its layers, by ReLU (T1) or softmax (T2), and linearly "
        "without a denominator in the second; its blocks are an eighth of an example.",
        _ATTENTIONS,
        order,
    )


_WITHOUT = "cosFormer, no re-weighting"


def _reweighting(kind: str, order: Ordering) -> Section:
    return Section(
        f"Re-weighting, {kind} models",
        "cosFormer with the cosine of the distance and without it: ReLU features alone.",
        ("cosFormer", _WITHOUT),
        (order,),
    )


_BETTER_WITH = Ordering("cosFormer", _WITHOUT, said_by=_FIGURE_4)
_BETTER_WITHOUT = Ordering(
    _WITHOUT, "cosFormer", "mamba2_feature_maps", "perplexity", "ReLU", "cosFormer"
)
_LOCAL_FIRST = Section(
    "Order of local and linear layers",
    "TransNormer T2 attends inside blocks in the first half of its layers and linearly in the "
    "second, and the other way round, in the causal models.",
    ("TransNormer T2", "TransNormer T2, local last"),
    (
        Ordering(
            "TransNormer T2", "TransNormer T2, local last",
            "transnormer_order", "value", "local first", "local last",
        ),
    ),
)  # fmt: skip
_SAME_TIME = Section(
    "Whole novels, 4,096 tokens, the same time",
    "Masked language models trained on two novels and tested on the beginning of a third. The "
    "steps of each model are as many as take the CPU time of TransNormer's, by what a step of each "
    "costs when they take turns; what the runs took, evaluation included, stands in the last "
    "column. A model whose perplexity is not far below that of the unigram model has hardly begun "
    "to use its context: two of those cannot be told apart by this table. TransNormer T2's first "
    "layer is softmax attention inside blocks of 64 tokens.",
    ("softmax", "cosFormer", "TransNormer T2"),
)

EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment(
            "causal", "clm", _WIKIPEDIA, _WIKITEXT, _BPE,
            (
                _attentions("Causal", _CAUSAL_ORDER),
                _reweighting("causal", _BETTER_WITHOUT),
                _LOCAL_FIRST,
            ),
        ),
        Experiment(
            "masked", "mlm", _WIKIPEDIA, _WIKITEXT, _BYTES,
            (_attentions("Masked", _MASKED_ORDER), _reweighting("masked", _BETTER_WITH)),
        ),
        Experiment("long", "mlm", _NOVELS, _UNSEEN_NOVEL, _BYTES, (_SAME_TIME,), same_time=True),
    )
}  # fmt: skip
