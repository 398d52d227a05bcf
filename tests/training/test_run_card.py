"""Cards of finished runs: true facts, no folder of the machine, code that loads the model."""

import re

import pytest
from huggingface_hub import ModelCard
from transformers import TrainingArguments

import hf_linear_attn as hla
from hf_linear_attn.integrations.model_card import Loading, write_model_card
from hf_linear_attn.training import hardware
from hf_linear_attn.training.arguments import DataArguments, MaskingArguments, ModelArguments
from hf_linear_attn.training.card_facts import card_facts, causal_lm_facts
from hf_linear_attn.training.causal_lm_arguments import (
    CausalLMArguments,
    CausalLMTaskArguments,
)
from hf_linear_attn.training.classification_card import MetricResult, classification_task_card
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.metrics import Unigram
from hf_linear_attn.training.report import CAUSAL_LM, RunResults
from hf_linear_attn.training.run_card import run_card
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.conftest import TINY

CAUSAL = {"eval_loss": 2.08, "eval_perplexity": 8.0, "eval_accuracy": 0.3}
AFTER = {"eval_loss": 2.5, "eval_perplexity": 12.18, "eval_masked_accuracy": 0.25}


@pytest.fixture
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 64)


def training_arguments(folder, **fields):
    return TrainingArguments(
        output_dir=str(folder), use_cpu=True, report_to="none", seed=7, **fields
    )


def masked_lm_facts(folder, example="one <mask> three", model_fields=None, **training):
    args = MaskedLMArguments(
        ModelArguments(**(model_fields or {})),
        DataArguments(train_file=["/data/mine/a.txt"], block_size=16),
        MaskingArguments(),
        training_arguments(folder, **training),
    )
    results = RunResults(None, AFTER, Unigram(3.0, 0.1, 500), "cosformer", 99, 12, 1234.5)
    model = hla.CosformerForMaskedLM(hla.CosformerConfig(**{**TINY, "vocab_size": 261}))
    return model, card_facts(model, args, results, "train: 5 documents", example)


def test_a_masked_lm_card_has_the_facts_of_its_run(tmp_path):
    model, facts = masked_lm_facts(tmp_path / "run", model_fields={"model_name_or_path": "me/it"})
    text = write_model_card(tmp_path, facts).read_text(encoding="utf-8")
    for part in (
        "# run\n",
        f"{model.num_parameters():,} parameters",
        "Text files: a.txt.",
        "500 masked tokens",
        "12 optimiser steps at 1,234 tokens per second. Training began with the weights of me/it.",
        "| seed | 7 |",
        "| mask / random / kept | 0.8 / 0.1 / 0.1 |",
        "at most 16 tokens",
        "one seed (7)",
        "| processes | 1 |",
        "| engine | one process |",
        "| precision | fp32 |",
        "{cosFormer: Rethinking Softmax in Attention}",
    ):
        assert part in text
    assert str(tmp_path) not in text
    assert "/data/mine" not in text
    data = ModelCard(text).data
    assert data.base_model == "me/it"
    assert {r.metric_type: r.metric_value for r in data.eval_results} == {
        "perplexity": 12.18,
        "accuracy": 0.25,
    }


def test_the_code_on_the_card_loads_and_runs_the_model(tmp_path, monkeypatch, tokenizer):
    monkeypatch.chdir(tmp_path)
    model, facts = masked_lm_facts("run", example=f"one {tokenizer.mask_token} three")
    model.save_pretrained("run")
    tokenizer.save_pretrained("run")
    text = write_model_card(tmp_path, facts).read_text(encoding="utf-8")
    by_class, by_pipeline = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names = {}
    exec(by_class, names)
    assert type(names["model"]) is type(model)
    assert len(names["tokenizer"]) == 261
    exec(by_pipeline.replace("run(", "guesses = run("), names)
    assert len(names["guesses"]) == 5


