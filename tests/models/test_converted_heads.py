"""Heads of converted models: which come along, and which are new."""

import logging

import pytest
import torch
import transformers as hf

import hf_linear_attn as hla
from tests.models.conversion_checks import assert_complete, assert_same_logits
from tests.models.foreign_models import (
    CONFIGS,
    LANGUAGE_MODELS,
    VOCABULARY,
    batch,
    change,
    scaled,
)

HEADS = [
    ("roberta", "SequenceClassification"), ("roberta", "TokenClassification"),
    ("roberta", "QuestionAnswering"), ("roberta", "MultipleChoice"),
    ("bert", "SequenceClassification"), ("bert", "TokenClassification"),
    ("bert", "QuestionAnswering"), ("bert", "MultipleChoice"),
    ("distilbert", "TokenClassification"), ("distilbert", "QuestionAnswering"),
    ("gpt2", "SequenceClassification"), ("gpt2", "TokenClassification"),
    ("gpt2", "QuestionAnswering"), ("llama", "SequenceClassification"),
    ("qwen3", "TokenClassification"), ("qwen2", "QuestionAnswering"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "head"), HEADS)
def test_heads_of_tasks_come_along(kind, head, tmp_path):
    config = CONFIGS[kind]()
    config.num_labels = 2 if head == "QuestionAnswering" else 3
    if config.pad_token_id is None:
        config.pad_token_id = 1
    name = LANGUAGE_MODELS[kind].__name__.replace("LMHeadModel", "For").replace("CausalLM", "")
    source = scaled(getattr(hf, name.replace("MaskedLM", "") + head)(config))
    source.save_pretrained(tmp_path)
    model = getattr(hla, f"SoftmaxFor{head}").from_pretrained(tmp_path)
    assert_complete(model.conversion_report, source, model)
    if head == "MultipleChoice":
        ids = torch.randint(3, VOCABULARY, (2, 3, 9))
        theirs = ours = {"input_ids": ids}
    else:
        theirs, ours = batch(kind)
    with torch.no_grad():
        wanted, found = source(**theirs), model(**ours)
    if head == "QuestionAnswering":
        real = ours["attention_mask"].bool()
        for a, b in ((wanted.start_logits, found.start_logits), (wanted.end_logits,
                                                                   found.end_logits)):  # fmt: skip
            difference = (a - b)[real]
            # A bias adds the same to all tokens.
            assert (difference - difference[0]).abs().max() < 1e-5
            assert a.std() > 0.1
        return
    if head == "MultipleChoice":
        wanted, found = (x.logits.log_softmax(-1) for x in (wanted, found))
    else:
        wanted, found = wanted.logits, found.logits
        assert model.config.num_labels == 3
    if head == "TokenClassification":
        wanted, found = (x[ours["attention_mask"].bool()] for x in (wanted, found))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert wanted.std() > 0.05


def test_b28_another_head_is_new_and_the_trunk_is_not(saved, caplog):
    source, folder = saved("roberta")
    with caplog.at_level(logging.WARNING):
        model = hla.CosformerForSequenceClassification.from_pretrained(folder, num_labels=4)
    assert model.config.num_labels == 4
    report = model.conversion_report
    assert set(report.new) == {
        "classifier.dense.weight", "classifier.dense.bias", "classifier.out_proj.weight",
        "classifier.out_proj.bias",
    }  # fmt: skip
    assert all(name.startswith("lm_head") for name in report.dropped)
    assert "classifier.dense.weight" in caplog.text
    assert_complete(report, source, model)


def test_a_head_of_another_task_is_not_taken_for_ours(tmp_path):
    config = CONFIGS["bert"]()
    config.num_labels = 3
    source = scaled(hf.BertForTokenClassification(config))
    model = hla.convert(source, "softmax")
    assert torch.equal(model.classifier.weight, source.classifier.weight)
    source.save_pretrained(tmp_path)
    rows = hla.SoftmaxForSequenceClassification.from_pretrained(tmp_path)
    assert not torch.equal(rows.classifier.out_proj.weight, source.classifier.weight)
    assert {n for n in rows.conversion_report.dropped if "classifier" in n} == {
        "classifier.weight", "classifier.bias"
    }  # fmt: skip


