"""Tiny stock models with weights large enough that attention is far from uniform."""

import torch
import transformers as hf

from hf_linear_attn.integrations.stock_fields import STOCK_NAMES

KERNELIZED = ("cosformer", "linear_transformer", "transnormer_norm")
CAUSAL = (*KERNELIZED, "transnormer_diag")

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 48,
    "initializer_range": 0.3,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": None,
}
NO_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}

# Several blocks and fewer landmarks than tokens.
FIELDS = {
    "nystrom": {"num_landmarks": 4},
    "transnormer_diag": {"block_size": 4},
}


def _bart():
    return hf.BartConfig(
        vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=40, decoder_ffn_dim=40, init_std=0.3,
        max_position_embeddings=48, pad_token_id=1, bos_token_id=2, eos_token_id=3,
        decoder_start_token_id=2, forced_eos_token_id=None, dropout=0.0,
    )  # fmt: skip


def _vit():
    return hf.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
        image_size=16, patch_size=4, initializer_range=0.3, num_labels=3, **NO_DROPOUT,
    )  # fmt: skip


def _modernbert():
    return hf.ModernBertConfig(
        **SIZES, layer_types=["full_attention"] * 2, cls_token_id=2, sep_token_id=3,
    )  # fmt: skip


MODELS = {
    "bert": (lambda: hf.BertConfig(**SIZES, **NO_DROPOUT), hf.BertForMaskedLM),
    "roberta": (lambda: hf.RobertaConfig(**SIZES, **NO_DROPOUT), hf.RobertaForMaskedLM),
    "modernbert": (_modernbert, hf.ModernBertForMaskedLM),
    "vit": (_vit, hf.ViTForImageClassification),
    "bart": (_bart, hf.BartForConditionalGeneration),
    "gpt2": (
        lambda: hf.GPT2Config(**SIZES, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
        hf.GPT2LMHeadModel,
    ),
    "llama": (lambda: hf.LlamaConfig(**SIZES | GROUPED), hf.LlamaForCausalLM),
    "qwen3": (lambda: hf.Qwen3Config(**SIZES | GROUPED), hf.Qwen3ForCausalLM),
    "mixtral": (
        lambda: hf.MixtralConfig(**SIZES | GROUPED, num_local_experts=2),
        hf.MixtralForCausalLM,
    ),
}
FITS = {
    "bert": STOCK_NAMES,
    "roberta": STOCK_NAMES,
    "vit": STOCK_NAMES,
    "modernbert": ("transnormer_diag", "nystrom"),
    "bart": KERNELIZED,
    "gpt2": CAUSAL,
    "llama": ("transnormer_diag",),
    "qwen3": ("transnormer_diag",),
    "mixtral": ("transnormer_diag",),
}
PAIRS = [(kind, name) for kind, names in FITS.items() for name in names]
DECODERS = [(kind, name) for kind, name in PAIRS if kind in ("gpt2", "llama", "qwen3", "mixtral")]


def stock_config(kind, **fields):
    config = MODELS[kind][0]()
    config.cos_horizon = 24
    config.attention_kwargs = {name: dict(values) for name, values in FIELDS.items()}
    for field, value in fields.items():
        setattr(config, field, value)
    return config


def stock_model(kind, name, seed=0, **fields):
    """A model in eval mode, seeded."""
    torch.manual_seed(seed)
    model_class = MODELS[kind][1]
    model = model_class._from_config(stock_config(kind, **fields), attn_implementation=name)
    if kind == "bart":
        # Its learned positions count pads, under any attention; without them padding can be seen.
        for part in (model.model.encoder, model.model.decoder):
            torch.nn.init.zeros_(part.embed_positions.weight)
    return model.eval()


def tokens(batch, length, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, 60, (batch, length), generator=generator)


def padded(ids, before, after):
    """ids with pads around them, the mask, and the positions of real tokens."""
    ids = torch.nn.functional.pad(ids, (before, after), value=1)
    mask = torch.ones_like(ids)
    mask[:, :before] = 0
    mask[:, ids.shape[1] - after :] = 0
    return ids, mask, (mask.cumsum(1) - 1).clamp_min(0)


def run(kind, model, ids, mask=None, positions=None):
    """Logits at every token; an encoder-decoder reads ids on both sides."""
    extra = {}
    if kind == "bart":
        extra = {"decoder_input_ids": ids.flip(1), "decoder_attention_mask": mask}
        if mask is not None:
            extra["decoder_attention_mask"] = mask.flip(1)
    elif kind not in ("modernbert", "roberta"):
        extra = {"position_ids": positions}
    return model(input_ids=ids, attention_mask=mask, **extra).logits