@pytest.mark.parametrize("prompt", ["one", "one two three four five"], ids=["short", "long"])
def test_the_code_on_a_causal_card_asks_for_no_more_than_fits(
    tmp_path, monkeypatch, tokenizer, prompt
):
    """The pipeline's own default is longer than a small model's longest input."""
    monkeypatch.chdir(tmp_path)
    fields = {**TINY, "vocab_size": 261, "max_position_embeddings": 26}
    model = hla.CosformerForCausalLM(hla.CosformerConfig(**fields))
    args = CausalLMArguments(
        ModelArguments(),
        DataArguments(block_size=16),
        CausalLMTaskArguments(),
        training_arguments("run"),
    )
    results = RunResults(None, CAUSAL, Unigram(3.0, 0.1, 5), "cosformer", 9, 3, None, CAUSAL_LM)
    facts = causal_lm_facts(model, args, results, "train: 5", prompt)
    model.save_pretrained("run")
    tokenizer.save_pretrained("run")
    text = write_model_card(tmp_path, facts).read_text(encoding="utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(code.replace("run(", "written = run("), names)
    assert type(names["model"]) is type(model)
    assert names["written"][0]["generated_text"].startswith(prompt)


def test_a_model_on_the_hub_is_loaded_from_there(tmp_path):
    _, facts = masked_lm_facts(tmp_path / "run", push_to_hub=True, hub_model_id="me/tiny")
    assert facts.path == "me/tiny"
    _, facts = masked_lm_facts(tmp_path / "run", hub_model_id="me/tiny")
    assert facts.path == "run"


def test_a_data_set_of_the_hub_stands_in_the_header_and_a_folder_does_not(tmp_path):
    def header(**data):
        args = CausalLMArguments(
            ModelArguments(),
            DataArguments(block_size=16, **data),
            CausalLMTaskArguments(),
            training_arguments(tmp_path),
        )
        unigram = Unigram(3.0, 0.1, 5)
        results = RunResults(None, CAUSAL, unigram, "cosformer", 9, 3, None, CAUSAL_LM)
        model = hla.CosformerForCausalLM(hla.CosformerConfig(**TINY))
        facts = causal_lm_facts(model, args, results, "train: 1", "one")
        # What an older card in the folder says beyond this one would stand in it, too.
        (tmp_path / "README.md").unlink(missing_ok=True)
        return ModelCard(write_model_card(tmp_path, facts).read_text(encoding="utf-8")).data

    data = header(dataset_name="Salesforce/wikitext", dataset_config_name="wikitext-2-v1")
    assert data.datasets == ["Salesforce/wikitext"]
    assert data.pipeline_tag == "text-generation"
    (result,) = data.eval_results
    assert (result.dataset_type, result.dataset_config) == ("Salesforce/wikitext", "wikitext-2-v1")
    for fields in ({"dataset_name": str(tmp_path)}, {"train_file": ["a.txt"]}, {}):
        data = header(**fields)
        assert data.datasets is None
        assert data.eval_results[0].dataset_type in ("local-text", "embedded-corpus")


def classifier_card(folder, loading, *results, **fields):
    config = hla.TransNormerConfig(**{**TINY, "block_size": 4, "num_labels": 2})
    model = hla.TransNormerForSequenceClassification(config)
    task = classification_task_card(
        task="sst2",
        purpose="classifying sentences",
        loading=loading,
        data=["GLUE SST-2", "train: 9 sentences"],
        results=results,
        dataset=("nyu-mll/glue", "GLUE SST-2"),
        config="sst2",
        settings={"max_length": 64},
        **fields,
    )
    facts = run_card(model, training_arguments(folder), task, steps=3)
    return write_model_card(folder, facts).read_text(encoding="utf-8")


CLASSIFIER = Loading(
    "AutoModelForSequenceClassification", pipeline="text-classification", example="A good one."
)


def test_a_classifier_of_one_seed(tmp_path):
    result = MetricResult("accuracy", "validation", 872, {7: 0.8125}, chance=0.509)
    text = classifier_card(tmp_path, CLASSIFIER, result, on_hub=True, notes=["a note"])
    assert "| accuracy | validation | 872 | 0.8125 (seed 7) | 0.5090 |" in text
    assert "one seed (7)" in text
    assert "| max_length | 64 |" in text
    assert "a note" in text
    assert text.count("```bibtex") == 1
    data = ModelCard(text).data
    assert data.datasets == ["nyu-mll/glue"]
    assert "sst2" in data.tags
    assert data.pipeline_tag == "text-classification"
    assert data.eval_results[0].metric_value == 0.8125
    assert data.eval_results[0].dataset_split == "validation"


def test_a_classifier_of_several_seeds_without_pipeline(tmp_path):
    result = MetricResult("accuracy", "test", 2000, {1: 0.5, 2: 0.7})
    loading = Loading("TransNormerForSequenceClassification", "hf_linear_attn")
    text = classifier_card(tmp_path, loading, result)
    assert "| accuracy | test | 2,000 | 0.6000 ± 0.1414 (seeds 1: 0.5000, 2: 0.7000) | – |" in text
    assert "of 2 seeds" in text
    data = ModelCard(text).data
    assert data.datasets is None
    assert data.pipeline_tag is None
    assert data.eval_results[0].metric_value == pytest.approx(0.6)


@pytest.mark.parametrize("results", [(), (MetricResult("accuracy", "test", 5, {}),)])
def test_a_card_without_results_or_seeds_is_refused(tmp_path, results):
    with pytest.raises(ValueError, match="one result or more, each with its seed"):
        classifier_card(tmp_path, CLASSIFIER, *results)


def test_the_device_is_named(monkeypatch):
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert re.fullmatch(r".+, 3 threads", hardware.device_name(torch.device("cpu")))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA X")
    assert hardware.device_name(torch.device("cuda")) == "NVIDIA X"
