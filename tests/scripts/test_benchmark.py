"""The benchmark program at tiny sizes: what it writes, how it counts, what it refuses."""

import csv
import dataclasses
import gc
import importlib.util
import json
import math
import re
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from hf_linear_attn.training.program import run_program
from tests import reference
from tests.errors import relative_error

ROOT = Path(__file__).parents[2]


def load_program():
    # Its own modules are found beside it, as when it is run.
    sys.path.insert(0, str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location("benchmark", ROOT / "scripts" / "benchmark.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCHMARK = load_program()

from benchmarks import (  # noqa: E402
    allocator,
    compare,
    cores,
    exact,
    garbage,
    machine,
    memory,
    official,
    peers,
    rounds,
)
from benchmarks.bench import Bench, Case, Settings  # noqa: E402
from benchmarks.clock import CpuClock  # noqa: E402
from benchmarks.results import Results, read_results  # noqa: E402
from benchmarks.rounds import Quartiles, Timings, interleave, orders, quartiles  # noqa: E402
from benchmarks.suites import ALL, SUITES, Suite  # noqa: E402

TINY = ["--heads", "2", "--head_dim", "8", "--layers", "1", "--rounds", "1", "--tokens", "40"]

# A causal cosFormer layer with the official one's interface, and memory as greedy as that.
OFFICIAL = """
import math, torch
from torch import nn

class CosformerAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, causal=False):
        super().__init__()
        assert causal
        self.heads = num_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim))

    def forward(self, query, key=None, value=None):
        key, value = (query if x is None else x for x in (key, value))
        n, batch, width = query.shape
        q, k, v = self.q_proj(query).relu(), self.k_proj(key).relu(), self.v_proj(value)
        q, k, v = (x.view(n, batch * self.heads, -1).transpose(0, 1) for x in (q, k, v))
        a = (torch.arange(n) + 1)[:, None] * (math.pi / 2 / n)
        q, k = (torch.cat((x * a.sin(), x * a.cos()), -1) for x in (q, k))
        states = (k[..., None] * v[:, :, None]).cumsum(1)
        total = (q * k.cumsum(1)).sum(-1, keepdim=True).clamp_min(1e-6)
        out = (q[..., None] * states).sum(2) / total
        return self.out_proj(SCALE * out.transpose(0, 1).reshape(n, batch, width))
"""


KEYS = {
    "op": {
        *(f"op/causal/{name}/128" for name in ("cosformer", "linear_transformer")),
        *(f"op/bidirectional/{n}/128" for n in ("cosformer", "linear_transformer", "nystrom")),
        "op/gemm_share/cosformer/128",
        "op/many_documents_over_few/cosformer",
        *(f"op/{x}/cosformer" for x in ("growth", "bf16_over_fp32", "mask_over_none")),
    },
    "layer": {"layer/cosformer/128"},
    "model": {"model/cosformer-mlm/128"},
    "decode": {
        *(f"{way}/{name}/128" for way in ("decode", "decode_op")
          for name in ("cosformer", "linear_transformer")),
        "decode/state_growth/40",
    },
    "memory": {
        *(f"memory/saved_units/cosformer/{kind}" for kind in ("default", "recompute")),
        *(
            f"memory/error/cosformer/{dtype}/{what}"
            for dtype in ("fp32", "bf16")
            for what in ("forward", "gradients")
        ),
    },
    "compare": {
        *(f"official/{what}/128" for what in ("core", "layer", "memory")),
        "compare/nystromformer/nystrom/128",
        "compare/longformer/cosformer/128",
    },
    "quick": {"op/causal/cosformer/128", "layer/cosformer/128", "decode/cosformer/128"},
}  # fmt: skip
# With one length.
LEFT_OUT = {"decode": {f"decode/flat/{name}" for name in ("cosformer", "linear_transformer")}}


class FakeClock:
    """Says what it is told, a value a call, and counts the calls."""

    name = "fake"

    def __init__(self, seconds):
        self.seconds_of, self.order = {name: iter(s) for name, s in seconds.items()}, []

    def seconds(self, call, repeats):
        name = call()
        self.order.append((name, repeats))
        return next(self.seconds_of[name])


@pytest.fixture
def small(monkeypatch):
    """A machine that is measured in no time."""
    monkeypatch.setattr(machine, "gemm_size", lambda device: 16)
    monkeypatch.setattr(machine, "_COPY_BYTES", 4096)
    monkeypatch.setattr(rounds, "SHORTEST_SAMPLE", 0.0)


@pytest.fixture
def settings():
    return Settings(torch.device("cpu"), torch.float32, rounds=1, heads=2, head_dim=8)


@pytest.fixture
def official_file(tmp_path):
    file = tmp_path / "cosformer.py"
    file.write_text(OFFICIAL.replace("SCALE", "1"))
    return file


def measured(names, *arguments):
    """The results of suites, as the JSON has them."""
    file = Path("found.json")
    BENCHMARK.main(["--suite", names, *TINY, *arguments, "--json", str(file)])
    return json.loads(file.read_text(encoding="utf-8"))


def refusal(capsys, *arguments):
    """The one line that a mistake gets."""
    with pytest.raises(SystemExit) as stop:
        run_program(BENCHMARK.main, list(arguments))
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


def test_ratios_are_paired_by_round():
    """A machine that slows down changes no ratio of a round, but medians of times."""
    timings = Timings({"theirs": [2.0, 40.0, 9.0], "ours": [1.0, 10.0, 3.0]})
    assert timings.ratio("theirs", "ours") == Quartiles(2.5, 3.0, 3.5)
    assert timings.of("theirs").median / timings.of("ours").median == 3.0
    drifting = Timings({"theirs": [10.0, 20.0, 60.0], "ours": [5.0, 40.0, 20.0]})
    assert drifting.ratio("theirs", "ours").median == 2.0
    assert drifting.of("theirs").median / drifting.of("ours").median == 1.0


def test_quartiles_interpolate():
    assert quartiles([4.0, 1.0, 3.0, 2.0]) == Quartiles(1.75, 2.5, 3.25)
    assert quartiles([7.0]) == Quartiles(7.0, 7.0, 7.0)
    assert Quartiles(1, 2, 3).scaled(2) == Quartiles(2, 4, 6)


def test_rounds_are_interleaved():
    # The first value of each is of the round that is not counted.
    clock = FakeClock({"a": [0.001, 1, 2, 3], "b": [0.1, 10, 20, 30]})
    told = []
    timings = interleave({"a": lambda: "a", "b": lambda: "b"}, clock, 3, told.append)
    assert timings.seconds == {"a": [1, 2, 3], "b": [10, 20, 30]}
    names = [name for name, _ in clock.order[2:]]
    assert [sorted(names[i : i + 2]) for i in (0, 2, 4)] == [["a", "b"]] * 3
    # A millisecond is repeated until the sample is long enough, a tenth of a second is not.
    assert {repeats for name, repeats in clock.order[2:] if name == "a"} == {20}
    assert {repeats for name, repeats in clock.order[2:] if name == "b"} == {1}
    assert told == [0, 1, 2, 3]


def orders_of_a_race(settings, names):
    """As timed."""
    clock = FakeClock({name: [1] * (settings.rounds + 1) for name in names})
    Bench(settings, clock, Results()).race({name: partial(str, name) for name in names})
    timed = [name for name, _ in clock.order[len(names) :]]
    return [tuple(timed[i : i + len(names)]) for i in range(0, len(timed), len(names))]


def test_nobody_always_runs_behind_the_same_one(settings):
    seeds = [dataclasses.replace(settings, rounds=7, seed=seed) for seed in range(5)]
    found = [orders_of_a_race(seed, "abcd") for seed in seeds]
    assert len({tuple(race) for race in found}) == len(seeds)
    for race in found:
        assert len(set(race)) == 7
        for name in "abcd":
            behind = [order[order.index(name) - 1] for order in race if order[0] != name]
            assert len(set(behind)) >= 2, (name, behind)
            assert max(behind.count(other) for other in set(behind)) <= 4, (name, behind)


def test_orders_come_again_only_when_all_have_been():
    for count, wanted in ((1, 4), (2, 7), (3, 7), (3, 12), (4, 24), (5, 7)):
        found = orders(list("abcde")[:count], wanted, seed=3)
        assert len(found) == wanted
        possible = math.factorial(count)
        for start in range(0, wanted, possible):
            part = found[start : start + possible]
            assert len(set(part)) == len(part)
        assert all(sorted(order) == list("abcde")[:count] for order in found)
    drawn = [orders(list("abcde"), 7, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_cpu_clock_counts_the_process_not_the_wall():
    assert CpuClock().seconds(lambda: time.sleep(0.05), 1) < 0.04
    busy = CpuClock().seconds(lambda: sum(range(200_000)), 2)
    assert busy > 0


def test_cores_are_the_mechanisms(settings):
    inputs = cores.draw(settings, 33)
    wide = [x.detach().double() for x in inputs.leaves]
    own = {"cosformer": {"max_position_embeddings": 33}, "nystrom": {"num_landmarks": 64}}
    for causal, found in ((True, cores.CAUSAL), (False, cores.BIDIRECTIONAL)):
        for name, core in {**found, "softmax": cores.softmax, "eager": cores.eager_softmax}.items():
            formula = getattr(reference, "softmax" if name == "eager" else name)
            wanted = formula(*wide, causal=causal, **own.get(name, {}))
            assert relative_error(core(*inputs.leaves, causal=causal), wanted) < 1e-5, name


def test_the_exact_form_is_the_formula(settings):
    """Over several blocks of rows, the last one short."""
    inputs = cores.draw(settings, 2 * exact._ROWS + 5)
    length = inputs.q.shape[2]
    wide = [x.detach().double().requires_grad_() for x in inputs.leaves]
    wanted = reference.cosformer(*wide, causal=True, max_position_embeddings=length)
    found = exact.causal_cosformer(*inputs.leaves, inputs.grad, length)
    gradients = torch.autograd.grad(wanted, wide, inputs.grad.double())
    for a, b in zip(found, (wanted, *gradients), strict=True):
        assert relative_error(a, b) < 1e-12


def test_saved_bytes_count_each_storage_once(settings):
    inputs = cores.draw(settings, 16)
    unit = inputs.q.numel() * 4

    def core(q, k, v):
        hidden = q * k  # saves q and k, which are known
        return hidden * hidden.flatten().view_as(v)  # saves one storage twice

    assert memory.saved_bytes(core, inputs) == unit
    assert memory.saved_bytes(lambda q, k, v: q * k + v, inputs) == 0
    assert memory.saved_bytes(lambda q, k, v: (q * k).exp() * v, inputs) == unit
    inputs = cores.draw(dataclasses.replace(settings, head_dim=64), 512)
    default, less = (
        memory.saved_bytes(cores.cosformer, inputs, causal=True, recompute_states=recompute)
        for recompute in (False, True)
    )
    assert 0 < less < default / 20


def test_the_allocator_sees_peak_and_what_is_kept():
    def call():
        big = torch.ones(1000)
        return (big + 1)[:10].clone()

    found = allocator.allocated_by(call, torch.device("cpu"))
    assert found.kept == 40
    assert 8000 <= found.peak < 9000


@pytest.mark.parametrize("name", list(SUITES))
def test_every_suite_at_tiny_sizes(name, small, tmp_path, monkeypatch, official_file):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("benchmarks.model.VOCABULARY", 50)
    monkeypatch.setattr("benchmarks.compare.LONGFORMER_WINDOW", 64)
    extra = ["--official", str(official_file)] if name == "compare" else []
    content = measured(name, "--lengths", "128", *extra)
    assert KEYS[name] <= set(content["ratios"])
    assert all(math.isfinite(x) and x >= 0 for x in content["ratios"].values())
    assert set(content["left_out"]) == LEFT_OUT.get(name, set())
    assert set(content["meaning"]) == set(content["ratios"])
    assert set(content["less_is_better"]) <= set(content["ratios"])
    for key, (low, high) in content["quartiles"].items():
        assert low <= content["ratios"][key] <= high
    conditions = content["conditions"]
    assert conditions["rounds"] == 1
    assert conditions["suites"] == [name]
    assert {"gemm_gflops", "copy_gbytes_per_second", "torch", "threads", "seed"} <= set(conditions)
    again = read_results(Path("found.json"))
    assert json.loads(again.to_json()) == content


def stand_in(bench):
    """A case that measures nothing, and has a bit of everything."""
    for n in (64, 128):
        bench.results.times[f"op/causal/softmax/{n}"] = Quartiles(0.1 * n, 0.2 * n, 0.3 * n)
        bench.results.times[f"op/causal/cosformer/{n}"] = Quartiles(0.01 * n, 0.02 * n, 0.03 * n)
        bench.results.sizes[f"memory/peak/causal/cosformer/{n}"] = n * 2**20
    bench.results.paired("op/causal/cosformer/64", Quartiles(9.0, 10.0, 11.0), "softmax / it")
    bench.results.number("memory/saved_units/cosformer/default", 2.0, "units", less=True)
    bench.results.peers["flash-attn"] = "not installed"


@pytest.fixture
def quick(small, tmp_path, monkeypatch):
    """Suite quick measures nothing."""
    monkeypatch.chdir(tmp_path)
    case = Case("a case", stand_in)
    monkeypatch.setitem(SUITES, "quick", Suite("nothing", lambda settings: [case], draws=True))


def test_no_collection_is_over_when_it_ends():
    def fails():
        with garbage.no_collection():
            assert not gc.isenabled()
            assert gc.get_freeze_count() > 0
            raise KeyError

    assert gc.isenabled()
    with pytest.raises(KeyError):
        fails()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_every_form_of_the_results_is_written(quick, capsys):
    BENCHMARK.main(["--rounds", "1", "--json", "a.json", "--csv", "a.csv", "--markdown", "a.md",
                    "--plot", "a.png"])  # fmt: skip
    content = json.loads(Path("a.json").read_text())
    assert content["ratios"] == {
        "op/causal/cosformer/64": 10.0, "memory/saved_units/cosformer/default": 2.0,
    }  # fmt: skip
    assert content["quartiles"] == {"op/causal/cosformer/64": [9.0, 11.0]}
    assert content["less_is_better"] == ["memory/saved_units/cosformer/default"]
    with open("a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 + 4 + 2
    assert rows[0]["key"] == "op/causal/cosformer/64"
    assert [rows[0][c] for c in ("value", "lower", "upper", "better")] == [
        "10.0",
        "9.0",
        "11.0",
        "more",
    ]
    text = Path("a.md").read_text()
    assert "| `op/causal/cosformer/64` | 10.00 | 9.00 … 11.00 | more | softmax / it |" in text
    assert "| flash-attn | not installed |" in text
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "GFLOP/s" in said
    assert "not installed" in said
    assert said.rstrip().endswith("--docs a.json")


def test_the_page_and_its_plot_come_from_the_json(quick, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(BENCHMARK, "DOCS", tmp_path / "docs")
    BENCHMARK.main(["--rounds", "1", "--json", "a.json"])
    BENCHMARK.main(["--docs", "a.json"])
    text = (tmp_path / "docs" / BENCHMARK.PAGE).read_text()
    assert "| `op/causal/cosformer/64` | 10.00 | 9.00 … 11.00 | more | softmax / it |" in text
    assert f"]({BENCHMARK.PLOT})" in text
    assert "median of 1 interleaved rounds" in text
    assert (tmp_path / "docs" / BENCHMARK.PLOT).read_bytes().startswith(b"\x89PNG")
    before = text
    BENCHMARK.main(["--docs", "a.json"])
    assert (tmp_path / "docs" / BENCHMARK.PAGE).read_text() == before


def test_what_is_said_to_be_written_is_there(quick, capsys, monkeypatch):
    """A plot in the name that was given; none, and no word of it, where nothing can be drawn."""
    BENCHMARK.main(["--rounds", "1", "--markdown", "a.md", "--plot", "a.PNG"])
    assert "Wrote a.md, a.PNG" in capsys.readouterr().out
    assert sorted(file.name for file in Path().iterdir()) == ["a.PNG", "a.md"]
    no_lengths = Case("a case", lambda bench: bench.results.number("op/a", 1.0, "a"))
    monkeypatch.setitem(SUITES, "quick", Suite("nothing", lambda _: [no_lengths], draws=True))
    BENCHMARK.main(["--rounds", "1", "--markdown", "b.md", "--plot", "b.png"])
    assert "Wrote b.md\n" in capsys.readouterr().out
    assert not Path("b.png").exists()


def test_what_was_left_out_is_said_and_kept(quick, capsys, monkeypatch):
    def case(bench):
        stand_in(bench)
        bench.results.left_out["decode/a"] = "nothing tells"

    monkeypatch.setitem(SUITES, "quick", Suite("nothing", lambda _: [Case("a case", case)]))
    BENCHMARK.main(["--rounds", "1", "--json", "a.json", "--markdown", "a.md"])
    assert "Left out: decode/a: nothing tells" in capsys.readouterr().out
    assert "Left out: decode/a: nothing tells." in Path("a.md").read_text()
    assert read_results(Path("a.json")).left_out == {"decode/a": "nothing tells"}
    # A file from before anything was ever left out.
    content = json.loads(Path("a.json").read_text())
    del content["left_out"]
    Path("a.json").write_text(json.dumps(content))
    assert read_results(Path("a.json")).left_out == {}


def test_results_are_kept_after_each_suite(quick, monkeypatch):
    def fails(bench):
        raise KeyboardInterrupt

    broken = Suite("breaks", lambda settings: [Case("a case", fails)])
    monkeypatch.setitem(SUITES, "layer", broken)
    with pytest.raises(KeyboardInterrupt):
        BENCHMARK.main(["--suite", "quick,layer", "--rounds", "1", "--json", "a.json"])
    content = json.loads(Path("a.json").read_text())
    assert content["conditions"]["suites"] == ["quick"]
    assert len(content["ratios"]) == 2


def test_all_is_every_suite_but_the_quick_one():
    assert BENCHMARK.suite_names("all") == list(ALL)
    assert set(ALL) == set(SUITES) - {"quick"}
    assert BENCHMARK.suite_names("op,memory,op") == ["op", "memory"]


def test_peers_say_what_became_of_them(settings):
    missing = peers.Peer("a-package", "a_package.ops", lambda *_: cores.softmax, True, False, {})
    assert missing.find(settings) == "not installed"
    needs_gpu = peers.Peer("a-package", "json", lambda *_: cores.softmax, True, True, {})
    assert needs_gpu.find(settings) == "installed, but needs a GPU (--device cuda)"
    here = peers.Peer("a-package", "json", lambda *_: cores.softmax, True, False, {})
    assert here.find(settings) is cores.softmax


def test_a_peer_that_fails_is_named_with_why(settings):
    def broken(q, k, v, *, causal):
        raise RuntimeError("no kernel\nfor this")

    peer = peers.Peer("a-package", "json", lambda *_: broken, True, False, {})
    bench = Bench(settings, CpuClock(), Results())
    compare._package(bench, peer=peer, length=32)
    assert bench.results.peers == {"a-package": "fails here: RuntimeError: no kernel for this"}
    assert bench.results.ratios == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "opp"], r"--suite 'opp' is unknown; did you mean 'op'\?; there are op, layer"),
        (["--suite", "op,"], "--suite '' is unknown"),
        (["--suite", "compare", "--official", "none.py"], "--official none.py: there is no such"),
        (["--suite", "op", "--official", "none.py"], "--official belongs to suite compare"),
        (["--suite", "compare", "--lengths", "100"], "--lengths 100: .* a multiple of 64"),
        (["--suite", "decode", "--plot", "a.png"], "--plot shows what suites op, memory and quick"),
        (["--plot", "a.txt"], "--plot a.txt: a plot is a PNG; give a name that ends in .png"),
        (["--plot", "a"], "--plot a: a plot is a PNG"),
        (["--json", "a.txt", "--csv", "./a.txt"], "--json and --csv name the same file, a.txt"),
        (["--markdown", "a.png", "--plot", "a.png"], "--markdown and --plot name the same file"),
        (["--rounds", "0"], "--rounds is 0; it must be at least 1"),
        (["--suite", "decode", "--tokens", "1"], "--tokens is 1; it must be at least 2"),
        (["--rounds", "x"], "argument --rounds: invalid int value"),
        (["--lengths", "1k"], "--lengths is '1k'; give numbers of tokens"),
        (["--lengths", "0,4"], "--lengths is '0,4'"),
        (["--device", "tpu9"], "--device 'tpu9' is unknown"),
        (["--device", "cuda:99"], "PyTorch sees [0-9]+ GPUs here"),
        (["--json", "none/a.json"], "none/a.json cannot be written"),
        (["--json", "."], r"\. is a folder"),
        (["--docs", "none.json"], "none.json"),
        (["--docs", "a.json", "--suite", "op"], "--docs measures nothing"),
        (["--sweet", "op"], "unrecognized arguments"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    def measured(*_):
        raise AssertionError("this has to be said before anything is measured")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "describe", measured)
    assert re.search(message, refusal(capsys, *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1", "it has no class CosformerAttention"),
        ("CosformerAttention = 3", "it has no class CosformerAttention"),
        ("1 / 0", "it cannot be imported: ZeroDivisionError: division by zero"),
        ("raise KeyError('a\\nb')", "it cannot be imported: KeyError"),
        ("import sys; sys.exit('no GPU')", "it cannot be imported: SystemExit: no GPU"),
        ("import a_package_that_is_not_there", "it cannot be imported"),
        ("def", "it cannot be imported"),
    ],
)
def test_files_that_are_not_the_official_layer(content, message, tmp_path, capsys):
    file = tmp_path / "layer.py"
    file.write_text(content)
    assert message in refusal(capsys, "--suite", "compare", "--official", str(file))


def test_the_official_layer_is_not_written_over(official_file, capsys):
    before = official_file.read_text()
    said = refusal(capsys, "--suite", "compare", "--official", str(official_file),
                   "--json", str(official_file))  # fmt: skip
    assert "--official and --json name the same file" in said
    assert official_file.read_text() == before


def test_a_layer_that_computes_something_else_is_not_compared(tmp_path, settings):
    file = tmp_path / "layer.py"
    file.write_text(OFFICIAL.replace("SCALE", "1.01"))
    settings = dataclasses.replace(settings, official=file, lengths=(32,))
    bench = Bench(settings, CpuClock(), Results())
    for case in official.cases(settings):
        with pytest.raises(ValueError, match="away from cosFormer's"):
            case.run(bench)


@pytest.mark.parametrize("text", ["{}", "[]", "no json", '{"ratios": {"a": 1}}'])
def test_json_of_something_else_is_refused(text, tmp_path, capsys):
    file = tmp_path / "a.json"
    file.write_text(text)
    assert "is not a result of this program" in refusal(capsys, "--docs", str(file))


def test_results_without_lengths_have_no_plot(tmp_path, capsys):
    file = tmp_path / "a.json"
    file.write_text(Results({"device": "x"}).to_json())
    assert "nothing to plot" in refusal(capsys, "--docs", str(file))


def test_help_explains_the_suites(capsys):
    with pytest.raises(SystemExit) as stop:
        BENCHMARK.main(["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    for name, suite in SUITES.items():
        assert f"  {name:8} {suite.about[:30]}" in said
