"""The page of results and what README quotes of it are what the kept measurements say."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from benchmarks.report import page  # noqa: E402
from benchmarks.results import read_results  # noqa: E402

RUNS = sorted((ROOT / "docs" / "performance").glob("*.json"))
PAGE, PLOT = ROOT / "docs" / "performance.md", "images/performance.png"


def ratio(key):
    found = [run.ratios[key].value for run in map(read_results, RUNS) if key in run.ratios]
    assert len(found) == 1, key
    return found[0]


def test_the_page_is_made_of_the_measurements():
    assert [run.name for run in RUNS] == ["cpu-1.json", "cpu-2-models.json"]
    assert PAGE.read_text() == page([read_results(run) for run in RUNS], PLOT)
    assert (PAGE.parent / PLOT).read_bytes().startswith(b"\x89PNG")


def test_readme_quotes_them():
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert readme.index("docs/images/performance.png") < readme.index(".png", 0) + 4
    for name, words in (("cosformer", "cosFormer"), ("linear_transformer", "Linear Transformer")):
        few, many = (ratio(f"op/causal/{name}/{n}") for n in (1024, 8192))
        assert (
            f"{words} {few:.1f} times over 1,024 tokens and {many:.0f} times over 8,192" in readme
        )
    layer = [f"{ratio(f'layer/cosformer/{n}'):.1f}" for n in (512, 4096, 8192)]
    assert f"{layer[0]} times at 512, {layer[1]} at 4,096 and {layer[2]} at 8,192" in readme
