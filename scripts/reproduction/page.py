"""The page of results: tables, plots, and what was published beside what was found."""

from collections import Counter

from hf_linear_attn.training.ablation_grid import read_grid
from hf_linear_attn.training.published import (
    footnotes,
    printable_cell,
    printable_rows,
    published_table,
)
from hf_linear_attn.training.spread import spread
from reproduction.experiments import EXPERIMENTS, Experiment, Ordering, Section
from reproduction.figures import ExperimentFigures, Figures
from reproduction.texts import text_lines

PLOTS = "images"
_VERSIONS = ("torch", "transformers", "hf_linear_attn")
_NONE = "–"


def plot_name(experiment: str) -> str:
    """File of an experiment's plot."""
    return f"results-{experiment}.png"


def page(figures: Figures) -> str:
    """The page as Markdown, from nothing but the figures and the experiments' descriptions."""
    lines = ["# Results", "", *_opening(figures), ""]
    for name, found in figures.experiments.items():
        lines += _experiment(EXPERIMENTS[name], found)
    lines += ["## Texts", "", *text_lines()]
    return "\n".join(lines).rstrip("\n") + "\n"


def _opening(figures: Figures) -> list[str]:
    return [
        "Small language models that differ in their attention and in nothing else, each trained "
        "with the seeds that its table names for a few minutes of one CPU core, beside what the "
        "papers have published. Perplexities count the tokens of a small "
        "vocabulary and can be compared within a table, never with those of a paper: what can be "
        "compared is which model does better. Models this small, trained this shortly, need not "
        "agree with large ones; where an ordering does not hold here, the table says so.",
        "",
        "All models have one trunk, that of TransNormer's paper: rotary positions (LRPE), RMS "
        "norms without weights before attention and MLP and after the embeddings, gated MLPs. So "
        "softmax, Linear Transformer and cosFormer are not built here as their own papers build "
        "them: they have relative positions that those do not have, and differences that are due "
        "to positions, norms or MLPs cannot pass for differences of attention.",
        "",
        "```",
        "python scripts/reproduce.py --data_dir texts --write",
        "```",
        "",
        f"made this page: {_hours(figures)}; {_machine(figures)}. All "
        "figures are in [results.json](results.json). The settings are those of "
        "[recipes/configs/results](../recipes/configs/results); a run that is there is not made "
        "again.",
    ]


def _hours(figures: Figures) -> str:
    """CPU time of all runs; a run that was killed is taken for one of its model's others."""
    runs = [(each, run.model) for each in figures.experiments.values() for run in each.runs]
    known = [each.cpu_minutes[model] for each, model in runs if model in each.cpu_minutes]
    words = f"{sum(known) / 60:.1f} hours of CPU time in all"
    rest = len(runs) - len(known)
    return f"at least {words}, without {rest} runs whose time is not known" if rest else words


def _machine(figures: Figures) -> str:
    """The conditions of all runs; several, if they were not the same."""
    runs = [run for each in figures.experiments.values() for run in each.runs]
    kinds = Counter(
        ", ".join([run.conditions["device"], *(f"{n} {run.conditions[n]}" for n in _VERSIONS)])
        for run in runs
    )
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{count} runs: {kind}" for kind, count in kinds.items())


def _experiment(experiment: Experiment, found: ExperimentFigures) -> list[str]:
    title = read_grid(experiment.grid).title
    lines = []
    for section in experiment.sections:
        lines += [f"## {section.title}", "", section.about, "", *_table(section, found), ""]
        if section is experiment.sections[0]:
            lines += [*_conditions(experiment, found), ""]
            lines += [f"![{title}]({PLOTS}/{plot_name(experiment.name)})", ""]
        if section.orderings:
            lines += [*_orderings(section.orderings, found), ""]
    return lines