def test_bert_s_pooler_is_where_a_classifier_of_rows_begins(tmp_path):
    source = scaled(hf.BertForPreTraining(CONFIGS["bert"]()))
    source.save_pretrained(tmp_path)
    model = hla.SoftmaxForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(model.classifier.dense.weight, source.bert.pooler.dense.weight)
    assert_complete(model.conversion_report, source, model)
    language = hla.SoftmaxForMaskedLM.from_pretrained(tmp_path)
    assert_complete(language.conversion_report, source, language)
    dropped = language.conversion_report.dropped
    assert {n.split(".")[1] for n in dropped} == {"pooler", "seq_relationship"}


def test_a_model_without_head_and_one_that_gets_a_head(tmp_path):
    source = scaled(hf.BertModel(CONFIGS["bert"]()))
    source.save_pretrained(tmp_path)
    model = hla.SoftmaxModel.from_pretrained(tmp_path)
    assert_complete(model.conversion_report, source, model)
    theirs, ours = batch("bert")
    with torch.no_grad():
        wanted = source(**theirs).last_hidden_state
        found = model(**ours).last_hidden_state
    real = ours["attention_mask"].bool()
    torch.testing.assert_close(found[real], wanted[real], rtol=0, atol=1e-5)
    language = hla.CosformerForMaskedLM.from_pretrained(tmp_path)
    assert torch.equal(language.lm_head.weight, source.embeddings.word_embeddings.weight)
    assert {n.partition(".")[0] for n in language.conversion_report.new} == {
        "lm_head", "lm_head_transform"
    }  # fmt: skip


def test_b30_tied_and_untied(saved, tmp_path):
    source, folder = saved("llama")
    assert not source.config.tie_word_embeddings
    model = hla.SoftmaxForCausalLM.from_pretrained(folder)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    with pytest.raises(ValueError, match="tie_word_embeddings"):
        hla.SoftmaxForCausalLM.from_pretrained(folder, tie_word_embeddings=True)
    tied, folder = saved("gpt2")
    model = hla.SoftmaxForCausalLM.from_pretrained(folder)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    apart = hla.SoftmaxForCausalLM.from_pretrained(folder, tie_word_embeddings=False)
    assert apart.lm_head.weight is not apart.model.embed_tokens.weight
    assert_same_logits(tied, apart, "gpt2")
    tied.lm_head.weight = torch.nn.Parameter(tied.lm_head.weight + 1)
    with pytest.raises(ValueError, match="in the source they differ; set tie_word_embeddings"):
        hla.convert(tied, "softmax")


def test_a_pooler_that_the_named_class_would_not_read(tmp_path):
    # As the files of bert-base-uncased are: a pooler, and a class in the config without one.
    source = scaled(hf.BertForPreTraining(CONFIGS["bert"]()))
    source.save_pretrained(tmp_path)
    change(tmp_path, architectures=["BertForMaskedLM"])
    model = hla.SoftmaxForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(model.classifier.dense.weight, source.bert.pooler.dense.weight)
    language = hla.SoftmaxForMaskedLM.from_pretrained(tmp_path)
    assert "bert.pooler.dense.weight" in language.conversion_report.dropped


def test_tied_heads_are_filled_and_other_heads_are_said_to_be_other(tmp_path, caplog):
    scaled(hf.GPT2Model(CONFIGS["gpt2"]())).save_pretrained(tmp_path / "bare")
    model = hla.SoftmaxForCausalLM.from_pretrained(tmp_path / "bare")
    assert not model.conversion_report.new
    assert "to be trained" not in caplog.text
    source = scaled(hf.DistilBertForSequenceClassification(CONFIGS["distilbert"]()))
    report = hla.convert(source, "softmax").conversion_report
    assert "another form" in report.dropped["classifier.bias"]
    report = hla.convert(scaled(hf.GPT2DoubleHeadsModel(CONFIGS["gpt2"]())), "softmax")
    assert "lm_head.weight" in report.conversion_report.filled


def test_a_missing_pooler_is_no_missing_weight(tmp_path):
    scaled(hf.BertModel(CONFIGS["bert"](), add_pooling_layer=False)).save_pretrained(tmp_path)
    model = hla.SoftmaxModel.from_pretrained(tmp_path)
    assert not model.conversion_report.new
    assert any("pooler" in note for note in model.conversion_report.notes)
