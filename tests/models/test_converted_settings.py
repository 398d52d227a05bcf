"""What of a checkpoint is no weight: configs, generation, types of numbers, how it is saved."""

import logging
import pickle

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import hf_linear_attn as hla
from tests.models.conversion_checks import assert_complete
from tests.models.foreign_models import (
    CONFIGS,
    VOCABULARY,
    batch,
    change,
    cosformer_class,
    language_model,
    scaled,
)


def test_the_caller_s_config_is_not_changed(saved):
    _, folder = saved("bert")
    config = hla.CosformerConfig(cos_horizon=20)
    hla.CosformerForMaskedLM.from_pretrained(folder, config=config)
    assert config == hla.CosformerConfig(cos_horizon=20)
    assert config.given_fields == {"cos_horizon"}


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_converted_model_is_saved_and_loaded_as_any_other(kind, saved, tmp_path, caplog):
    _, folder = saved(kind)
    model = cosformer_class(kind).from_pretrained(folder, cos_horizon=20)
    model.save_pretrained(tmp_path / "own")
    again = hf.AutoModel.from_pretrained(tmp_path / "own")
    assert type(again) is hla.CosformerModel
    with caplog.at_level(logging.WARNING):
        again, info = type(model).from_pretrained(tmp_path / "own", output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    inputs = batch(kind)[1]
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, model(**inputs).logits)


def test_type_of_numbers_and_generation_come_along(saved, tmp_path):
    source, _ = saved("llama")
    source.generation_config.update(temperature=0.7, do_sample=True, top_k=7)
    source.bfloat16().save_pretrained(tmp_path / "half")
    model = hla.CosformerForCausalLM.from_pretrained(tmp_path / "half")
    assert model.dtype == torch.bfloat16
    assert model.config.dtype == torch.bfloat16
    assert model.generation_config.top_k == 7
    assert model.generation_config is not source.generation_config
    wide = hla.CosformerForCausalLM.from_pretrained(tmp_path / "half", dtype=torch.float32)
    assert wide.dtype == torch.float32
    prompt = batch("llama")[1]
    found = wide.generate(**prompt, max_new_tokens=4, do_sample=False)
    assert torch.equal(
        found, wide.generate(**prompt, max_new_tokens=4, do_sample=False, use_cache=False)
    )


def test_the_config_alone_follows_the_checkpoint_too(saved):
    _, folder = saved("qwen3")
    config = hla.CosformerConfig.from_pretrained(folder, cos_horizon=24)
    assert (config.hidden_size, config.head_dim, config.qk_norm) == (32, 16, True)
    assert (config.cos_horizon, config.norm_type, config.is_decoder) == (24, "rmsnorm", True)
    model = hf.AutoModelForCausalLM.from_pretrained(folder, config=config)
    assert model.config.cos_horizon == 24


def test_dropout_on_attention_weights_is_said_to_go(saved):
    _, folder = saved("bert")
    model = hla.CosformerForMaskedLM.from_pretrained(folder)
    assert model.config.attention_probs_dropout_prob == 0
    assert any("dropout on attention weights was 0.1" in n for n in model.conversion_report.notes)
    assert "dropout on attention weights" in model.conversion_report.to_markdown()


def test_what_is_no_weight_comes_along(tmp_path):
    config = CONFIGS["bert"]()
    config.id2label, config.label2id = {0: "a", 1: "b", 2: "c"}, {"a": 0, "b": 1, "c": 2}
    config.problem_type, config.initializer_range = "multi_label_classification", 0.05
    config.hidden_dropout_prob, config.classifier_dropout = 0.3, 0.4
    scaled(hf.BertForSequenceClassification(config)).save_pretrained(tmp_path)
    load = hla.CosformerForSequenceClassification.from_pretrained
    for model in (load(tmp_path), load(tmp_path, num_labels=3)):
        found = model.config
        assert found.id2label == config.id2label
        assert found.problem_type == "multi_label_classification"
        assert (found.initializer_range, found.hidden_dropout_prob) == (0.05, 0.3)
        assert found.classifier_dropout == 0.4
    model = load(tmp_path, num_labels=5)
    assert model.config.id2label == {i: f"LABEL_{i}" for i in range(5)}
    report = model.conversion_report
    assert {"classifier.out_proj.weight", "classifier.out_proj.bias"} == set(report.new)
    assert "3 classes" in report.new["classifier.out_proj.weight"]
    assert "classifier.dense.weight" in report.filled
    softmax = hla.SoftmaxForSequenceClassification.from_pretrained(
        tmp_path, attn_implementation="eager"
    )
    assert softmax.config._attn_implementation == "eager"


def test_dropouts_of_the_other_architectures():
    gpt2, distilbert = CONFIGS["gpt2"](), CONFIGS["distilbert"]()
    gpt2.resid_pdrop, distilbert.dropout, distilbert.seq_classif_dropout = 0.25, 0.15, 0.35
    model = hla.convert(hf.GPT2LMHeadModel(gpt2), "cosformer")
    assert model.config.hidden_dropout_prob == 0.25
    assert any("embd_pdrop" in note for note in model.conversion_report.notes)
    model = hla.convert(hf.DistilBertForMaskedLM(distilbert), "cosformer")
    assert (model.config.hidden_dropout_prob, model.config.classifier_dropout) == (0.15, 0.35)


