"""Foreign checkpoints: in softmax mode the converted model is the source, and nothing is lost."""

import logging
import pickle

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import hf_linear_attn as hla
from hf_linear_attn.models.conversion import carry_over
from tests.models.foreign_models import (
    CONFIGS,
    DECODERS,
    LANGUAGE_MODELS,
    VOCABULARY,
    batch,
    change,
    cosformer_class,
    language_model,
    scaled,
)

ENCODERS = [kind for kind in CONFIGS if kind not in DECODERS]


def softmax_class(kind):
    return hla.SoftmaxForCausalLM if kind in DECODERS else hla.SoftmaxForMaskedLM


def assert_same_logits(source, model, kind, sides=("right", "left")):
    for side in sides:
        theirs, ours = batch(kind, side)
        real = ours["attention_mask"].bool()
        with torch.no_grad():
            wanted, found = source(**theirs).logits[real], model(**ours).logits[real]
        assert wanted.std() > 1
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def assert_complete(report, source, model):
    """Every tensor of both sides stands in the report exactly once."""
    theirs, ours = set(source.state_dict()), set(model.state_dict())
    assert report.used | set(report.dropped) == theirs
    assert not report.used & set(report.dropped)
    assert set(report.filled) | set(report.new) == ours
    assert not set(report.filled) & set(report.new)
    assert all(report.dropped.values())
    assert all(report.new.values())


@pytest.mark.parametrize("kind", CONFIGS)
def test_b25_softmax_mode_is_the_source(kind, saved):
    source, folder = saved(kind)
    # DistilBERT has no position_ids: a left-padded row has other positions there.
    sides = ("right",) if kind == "distilbert" else ("right", "left")
    model = softmax_class(kind).from_pretrained(folder)
    assert not model.training
    assert_same_logits(source, model, kind, sides)
    assert_complete(model.conversion_report, source, model)
    assert not model.conversion_report.dropped
    new = {name.rpartition("layers.0.")[2] for name in model.conversion_report.new if "0" in name}
    assert new == ({"self_attn.o_proj.bias"} if kind == "qwen2" else set())


EXTENDED = [
    {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0},
    {"rope_type": "llama3", "factor": 8.0, "rope_theta": 100.0, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0, "original_max_position_embeddings": 24},
]  # fmt: skip


@pytest.mark.parametrize("rope", EXTENDED, ids=["linear", "llama3"])
def test_checkpoints_of_an_extended_context(rope, saved):
    source, folder = saved("llama", rope_parameters=dict(rope))
    source = type(source).from_pretrained(folder).eval()
    model = hla.SoftmaxForCausalLM.from_pretrained(folder)
    assert model.config.rope_parameters == rope
    assert_same_logits(source, model, "llama")
    plain = hla.convert(language_model("llama"), "softmax")
    ids = batch("llama")[1]["input_ids"]
    with torch.no_grad():
        assert (plain(ids).logits - model(ids).logits).abs().max() > 0.1


@pytest.mark.parametrize("kind", ["roberta", "gpt2", "qwen3"])
def test_three_doors_to_one_model(kind, saved):
    source, folder = saved(kind)
    before = {name: tensor.clone() for name, tensor in source.state_dict().items()}
    auto = hf.AutoModelForCausalLM if kind in DECODERS else hf.AutoModelForMaskedLM
    models = [
        cosformer_class(kind).from_pretrained(folder, cos_horizon=20),
        auto.from_pretrained(folder, config=hla.CosformerConfig(cos_horizon=20)),
        hla.convert(source, "cosformer", cos_horizon=20),
        hla.convert(folder, "cosformer", config=hla.CosformerConfig(cos_horizon=20)),
    ]
    for model in models:
        assert type(model) is cosformer_class(kind)
        assert model.config.cos_horizon == 20
        assert model.config.attention_names == ["cosformer"] * 2
        for name, tensor in models[0].state_dict().items():
            assert torch.equal(model.state_dict()[name], tensor), name
    assert all(torch.equal(tensor, before[n]) for n, tensor in source.state_dict().items())
    for tensor in models[2].state_dict().values():
        tensor.add_(1)
    assert all(torch.equal(tensor, before[n]) for n, tensor in source.state_dict().items())


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


