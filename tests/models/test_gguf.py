"""Checkpoints in GGUF files."""

import pytest
import torch
import transformers as hf

import hf_linear_attn as hla
from hf_linear_attn.models import gguf_source
from tests.models.foreign_models import VOCABULARY
from tests.scripts.test_convert import load_program

gguf = pytest.importorskip("gguf")

WIDTH, HEADS, KEY_VALUE_HEADS, INNER, LAYERS = 64, 4, 2, 96, 2
FILE = "tiny.gguf"


@pytest.fixture
def folder(tmp_path, request):
    """A folder with one Llama checkpoint; `request.param`: the GGUF type of its matrices."""
    packed = getattr(request, "param", gguf.GGMLQuantizationType.Q8_0)
    made = tmp_path / "source"
    made.mkdir()
    writer = gguf.GGUFWriter(made / FILE, "llama")
    writer.add_name("tiny")
    writer.add_context_length(32)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_VALUE_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCABULARY)
    for name, shape in tensors():
        values = torch.randn(shape, generator=torch.Generator().manual_seed(len(name)))
        if len(shape) == 1:
            writer.add_tensor(name, (1 + 0.2 * values).numpy())
            continue
        values = gguf.quants.quantize((values * 3 / WIDTH**0.5).numpy(), packed)
        writer.add_tensor(name, values, raw_dtype=packed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made


def tensors():
    """Names and shapes of a tied Llama checkpoint, as GGUF has them."""
    narrow = WIDTH // HEADS * KEY_VALUE_HEADS
    yield "token_embd.weight", (VOCABULARY, WIDTH)
    yield "output_norm.weight", (WIDTH,)
    for i in range(LAYERS):
        for name, shape in {
            "attn_q": (WIDTH, WIDTH), "attn_k": (narrow, WIDTH), "attn_v": (narrow, WIDTH),
            "attn_output": (WIDTH, WIDTH), "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER), "attn_norm": (WIDTH,), "ffn_norm": (WIDTH,),
        }.items():  # fmt: skip
            yield f"blk.{i}.{name}.weight", shape


PACKED = [gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0]


@pytest.mark.parametrize("folder", PACKED, indirect=True, ids=lambda kind: kind.name)
def test_a_gguf_file_is_read_as_transformers_reads_it(folder):
    source = hf.LlamaForCausalLM.from_pretrained(folder, gguf_file=FILE).eval()
    ids = torch.arange(3, 15)[None]
    with torch.no_grad():
        expected = source(ids).logits
        assert expected.std() > 0.1
        by_class = hla.SoftmaxForCausalLM.from_pretrained(folder, gguf_file=FILE)
        by_function = hla.convert(folder, "softmax", gguf_file=FILE)
        for model in (by_class, by_function):
            torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=1e-5)
            assert not model.conversion_report.new
            assert not model.conversion_report.dropped


def test_what_is_made_of_a_gguf_file_is_saved_and_loaded(folder, tmp_path):
    model = hla.convert(folder, "cosformer", gguf_file=FILE, cos_horizon=32)
    assert model.dtype == torch.float32
    model.save_pretrained(tmp_path / "saved")
    again = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert getattr(again.config, "quantization_config", None) is None
    ids = torch.arange(3, 15)[None]
    torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=0, atol=0)


def test_without_the_package_that_reads_it_a_gguf_file_is_refused(folder, monkeypatch):
    monkeypatch.setattr(gguf_source, "is_gguf_available", lambda: False)
    match = r"gguf_file='tiny\.gguf'.*pip install 'hf-linear-attn\[gguf\]'"
    with pytest.raises(ValueError, match=match):
        hla.convert(folder, "cosformer", gguf_file=FILE)
    with pytest.raises(ValueError, match=match):
        hla.CosformerForCausalLM.from_pretrained(folder, gguf_file=FILE)


def test_a_damaged_gguf_file_is_one_line(folder):
    file = folder / FILE
    file.write_bytes(file.read_bytes()[:300])
    for load in (
        hla.SoftmaxForCausalLM.from_pretrained,
        lambda *a, **k: hla.convert(*a, "softmax", **k),
    ):
        with pytest.raises(ValueError, match=r"gguf_file='tiny\.gguf' cannot be read.*damaged"):
            load(folder, gguf_file=FILE)


def test_the_program_reads_gguf_and_says_that_there_is_no_tokenizer(folder, tmp_path):
    program = load_program()
    out = tmp_path / "made"
    program.main([str(folder), "--to", "cosformer", "--gguf_file", FILE, "--output", str(out)])
    assert "the source has no tokenizer" in (out / "conversion.md").read_text()
    assert hf.AutoModelForCausalLM.from_pretrained(out).config.model_type == "cosformer"
    with pytest.raises(ValueError, match=r"it holds no other\.gguf"):
        program.main([str(folder), "--to", "softmax", "--gguf_file", "other.gguf", "--output",
                      str(tmp_path / "none")])  # fmt: skip
