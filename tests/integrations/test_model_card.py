"""The card: valid metadata, every fact, code that runs, no licence chosen for the author."""

import dataclasses
import math
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard

from hf_linear_attn.attention import ATTENTION
from hf_linear_attn.integrations import model_card
from hf_linear_attn.integrations.citations import CITATIONS, citations_of
from hf_linear_attn.integrations.model_card import (
    CardFacts,
    Loading,
    ResultTable,
    card_metadata,
    write_model_card,
)

ROOT = Path(__file__).parents[2]
EXAMPLE = "The 'quoted' <mask>\n\\ of \"it\"."
PERPLEXITY = EvalResult(
    task_type="fill-mask",
    dataset_type="wiki/text",
    dataset_name="WikiText",
    dataset_config="two",
    dataset_split="validation",
    metric_type="perplexity",
    metric_value=18.5,
)
FACTS = CardFacts(
    name="tiny",
    path='runs/ti"ny',
    model_type="cosformer",
    purpose="masked language modelling",
    parameters=1_234_567,
    loading=Loading("AutoModelForMaskedLM", pipeline="fill-mask", example=EXAMPLE),
    tags=["masked-lm"],
    mechanisms=["cosformer", "cosformer"],
    model_facts={"layer_attention": "cosformer", "hidden_size": 128},
    data=["Text files: a.txt.", "train: 5 documents"],
    results=ResultTable(
        ["", "before training", "after training", "unigram model"],
        [["evaluation loss (nats)", "5.50", "2.90", "3.30"], ["perplexity", "1", "2", "3|4"]],
        "On 9,299 masked tokens.",
        ["† with care", "second note"],
    ),
    eval_results=[PERPLEXITY, dataclasses.replace(PERPLEXITY, metric_type="accuracy")],
    summary="60 optimiser steps.",
    hyper_parameters={"learning_rate": "0.001", "lr_scheduler_kwargs": "a|b\nc"},
    hardware={"device": "one CPU", "processes": 2},
    limits=["Short inputs only.", "One seed."],
)


def without_pipeline(**fields):
    loading = Loading(
        "CosformerForSequenceClassification", "hf_linear_attn", has_tokenizer=False, **fields
    )
    return dataclasses.replace(FACTS, loading=loading)


def write(folder, facts):
    return write_model_card(folder, facts).read_text(encoding="utf-8")


def code_blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "README.md").write_text("an old card")
    assert write_model_card(tmp_path, FACTS) == tmp_path / "README.md"
    return (tmp_path / "README.md").read_text(encoding="utf-8")


def test_the_header_is_valid_metadata_without_a_licence(text):
    data = ModelCard(text).data
    assert data.library_name == "transformers"
    assert data.pipeline_tag == "fill-mask"
    assert {"cosformer", "linear-attention", "masked-lm"} <= set(data.tags)
    assert data.license is None
    assert "add `license: …`" in text


def test_the_model_index_is_read_back_by_the_hubs_library(text):
    data = ModelCard(text, ignore_metadata_errors=False).data
    assert data.model_name == "tiny"
    assert {r.metric_type for r in data.eval_results} == {"perplexity", "accuracy"}
    assert all(r.dataset_type == "wiki/text" for r in data.eval_results)
    header = yaml.safe_load(text.split("---")[1])
    (entry,) = header["model-index"]
    (result,) = entry["results"]
    assert result["dataset"] == {
        "name": "WikiText", "type": "wiki/text", "config": "two", "split": "validation"
    }  # fmt: skip
    assert {"type": "perplexity", "value": 18.5} in result["metrics"]
    assert set(header["metrics"]) == {"perplexity", "accuracy"}


def test_numbers_that_json_has_not_are_left_out_of_the_header():
    results = [dataclasses.replace(PERPLEXITY, metric_value=v) for v in (math.inf, math.nan)]
    data = card_metadata(dataclasses.replace(FACTS, eval_results=results)).to_dict()
    assert "model-index" not in data
    assert "metrics" not in data


@pytest.mark.parametrize(
    "facts",
    [
        dataclasses.replace(FACTS, datasets=["a/b/c"]),
        dataclasses.replace(FACTS, base_model="runs/of/mine"),
        dataclasses.replace(
            FACTS, eval_results=[dataclasses.replace(PERPLEXITY, dataset_type="two words")]
        ),
    ],
    ids=["dataset", "base model", "data set of a result"],
)
def test_names_that_the_hub_refuses_are_an_error(facts, tmp_path):
    with pytest.raises(ValueError, match="the Hub refuses"):
        write_model_card(tmp_path, facts)
    assert not list(tmp_path.iterdir())