def test_b26_positions_are_extended_by_tiling_real_ones(tmp_path):
    config = CONFIGS["roberta"]()
    config.max_position_embeddings, config.type_vocab_size = 514, 2
    source = scaled(hf.RobertaForMaskedLM(config))
    source.save_pretrained(tmp_path)
    model = hla.SoftmaxForMaskedLM.from_pretrained(tmp_path, max_position_embeddings=1024)
    table = source.roberta.embeddings.position_embeddings.weight
    ours = model.model.embeddings.embed_positions.weight
    assert ours.shape[0] == 1024
    # The source's rows 2 + k and 514 + k of a longer table are ours k and 512 + k.
    assert torch.equal(ours[:512], table[2:])
    assert torch.equal(ours[512:], table[2:])
    types = source.roberta.embeddings.token_type_embeddings.weight
    assert torch.equal(model.model.embeddings.embed_types.weight, types)
    ids = torch.randint(3, VOCABULARY, (2, 100))
    with torch.no_grad():
        wanted = source(ids, token_type_ids=ids % 2).logits
        found = model(ids, token_type_ids=ids % 2).logits
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert any("extended to 1024" in note for note in model.conversion_report.notes)


def test_a_table_that_does_not_divide_is_tiled_to_its_end(saved):
    source, folder = saved("gpt2")
    model = hla.CosformerForCausalLM.from_pretrained(folder, max_position_embeddings=75)
    ours, table = model.model.embeddings.embed_positions.weight, source.transformer.wpe.weight
    assert torch.equal(ours, table[torch.arange(75) % 32])


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


def test_what_the_source_lacks_is_zero_whatever_stood_there():
    source = language_model("qwen2")
    target = scaled(hla.convert(source, "softmax"))
    assert target.model.layers[0].self_attn.o_proj.bias.abs().min() > 0
    carry_over(source, target)
    assert_same_logits(source, target, "qwen2")


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


def test_every_variant_takes_every_architecture(saved):
    for kind in ("roberta", "gpt2", "qwen2"):
        source, folder = saved(kind)
        for variant in ("linear_transformer", "transnormer", "nystrom", "softmax"):
            if variant == "nystrom" and kind in DECODERS:
                continue
            model = hla.convert(folder, variant)
            assert_complete(model.conversion_report, source, model)
            inputs = batch(kind)[1]
            with torch.no_grad():
                assert model(**inputs).logits.isfinite().all()


def test_nystrom_with_a_landmark_a_token_is_the_source(saved):
    # Exact up to its convolution, which therefore begins at zero.
    source, folder = saved("bert")
    model = hla.NystromForMaskedLM.from_pretrained(folder)
    assert_same_logits(source, model, "bert")
    assert any("conv.weight" in name for name in model.conversion_report.new)


def test_a_hybrid_keeps_softmax_where_it_is_told(saved):
    source, folder = saved("llama")
    model = hla.CosformerForCausalLM.from_pretrained(
        folder, layer_attention=["softmax", "cosformer"], cos_horizon=16
    )
    kept = []
    model.model.layers[1].register_forward_pre_hook(lambda _, args: kept.append(args[0]))
    theirs, ours = batch("llama")
    with torch.no_grad():
        model(**ours)
        wanted = source.model(**theirs, output_hidden_states=True).hidden_states[1]
    real = ours["attention_mask"].bool()
    torch.testing.assert_close(kept[0][real], wanted[real], rtol=0, atol=1e-5)


