"""Foreign checkpoints: in softmax mode the converted model is the source, and nothing is lost."""

import pytest
import torch
import transformers as hf

import hf_linear_attn as hla
from hf_linear_attn.models.conversion import carry_over
from tests.models.conversion_checks import assert_complete, assert_same_logits, softmax_class
from tests.models.foreign_models import (
    CONFIGS,
    DECODERS,
    LANGUAGE_MODELS,
    VOCABULARY,
    batch,
    cosformer_class,
    language_model,
    scaled,
)

ENCODERS = [kind for kind in CONFIGS if kind not in DECODERS]


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


def test_b38_of_34_rows_of_a_roberta_32_are_positions(saved):
    source, folder = saved("roberta")
    assert (source.config.max_position_embeddings, source.config.pad_token_id) == (34, 1)
    model = hla.SoftmaxForMaskedLM.from_pretrained(folder)
    assert model.config.max_position_embeddings == 32
    ids = torch.randint(3, VOCABULARY, (1, 33))
    assert model(input_ids=ids[:, :32]).logits.shape[1] == 32
    with pytest.raises(ValueError, match="32 positions"):
        model(input_ids=ids)


def test_a_table_that_does_not_divide_is_tiled_to_its_end(saved):
    source, folder = saved("gpt2")
    model = hla.CosformerForCausalLM.from_pretrained(folder, max_position_embeddings=75)
    ours, table = model.model.embeddings.embed_positions.weight, source.transformer.wpe.weight
    assert torch.equal(ours, table[torch.arange(75) % 32])


def test_what_the_source_lacks_is_zero_whatever_stood_there():
    source = language_model("qwen2")
    target = scaled(hla.convert(source, "softmax"))
    assert target.model.layers[0].self_attn.o_proj.bias.abs().min() > 0
    carry_over(source, target)
    assert_same_logits(source, target, "qwen2")


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
    # Counting pads as well, as the source does, it is the source padded.
    places = torch.arange(inputs["input_ids"].shape[1])[None]
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        wanted, found = source(**inputs).logits, model(**inputs, position_ids=places).logits
    torch.testing.assert_close(found[real], wanted[real], rtol=0, atol=1e-5)


LONG = [None, *EXTENDED]


@pytest.mark.parametrize("rope", LONG, ids=["default", "linear", "llama3"])
def test_rotations_far_from_the_beginning_are_the_source_s(rope, tmp_path):
    fields = {"rope_parameters": rope} if rope else {}
    config = hf.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=131072, **fields,
    )  # fmt: skip
    source = scaled(hf.LlamaForCausalLM(config))
    model = hla.convert(source, "softmax")
    ids = torch.arange(3, 43)[None]
    for start in (1_000, 30_000, 100_000):
        # A last bit of a frequency, times such a position, is a turn that can be seen.
        places = torch.cat((torch.arange(20), torch.arange(start, start + 20)))[None]
        with torch.no_grad():
            wanted = source(ids, position_ids=places).logits
            found = model(ids, position_ids=places).logits
        assert wanted.std() > 1
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
