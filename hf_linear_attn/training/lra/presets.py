"""The protocols under which results were published: what a model and its head look like.

They differ in everything but the data, so their numbers cannot be compared: `official` is
google-research/long-range-arena (JAX), `nystromformer` is mlpen/Nystromformer. What is departed
from here, in both: pads are masked in every attention and left out of means, pixel 0 is no pad,
`text` validates on held-out training reviews instead of on the test set, every test example is
scored, and the tables of symbols are fixed.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Scale:
    """The size at which a preset's results were published.

    Attributes:
        steps: optimiser steps.
        batch: examples in a step.
        length: longest example in symbols.
        train, validation, test: number of examples of each split; `text` holds out a tenth of the
            training reviews here.
    """

    steps: int
    batch: int
    length: int
    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class Preset:
    """A protocol.

    Attributes:
        name: as in `--preset`.
        title: whose it is.
        harness: of the published tables it belongs beside.
        tasks: with the scale of each.
        head: fields of `LraConfig` that all tasks share.
        heads: those of single tasks, over `head`.
        softmax_dropout: of attention weights, by task; linear attention has none.
    """

    name: str
    title: str
    harness: str
    tasks: dict[str, Scale]
    head: dict[str, Any]
    heads: dict[str, dict[str, Any]]
    softmax_dropout: dict[str, float]

    def head_fields(self, task: str) -> dict[str, Any]:
        """Fields of `LraConfig` for a task."""
        return {**self.head, **self.heads.get(task, {})}


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "official",
            "Long Range Arena, google-research/long-range-arena",
            "lra_jax",
            tasks={
                "listops": Scale(5_000, 32, 2_000, 96_000, 2_000, 2_000),
                "text": Scale(20_000, 32, 4_000, 22_500, 2_500, 25_000),
                "retrieval": Scale(5_000, 32, 4_000, 147_086, 18_090, 17_437),
                "image": Scale(35_000, 256, 1_024, 45_000, 5_000, 10_000),
                "pathfinder": Scale(62_400, 512, 1_024, 160_000, 20_000, 20_000),
                "pathx": Scale(500_000, 64, 16_384, 160_000, 20_000, 20_000),
            },
            head={"pooling": "cls", "initialization": "xavier"},
            heads={
                # Its two-tower models prepend no CLS vector and read the first byte instead.
                "retrieval": {"pooling": "first", "interaction": "concat", "head_layers": 2},
                "pathfinder": {"pooling": "mean"},
                "pathx": {"pooling": "mean"},
            },
            softmax_dropout={
                "listops": 0.1, "text": 0.1, "retrieval": 0.1, "image": 0.2, "pathfinder": 0.1,
                "pathx": 0.1,
            },
        ),
        Preset(
            "nystromformer",
            "Long Range Arena, mlpen/Nystromformer",
            "mlpen",
            tasks={
                "listops": Scale(5_000, 32, 2_000, 96_000, 2_000, 2_000),
                "text": Scale(20_000, 32, 4_000, 22_500, 2_500, 25_000),
                "retrieval": Scale(30_000, 32, 4_000, 147_086, 18_090, 17_437),
                "image": Scale(35_000, 256, 1_024, 45_000, 5_000, 10_000),
                "pathfinder": Scale(62_400, 256, 1_024, 160_000, 20_000, 20_000),
            },
            head={"pooling": "mean", "initialization": "torch"},
            heads={"retrieval": {"interaction": "nli"}},
            softmax_dropout=dict.fromkeys(
                ("listops", "text", "retrieval", "image", "pathfinder"), 0.1
            ),
        ),
    )
}  # fmt: skip
