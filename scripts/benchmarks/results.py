"""What was measured, and its JSON and CSV forms."""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rounds import Quartiles


@dataclass(frozen=True)
class Ratio:
    """One result.

    Attributes:
        value: a median over rounds, or a figure that no clock has measured.
        what: in words.
        less: less is better.
        lower, upper: quartiles over rounds; None where there were none.
    """

    value: float
    what: str
    less: bool = False
    lower: float | None = None
    upper: float | None = None


def better(ratio: Ratio) -> str:
    """Which is better, "more" or "less"."""
    return "less" if ratio.less else "more"


@dataclass
class Results:
    """All that a run of the program has measured, by keys such as `op/causal/cosformer/1024`.

    Attributes:
        conditions: under which, such as the versions and the size of the tensors.
        ratios: the results.
        times: seconds.
        sizes: bytes.
        peers: other packages, with what became of the comparison.
        left_out: keys that could not be measured, with why.
    """

    conditions: dict[str, Any] = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    times: dict[str, Quartiles] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    peers: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def paired(self, key: str, quartiles: Quartiles, what: str, *, less: bool = False) -> None:
        """Put a ratio that was taken round by round."""
        self.ratios[key] = Ratio(quartiles.median, what, less, quartiles.lower, quartiles.upper)

    def number(self, key: str, value: float, what: str, *, less: bool = False) -> None:
        """Put a figure that does not vary from round to round."""
        self.ratios[key] = Ratio(float(value), what, less)

    def to_json(self) -> str:
        """Everything; `ratios` maps each key to its number, the rest stands beside it."""
        spread = {k: [r.lower, r.upper] for k, r in self.ratios.items() if r.lower is not None}
        content = {
            "ratios": {key: ratio.value for key, ratio in self.ratios.items()},
            "quartiles": spread,
            "meaning": {key: ratio.what for key, ratio in self.ratios.items()},
            "less_is_better": [key for key, ratio in self.ratios.items() if ratio.less],
            "seconds": {key: asdict(time) for key, time in self.times.items()},
            "bytes": self.sizes,
            "peers": self.peers,
            "left_out": self.left_out,
            "conditions": self.conditions,
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    def to_csv(self) -> str:
        """A line a figure: kind, key, value, lower and upper quartile, unit, meaning, better."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["kind", "key", "value", "lower", "upper", "unit", "meaning", "better"])
        for key, r in self.ratios.items():
            writer.writerow(["ratio", key, r.value, r.lower, r.upper, "", r.what, better(r)])
        for key, t in self.times.items():
            writer.writerow(["time", key, t.median, t.lower, t.upper, "s", "", "less"])
        for key, size in self.sizes.items():
            writer.writerow(["size", key, size, None, None, "bytes", "", "less"])
        return text.getvalue()


def read_results(file: Path) -> Results:
    """What `Results.to_json` wrote.

    Raises:
        ValueError: the file is no such JSON.
        FileNotFoundError: it does not exist.
    """
    try:
        return _from_json(json.loads(file.read_text(encoding="utf-8")))
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{file} is not a result of this program ({type(error).__name__}: {error}); give a "
            "file that --json has written"
        ) from error


def _from_json(content: Mapping[str, Any]) -> Results:
    spread, meaning, less = (content[k] for k in ("quartiles", "meaning", "less_is_better"))
    ratios = {
        key: Ratio(value, meaning[key], key in less, *spread.get(key, (None, None)))
        for key, value in content["ratios"].items()
    }
    times = {key: Quartiles(**time) for key, time in content["seconds"].items()}
    return Results(
        content["conditions"], ratios, times, content["bytes"], content["peers"],
        content.get("left_out", {}),
    )  # fmt: skip