def _conditions(experiment: Experiment, found: ExperimentFigures) -> list[str]:
    train, test = (", ".join(files) for files in (experiment.train, experiment.validation))
    predicted = sorted({run.predicted for run in found.runs})
    counts = " or ".join(f"{count:,}" for count in predicted)
    words = (
        f"Trained on {train}, tested on {test}; {experiment.tokens}. "
        f"{found.tokens_per_step:,} tokens a step. The evaluation asks for {counts} tokens, the "
        "same ones in every run."
    )
    if found.step_seconds:
        costs = ", ".join(f"{n} {s * 1000:,.0f} ms" for n, s in found.step_seconds.items())
        words += (
            f" CPU time of a step, the median of interleaved rounds of one process: {costs}. The "
            "steps of each model follow from it."
        )
    return [words, "", *(f"- {line}" for line in found.data)]


def _table(section: Section, found: ExperimentFigures) -> list[str]:
    lines = [
        "| model | weights | steps | perplexity | Δ loss | unigram | seeds | CPU minutes a run |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    means = {m: _mean(found, m) for m in section.rows if found.of(m)}
    best = min(means, key=lambda name: means[name]) if means else None
    for model in section.rows:
        cells = _row(model, section.rows[0], found)
        if model == best:
            cells[3] = f"**{cells[3]}**"
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", _caption(section)]


def _caption(section: Section) -> str:
    return (
        "Perplexity: mean ± sample deviation over the seeds, lower is better, best in bold. Δ "
        f"loss: nats a token over {section.rows[0]} with the same seed, mean ± deviation."
    )


def _row(model: str, base: str, found: ExperimentFigures) -> list[str]:
    runs = found.of(model)
    if not runs:
        return [model, *[_NONE] * 7]
    first = next(iter(runs.values()))
    others = found.of(base)
    paired = [runs[s].loss - others[s].loss for s in runs if s in others]
    unigram = spread([run.unigram_perplexity for run in runs.values()]).mean
    return [
        model,
        f"{first.parameters:,}",
        f"{first.steps:,}",
        spread([run.perplexity for run in runs.values()]).show(),
        _NONE
        if model == base or not paired
        else spread(paired).show("{:+.3f}").replace("± +", "± "),
        f"{unigram:.1f}",
        ", ".join(map(str, runs)),
        f"{found.cpu_minutes[model]:.1f}" if model in found.cpu_minutes else _NONE,
    ]


def _mean(found: ExperimentFigures, model: str) -> float:
    return spread([run.perplexity for run in found.of(model).values()]).mean


def _orderings(orderings: tuple[Ordering, ...], found: ExperimentFigures) -> list[str]:
    lines = [
        "| published: better | worse | figures | source | here |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in orderings:
        figures, source = _published(each)
        cells = (each.better, each.worse, figures, source, _verdict(each, found))
        lines.append("| " + " | ".join(cells) + " |")
    notes = _footnotes(orderings)
    return [*lines, *(["", "  \n".join(notes)] if notes else [])]


def _published(each: Ordering) -> tuple[str, str]:
    """Figures as they may be printed, and where they are from."""
    if each.table is None:
        return "no figures", each.said_by
    rows = (each.published_better, each.published_worse)
    cells = [printable_cell(each.table, row, each.column) for row in rows]
    if _NONE in cells:
        raise ValueError(f"{each.table}: {rows} has a figure that may not be printed")
    table = published_table(each.table)
    of = f"{table.metric}, {each.column}" if len(table.columns) > 1 else table.metric
    return f"{cells[0]} < {cells[1]} ({of})", table.source


def _footnotes(orderings: tuple[Ordering, ...]) -> list[str]:
    tables = dict.fromkeys(each.table for each in orderings if each.table)
    signs = "".join(_published(each)[0] for each in orderings)
    notes = [note for table in tables for note in footnotes(printable_rows(published_table(table)))]
    return [note for note in dict.fromkeys(notes) if note[0] in signs]


def _verdict(each: Ordering, found: ExperimentFigures) -> str:
    """Whether the ordering holds, seed by seed: models of one seed met the same examples."""
    better, worse = found.of(each.better), found.of(each.worse)
    seeds = [seed for seed in better if seed in worse]
    if not seeds:
        return "not run"
    holds = sum(better[seed].loss < worse[seed].loss for seed in seeds)
    return f"{_words(holds, len(seeds))} ({holds} of {len(seeds)} seeds)"


def _words(holds: int, count: int) -> str:
    if holds == count:
        return "holds"
    return "**does not hold**" if holds == 0 else "undecided"