def test_data_sets_and_base_model_stand_in_the_header(tmp_path):
    facts = dataclasses.replace(FACTS, datasets=["nyu-mll/glue"], base_model="me/model")
    data = ModelCard(write(tmp_path, facts)).data
    assert data.datasets == ["nyu-mll/glue"]
    assert data.base_model == "me/model"


def test_every_fact_is_on_the_card(text):
    for part in (
        "# tiny",
        "for masked language modelling, 1,234,567 parameters",
        "| layer_attention | cosformer |",
        "| hidden_size | 128 |",
        "- Text files: a.txt.\n- train: 5 documents\n",
        "9,299 masked tokens",
        "| evaluation loss (nats) | 5.50 | 2.90 | 3.30 |",
        r"| perplexity | 1 | 2 | 3\|4 |",
        "\n† with care\n\nsecond note\n",
        "60 optimiser steps.",
        "| learning_rate | 0.001 |",
        r"| lr_scheduler_kwargs | a\|b c |",
        "| device | one CPU |",
        "- Short inputs only.\n- One seed.\n",
        "eprint = {2202.08791}",
    ):
        assert part in text


def test_tables_are_unbroken(text):
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        rows = block.strip().split("\n")
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(cells) == 1
        assert len(rows) >= 4
    assert text.count("\n| learning_rate") == 1
    assert "unigram model |\n|---" in text
    assert "\n\n\n" not in text


def test_the_card_loads_the_model_in_two_ways_that_are_python(text):
    by_class, by_pipeline = code_blocks(text)
    for code in (by_class, by_pipeline):
        compile(code, "card", "exec")
        assert code.startswith("import hf_linear_attn")
    assert "from transformers import AutoModelForMaskedLM, AutoTokenizer\n" in by_class
    calls = {}
    rest = by_pipeline.split("from transformers import pipeline", 1)[1]

    def pipeline(task, model):
        calls["task"], calls["model"] = task, model
        return lambda sentence: calls.update(sentence=sentence)

    exec(rest, {"pipeline": pipeline})
    assert calls == {"task": "fill-mask", "model": FACTS.path, "sentence": EXAMPLE}


def test_the_pipeline_is_called_with_its_options(tmp_path):
    loading = dataclasses.replace(FACTS.loading, options={"max_new_tokens": 8, "mode": "x"})
    text = write(tmp_path, dataclasses.replace(FACTS, loading=loading))
    assert ", max_new_tokens=8, mode='x')\n```" in text


def test_a_task_without_pipeline_has_the_class_alone(tmp_path):
    text = write(tmp_path, without_pipeline())
    (code,) = code_blocks(text)
    compile(code, "card", "exec")
    assert "from hf_linear_attn import CosformerForSequenceClassification\n" in code
    assert "AutoTokenizer" not in code
    assert "\n\n\n" not in text
    assert "pipeline" not in ModelCard(text).data.to_dict()
    assert "no pipeline of Transformers" in text


def test_a_card_without_introduction_and_notes_has_no_holes(tmp_path):
    results = ResultTable(["a", "b"], [["1", "2"]])
    text = write(tmp_path, dataclasses.replace(FACTS, results=results))
    assert "## Results\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n## Training" in text


def test_every_mechanism_of_the_package_has_its_paper():
    assert set(CITATIONS) == {n for n, m in ATTENTION.items() if "hf_linear_attn" in m.__module__}
    for entry in CITATIONS.values():
        assert entry.startswith("@inproceedings{")
        assert entry.count("{") == entry.count("}")
        assert re.search(r"eprint = \{\d{4}\.\d{5}\}", entry)


def test_citations_agree_with_the_citation_file():
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    for reference in references:
        (entry,) = {e for e in CITATIONS.values() if f"title = {{{reference['title']}}}" in e}
        assert f"year = {{{reference['year']}}}" in entry
        assert f"author = {{{reference['authors'][0]['family-names']}, " in entry


def test_a_hybrid_cites_each_paper_once_and_names_a_mechanism_of_ones_own(tmp_path):
    mechanisms = ["transnormer_diag", "relu", "transnormer_norm", "softmax"]
    assert len(citations_of(mechanisms)) == 2
    text = write(tmp_path, dataclasses.replace(FACTS, mechanisms=mechanisms))
    assert text.count("```bibtex") == 2
    assert "The attention `relu` is not part of `hf_linear_attn`" in text


def test_the_template_of_the_folder_is_the_packages_own():
    link = ROOT / "model_cards" / "template.md"
    assert link.is_symlink()
    assert link.resolve() == Path(model_card.__file__).with_name("model_card_template.md")