def test_what_the_user_sets_holds_in_generation_too(saved):
    _, folder = saved("llama")
    load = hla.CosformerForCausalLM.from_pretrained
    for model in (
        load(folder, eos_token_id=7, use_cache=False),
        load(folder, config=hla.CosformerConfig(eos_token_id=7, use_cache=False)),
    ):
        assert (model.config.eos_token_id, model.generation_config.eos_token_id) == (7, 7)
        assert (model.config.use_cache, model.generation_config.use_cache) == (False, False)
    half = [
        load(folder, config=hla.CosformerConfig(dtype=torch.bfloat16)),
        load(folder, dtype="bfloat16"),
        hla.convert(language_model("llama"), "cosformer", dtype=torch.bfloat16),
    ]
    assert {model.dtype for model in half} == {torch.bfloat16}


def test_a_variant_of_ours_converted_to_itself_keeps_what_it_is(tmp_path):
    torch.manual_seed(0)
    config = hla.CosformerConfig(
        vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=40, max_position_embeddings=32, initializer_range=0.2, cos_horizon=20,
        feature_map="elu_plus_one", layer_attention=["softmax", "cosformer"],
    )  # fmt: skip
    source = hla.CosformerForCausalLM(config).eval()
    source.save_pretrained(tmp_path)
    inputs = batch("gpt2")[1]
    for model in (hla.convert(source, "cosformer"), hla.convert(tmp_path, "cosformer")):
        assert model.config.attention_names == ["softmax", "cosformer"]
        assert (model.config.cos_horizon, model.config.feature_map) == (20, "elu_plus_one")
        assert_complete(model.conversion_report, source, model)
        with torch.no_grad():
            assert torch.equal(model(**inputs).logits, source(**inputs).logits)
    longer = hla.convert(tmp_path, "cosformer", max_position_embeddings=64, cos_horizon=64)
    assert longer.model.embeddings.embed_positions.weight.shape[0] == 64


def test_buffers_that_transformers_passes_over_are_reported(saved):
    _, folder = saved("gpt2")
    weights = load_file(folder / "model.safetensors")
    weights["transformer.h.0.attn.bias"] = torch.ones(1, 1, 32, 32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    report = hla.SoftmaxForCausalLM.from_pretrained(folder).conversion_report
    assert "transformer.h.0.attn.bias" in report.dropped


def test_old_spellings_in_config_files(saved):
    _, folder = saved("llama")
    change(folder, rope_parameters=None, rope_theta=100.0,
           rope_scaling={"type": "linear", "factor": 4.0})  # fmt: skip
    model = hla.SoftmaxForCausalLM.from_pretrained(folder)
    assert model.config.rope_parameters["rope_type"] == "linear"
    _, folder = saved("qwen2")
    change(folder, attention_bias=False)
    assert hla.SoftmaxForCausalLM.from_pretrained(folder).config.attention_bias


def test_another_attention_is_announced(saved, caplog):
    _, folder = saved("llama")
    hla.SoftmaxForCausalLM.from_pretrained(folder)
    assert "another function" not in caplog.text
    hla.CosformerForCausalLM.from_pretrained(folder)
    assert "another function until it is finetuned" in caplog.text


def test_configs_are_pickled_by_any_protocol():
    config = hla.CosformerConfig(cos_horizon=7)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(config, protocol))
        assert again == config
        assert again.given_fields == {"cos_horizon"}


class MyConfig(hla.CosformerConfig):
    model_type = "my_cosformer"


class MyLM(hla.CosformerForMaskedLM):
    config_class = MyConfig


def test_subclasses_of_ours(tmp_path):
    source = language_model("bert")
    source.save_pretrained(tmp_path / "bert")
    model = MyLM.from_pretrained(tmp_path / "bert")
    assert not model.conversion_report.new


def test_a_loaded_model_is_converted_to_the_type_that_is_asked_for():
    source = language_model("llama")
    for settings in ({"dtype": "bfloat16"}, {"torch_dtype": torch.bfloat16},
                     {"config": hla.CosformerConfig(dtype="bfloat16")}):  # fmt: skip
        assert hla.convert(source, "cosformer", **settings).dtype == torch.bfloat16
    assert hla.convert(source, "cosformer", dtype="auto").dtype == torch.float32


def test_what_no_weight_depends_on_may_be_chosen_for_models_of_ours_too(tmp_path):
    hla.convert(language_model("llama"), "softmax").save_pretrained(tmp_path)
    model = hla.CosformerForCausalLM.from_pretrained(tmp_path, chunk_size=16, attention_eps=1e-5)
    assert (model.config.chunk_size, model.config.attention_eps) == (16, 1e-5)


def test_names_of_classes_name_their_numbers(tmp_path):
    hf.BertModel(CONFIGS["bert"]()).save_pretrained(tmp_path)
    names = {0: "no", 1: "yes", 2: "who knows"}
    model = hla.CosformerForSequenceClassification.from_pretrained(tmp_path, id2label=names)
    assert model.config.label2id == {"no": 0, "yes": 1, "who knows": 2}
