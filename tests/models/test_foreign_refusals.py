"""What cannot be converted: one clear error each, before anything is made."""

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import hf_linear_attn as hla
from tests.models.foreign_models import VOCABULARY, change, cosformer_class, language_model


def refused(match, kind, folder, **keywords):
    with pytest.raises(ValueError, match=match) as caught:
        cosformer_class(kind).from_pretrained(folder, **keywords)
    assert "\n\n" not in str(caught.value)


def test_an_architecture_without_a_map_names_those_there_are(tmp_path):
    hf.ElectraForMaskedLM(
        hf.ElectraConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1,
                         embedding_size=16, num_attention_heads=2, intermediate_size=16)
    ).save_pretrained(tmp_path)  # fmt: skip
    refused("no weight map for checkpoints of type 'electra'; known: bert, .*qwen3", "bert",
            tmp_path)  # fmt: skip
    with pytest.raises(ValueError, match="no weight map"):
        hla.convert(tmp_path, "cosformer")
    with pytest.raises(ValueError, match="no weight map"):
        hla.CosformerConfig.from_pretrained(tmp_path)


FEATURES = [
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ("bert", {"is_decoder": True}, "is_decoder"),
    ("roberta", {"hidden_act": "relu"}, "hidden_act"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
    ("mistral", {"sliding_window": 8}, "sliding window"),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1,
               "layer_types": ["full_attention", "sliding_attention"]}, "sliding window"),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}},
     "rope_type='yarn'"),
    ("llama", {"pretraining_tp": 2}, "pretraining_tp"),
    ("llama", {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
     "quantised"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "match"), FEATURES)
def test_what_the_trunk_has_no_place_for_is_refused_by_name(kind, fields, match, saved):
    _, folder = saved(kind)
    change(folder, **fields)
    refused(match, kind, folder)


def test_a_config_that_contradicts_the_weights_names_every_field(saved):
    _, folder = saved("bert")
    match = r"hidden_size=64 \(the checkpoint: 24\).*norm_type='rmsnorm' \(the checkpoint: 'layer"
    refused(match, "bert", folder, hidden_size=64, norm_type="rmsnorm")
    refused("vocab_size", "bert", folder, config=hla.CosformerConfig(vocab_size=99))
    refused(r"max_position_embeddings=16 ", "bert", folder, max_position_embeddings=16)
    refused("must be a CosformerConfig", "bert", folder, config=hla.SoftmaxConfig())


def test_keywords_without_meaning_are_refused(saved):
    _, folder = saved("bert")
    refused("Did you mean 'cos_horizon'", "bert", folder, cos_horizn=3)
    refused("quantization_config", "bert", folder, quantization_config={"load_in_4bit": True})
    refused("device_map='auto'", "bert", folder, device_map="auto")
    moved = hla.CosformerForMaskedLM.from_pretrained(folder, device_map="cpu")
    assert moved.device.type == "cpu"


def test_encoders_and_decoders_are_not_mixed_up(saved):
    _, folder = saved("bert")
    with pytest.raises(ValueError, match="use CosformerForMaskedLM"):
        hla.CosformerForCausalLM.from_pretrained(folder)
    _, folder = saved("gpt2")
    with pytest.raises(ValueError, match="use CosformerForCausalLM"):
        hla.CosformerForMaskedLM.from_pretrained(folder)


def test_b16_a_causal_nystrom_model_is_refused_before_weights_are_read(saved):
    _, folder = saved("gpt2")
    (folder / "model.safetensors").unlink()
    for load in (hla.NystromModel.from_pretrained, lambda f: hla.convert(f, "nystrom")):
        with pytest.raises(ValueError, match="no causal form"):
            load(folder)


def test_incomplete_checkpoints(saved, tmp_path):
    _, folder = saved("llama")
    weights = load_file(folder / "model.safetensors")
    lost = "model.layers.1.mlp.up_proj.weight"
    short = {name: tensor for name, tensor in weights.items() if name != lost}
    save_file(short, folder / "model.safetensors", metadata={"format": "pt"})
    refused(f"incomplete: it lacks {lost}", "llama", folder)
    # A tensor of another shape than the config's.
    wide = {**weights, lost: torch.zeros(41, 32)}
    save_file(wide, folder / "model.safetensors", metadata={"format": "pt"})
    refused("cannot be read", "llama", folder)
    # One of several files.
    language_model("llama").save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    next((tmp_path / "sharded").glob("model-00002*")).unlink()
    refused("cannot be read.*model-00002", "llama", tmp_path / "sharded")


