"""Tiny random models of Transformers, with weights so large that attention matters."""

import json

import torch
import transformers as hf

import hf_linear_attn as hla

VOCABULARY = 60

_ENCODER = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 40, "max_position_embeddings": 34, "layer_norm_eps": 1e-12,
}  # fmt: skip
_LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 32,
    "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
}  # fmt: skip

CONFIGS = {
    "roberta": lambda: hf.RobertaConfig(type_vocab_size=1, **_ENCODER),
    "bert": lambda: hf.BertConfig(**_ENCODER),
    "distilbert": lambda: hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=24, n_layers=2, n_heads=3, hidden_dim=40,
        max_position_embeddings=34,
    ),
    "gpt2": lambda: hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=24, n_layer=2, n_head=3, n_positions=32, n_inner=40,
        bos_token_id=0, eos_token_id=2,
    ),
    "llama": lambda: hf.LlamaConfig(**_LLAMA),
    "mistral": lambda: hf.MistralConfig(sliding_window=None, head_dim=8, **_LLAMA),
    "qwen2": lambda: hf.Qwen2Config(**_LLAMA),
    "qwen3": lambda: hf.Qwen3Config(head_dim=16, **_LLAMA),
}  # fmt: skip
DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
LANGUAGE_MODELS = {
    "roberta": hf.RobertaForMaskedLM, "bert": hf.BertForMaskedLM,
    "distilbert": hf.DistilBertForMaskedLM, "gpt2": hf.GPT2LMHeadModel,
    "llama": hf.LlamaForCausalLM, "mistral": hf.MistralForCausalLM, "qwen2": hf.Qwen2ForCausalLM,
    "qwen3": hf.Qwen3ForCausalLM,
}  # fmt: skip


def scaled(model):
    """Random values of unit size in every parameter, weights of layers three times the usual."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                # Norms stay near 1, biases near 0, and no two are alike.
                parameter.copy_((1.0 if "norm" in name.lower() or "ln_" in name else 0.0)
                                + 0.2 * noise)  # fmt: skip
            else:
                parameter.copy_(noise * (3 / max(parameter.shape) ** 0.5))
    return model.eval()


def language_model(kind, **fields):
    """The language model of an architecture, by its `model_type`."""
    config = CONFIGS[kind]()
    for name, value in fields.items():
        setattr(config, name, value)
    return scaled(LANGUAGE_MODELS[kind](config))


def batch(kind, side="right", length=11, pads=4):
    """Two rows, one of them padded, ids above the special ones; with the positions they have."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, VOCABULARY, (2, length), generator=generator)
    mask = torch.ones_like(ids)
    gap = slice(0, pads) if side == "left" else slice(length - pads, length)
    mask[1, gap] = 0
    ids[1, gap] = 1
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if kind == "roberta":
        # It counts its own from the ids, behind its reserved rows.
        return inputs, inputs
    if kind == "distilbert":
        return inputs, inputs
    return {**inputs, "position_ids": positions}, inputs


def change(folder, **fields):
    """Set fields of a saved config; None takes one out."""
    file = folder / "config.json"
    config = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def cosformer_class(kind):
    return hla.CosformerForCausalLM if kind in DECODERS else hla.CosformerForMaskedLM