def test_other_variants_of_ours_are_converted_too(tmp_path):
    torch.manual_seed(0)
    fields = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2,
              "num_attention_heads": 2, "intermediate_size": 40, "max_position_embeddings": 32,
              "initializer_range": 0.2}  # fmt: skip
    source = hla.SoftmaxForMaskedLM(hla.SoftmaxConfig(**fields)).eval()
    source.save_pretrained(tmp_path / "softmax")
    linear = hla.CosformerForMaskedLM.from_pretrained(tmp_path / "softmax", cos_horizon=16)
    assert linear.config.attention_names == ["cosformer"] * 2
    assert_complete(linear.conversion_report, source, linear)
    linear.save_pretrained(tmp_path / "cosformer")
    back = hla.SoftmaxForMaskedLM.from_pretrained(tmp_path / "cosformer")
    assert_same_logits(source, back, "softmax")
    learned = hla.NystromForMaskedLM(hla.NystromConfig(conv_kernel_size=3, **fields))
    without = hla.convert(learned, "softmax")
    assert {n.rpartition("mechanism.")[2] for n in without.conversion_report.dropped} == {
        "conv.weight"
    }


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


VARIATIONS = [
    ("roberta", {"pad_token_id": 5}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    ("llama", {"head_dim": None, "tie_word_embeddings": True}),
    ("gpt2", {"activation_function": "relu", "n_inner": None}),
    ("mistral", {"sliding_window": 4096}),
    ("bert", {"tie_word_embeddings": False, "hidden_act": "relu"}),
]


@pytest.mark.parametrize(("kind", "fields"), VARIATIONS)
def test_b25_other_configs_of_the_same_architectures(kind, fields, tmp_path):
    config = CONFIGS[kind]()
    config = type(config)(**{**config.to_dict(), **fields})
    source = scaled(LANGUAGE_MODELS[kind](config))
    source.save_pretrained(tmp_path)
    model = softmax_class(kind).from_pretrained(tmp_path)
    assert_complete(model.conversion_report, source, model)
    theirs, ours = batch(kind)
    if fields.get("pad_token_id"):
        # RoBERTa sees pads by their id.
        for inputs in (theirs, ours):
            ids = inputs["input_ids"].where(inputs["input_ids"] != 5, 6)
            inputs["input_ids"] = ids.where(inputs["attention_mask"].bool(), 5)
    real = ours["attention_mask"].bool()
    with torch.no_grad():
        wanted, found = source(**theirs).logits[real], model(**ours).logits[real]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["Camembert", "XLMRoberta"])
def test_roberta_by_other_names(name, tmp_path):
    config = getattr(hf, f"{name}Config")(**CONFIGS["roberta"]().to_dict())
    source = scaled(getattr(hf, f"{name}ForMaskedLM")(config))
    source.save_pretrained(tmp_path)
    model = hla.SoftmaxForMaskedLM.from_pretrained(tmp_path)
    assert_same_logits(source, model, "roberta")


def test_distilbert_padded_on_the_left_is_distilbert_unpadded(saved):
    source, folder = saved("distilbert")
    model = hla.SoftmaxForMaskedLM.from_pretrained(folder)
    inputs = batch("distilbert", "left")[1]
    with torch.no_grad():
        wanted = source(inputs["input_ids"][1:, 4:]).logits[0]
        found = model(**inputs).logits[1, 4:]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


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


def test_a_pooler_that_the_named_class_would_not_read(tmp_path):
    # As the files of bert-base-uncased are: a pooler, and a class in the config without one.
    source = scaled(hf.BertForPreTraining(CONFIGS["bert"]()))
    source.save_pretrained(tmp_path)
    change(tmp_path, architectures=["BertForMaskedLM"])
    model = hla.SoftmaxForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(model.classifier.dense.weight, source.bert.pooler.dense.weight)
    language = hla.SoftmaxForMaskedLM.from_pretrained(tmp_path)
    assert "bert.pooler.dense.weight" in language.conversion_report.dropped


def test_buffers_that_transformers_passes_over_are_reported(saved):
    _, folder = saved("gpt2")
    weights = load_file(folder / "model.safetensors")
    weights["transformer.h.0.attn.bias"] = torch.ones(1, 1, 32, 32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    report = hla.SoftmaxForCausalLM.from_pretrained(folder).conversion_report
    assert "transformer.h.0.attn.bias" in report.dropped


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