def test_tensors_that_the_architecture_does_not_read_are_reported(saved):
    _, folder = saved("llama")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.extra"] = torch.zeros(3)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model, info = hla.SoftmaxForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert info["unexpected_keys"] == {"model.layers.0.self_attn.extra"}
    assert "does not read it" in model.conversion_report.dropped["model.layers.0.self_attn.extra"]


def test_tokens_outside_the_vocabulary_are_dropped_and_said(saved):
    _, folder = saved("gpt2", eos_token_id=50256)
    model = hla.CosformerForCausalLM.from_pretrained(folder)
    assert model.config.eos_token_id is None
    assert any("eos_token_id 50256" in note for note in model.conversion_report.notes)


def test_no_such_variant_and_no_such_place(tmp_path, saved):
    _, folder = saved("bert")
    with pytest.raises(ValueError, match="Did you mean 'cosformer'"):
        hla.convert(folder, "cosfromer")
    with pytest.raises(OSError, match="nowhere"):
        hla.CosformerForMaskedLM.from_pretrained(tmp_path / "nowhere")


def test_damaged_files_are_one_error(saved):
    _, folder = saved("bert")
    for content in (b"version https://git-lfs.github.com/spec/v1\n", b"", b"\x00" * 64):
        (folder / "model.safetensors").write_bytes(content)
        refused("cannot be read", "bert", folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"garbage")
    refused("cannot be read", "bert", folder)


def test_the_door_for_models_in_memory_checks_as_well():
    source = language_model("bert")
    with pytest.raises(ValueError, match="must be a CosformerConfig; got SoftmaxConfig"):
        hla.convert(source, "cosformer", config=hla.SoftmaxConfig())
    with pytest.raises(ValueError, match="must be a CosformerConfig; got dict"):
        hla.convert(source, "cosformer", config={"cos_horizon": 3})
    with pytest.raises(ValueError, match="source must be a model of Transformers"):
        hla.convert(torch.nn.Linear(2, 2), "cosformer")


def test_a_config_that_does_not_say_what_it_is(saved):
    _, folder = saved("bert")
    change(folder, architectures=[])
    with pytest.raises(ValueError, match="names no class in `architectures`"):
        hla.convert(folder, "cosformer")
    change(folder, architectures=["BertForMaskedLM"], model_type=None)
    refused("names no model_type", "bert", folder)


def test_positions_of_rotary_models_are_free_and_tables_only_grow(saved):
    _, folder = saved("llama")
    model = hla.CosformerForCausalLM.from_pretrained(folder, max_position_embeddings=16)
    assert model.config.max_position_embeddings == 16
    _, folder = saved("bert")
    refused("can be extended and not be cut", "bert", folder, max_position_embeddings=16)


def test_none_is_refused_where_the_checkpoint_has_another_value(saved):
    _, folder = saved("llama", rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    refused("rope_parameters=None", "llama", folder, rope_parameters=None)
    refused("num_key_value_heads=None", "llama", folder, num_key_value_heads=None)
    # What None stands for is what is there.
    model = hla.CosformerForCausalLM.from_pretrained(folder, head_dim=None)
    assert model.config.rope_parameters["rope_theta"] == 5e5


def test_positions_beyond_a_window_that_was_none(saved):
    _, folder = saved("mistral", sliding_window=32)
    refused(r"max_position_embeddings=64: .* looks back 32 tokens", "mistral", folder,
            max_position_embeddings=64)  # fmt: skip
    assert hla.CosformerForCausalLM.from_pretrained(folder).config.max_position_embeddings == 32


def test_a_loaded_model_takes_no_keywords_of_loading():
    source = language_model("llama")
    with pytest.raises(ValueError, match=r"revision, device_map: keywords about loading"):
        hla.convert(source, "softmax", revision="main", device_map="cpu")
    with pytest.raises(ValueError, match="dtype='bf' is no type"):
        hla.convert(source, "softmax", dtype="bf")
