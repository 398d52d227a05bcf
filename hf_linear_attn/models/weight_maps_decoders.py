"""Weight maps of GPT-2 and of Llama-type decoders: Llama, Mistral, Qwen2, Qwen3, SmolLM2."""

from typing import Any

from hf_linear_attn.attention.rope_scaling import check_rope
from hf_linear_attn.models.weight_maps import Source, Table, WeightMap, refuse


def _gpt2_fields(config: Any) -> dict[str, Any]:
    inner = config.n_inner
    return {
        "intermediate_size": 4 * config.n_embd if inner is None else inner,
        "hidden_act": config.activation_function, "mlp_type": "mlp", "glu_act": None,
        "norm_type": "layernorm", "norm_position": "pre", "norm_eps": config.layer_norm_epsilon,
        "embedding_norm": False, "final_norm": True, "qk_norm": False,
        "num_key_value_heads": None, "head_dim": None, "position_embedding_type": "learned",
        "rope_parameters": None, "max_position_embeddings": config.n_positions,
        "type_vocab_size": 0, "attention_bias": True, "mlp_bias": True, "lm_head_transform": False,
        "logit_scale": None, "pooling": "last", "hidden_dropout_prob": config.resid_pdrop,
        "classifier_dropout": None,
    }  # fmt: skip


def _check_gpt2(config: Any) -> None:
    refuse(
        config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False,
    )  # fmt: skip


def _gpt2_trunk(config: Any) -> Table:
    def fused(part: int) -> Source:
        return Source("h.{i}.attn.c_attn", transposed=True, part=(part, 3))

    return {
        "embed_tokens": "wte",
        "embeddings.embed_positions": "wpe",
        "layers.{i}.self_attn.q_proj": fused(0),
        "layers.{i}.self_attn.k_proj": fused(1),
        "layers.{i}.self_attn.v_proj": fused(2),
        "layers.{i}.self_attn.o_proj": Source("h.{i}.attn.c_proj", transposed=True),
        "layers.{i}.attention_norm": "h.{i}.ln_1",
        "layers.{i}.mlp.up_proj": Source("h.{i}.mlp.c_fc", transposed=True),
        "layers.{i}.mlp.down_proj": Source("h.{i}.mlp.c_proj", transposed=True),
        "layers.{i}.mlp_norm": "h.{i}.ln_2",
        "norm": "ln_f",
    }


GPT2 = WeightMap(
    name="GPT-2",
    is_decoder=True,
    fields=_gpt2_fields,
    check=_check_gpt2,
    trunk=_gpt2_trunk,
    heads={
        "ForCausalLM": {"lm_head": Source("lm_head", in_head=True)},
        "ForSequenceClassification": {"classifier.out_proj": Source("score", in_head=True)},
        "ForTokenClassification": {"classifier": Source("classifier", in_head=True)},
        "ForQuestionAnswering": {"qa_outputs": Source("qa_outputs", in_head=True)},
    },
)


def _llama_fields(config: Any) -> dict[str, Any]:
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return {
        "intermediate_size": config.intermediate_size,
        "hidden_act": config.hidden_act, "mlp_type": "glu", "glu_act": None,
        "norm_type": "rmsnorm", "norm_position": "pre", "norm_eps": config.rms_norm_eps,
        "embedding_norm": False, "final_norm": True,
        "qk_norm": config.model_type == "qwen3",
        "num_key_value_heads": config.num_key_value_heads or heads, "head_dim": head_dim,
        "position_embedding_type": "rope", "rope_parameters": _rope(config),
        "max_position_embeddings": config.max_position_embeddings, "type_vocab_size": 0,
        "attention_bias": _has_bias(config),
        "mlp_bias": config.model_type == "llama" and config.mlp_bias, "lm_head_transform": False,
        "logit_scale": None, "pooling": "last", "hidden_dropout_prob": 0.0,
        "classifier_dropout": None,
    }  # fmt: skip


def _has_bias(config: Any) -> bool:
    """Whether attention has biases; a field that an architecture does not read says nothing."""
    if config.model_type in ("llama", "qwen3"):
        return config.attention_bias
    return config.model_type == "qwen2"


def _rope(config: Any) -> dict[str, Any]:
    rope = dict(config.rope_parameters or {})
    # The old name of rope_type, which Transformers leaves standing.
    rope.pop("type", None)
    if rope.pop("partial_rotary_factor", None) not in (None, 1.0):
        raise ValueError(
            f"this {config.model_type} checkpoint turns only a part of each head "
            "(partial_rotary_factor); only heads turned whole can be converted."
        )
    try:
        check_rope(rope)
    except ValueError as error:
        raise ValueError(
            f"this {config.model_type} checkpoint's rotary embeddings cannot be converted: {error}"
        ) from None
    return rope


def _check_llama(config: Any) -> None:
    _rope(config)
    # Of its slices only the sum is defined, and their order of rounding.
    refuse(config, pretraining_tp=1)
    kinds = set(getattr(config, "layer_types", None) or []) - {"full_attention"}
    window = sliding_window(config)
    whole = window is not None and window >= config.max_position_embeddings
    if not whole and (kinds or window is not None):
        raise ValueError(
            f"this {config.model_type} checkpoint has layers with a sliding window "
            f"(sliding_window={config.sliding_window}); none of these models has one. Only "
            "checkpoints whose layers all see the whole text can be converted."
        )


def sliding_window(config: Any) -> int | None:
    """How many tokens some layers of a source look back; None = all of them see the whole text."""
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or [])
    if not window or (kinds and kinds == {"full_attention"}):
        return None
    return window if kinds or getattr(config, "use_sliding_window", True) else None


def _llama_trunk(config: Any) -> Table:
    table: dict[str, str | Source] = {
        name: name
        for name in (
            "embed_tokens",
            "layers.{i}.self_attn.q_proj",
            "layers.{i}.self_attn.k_proj",
            "layers.{i}.self_attn.v_proj",
            "layers.{i}.self_attn.o_proj",
            "layers.{i}.mlp.gate_proj",
            "layers.{i}.mlp.up_proj",
            "layers.{i}.mlp.down_proj",
            "norm",
        )
    }
    table["layers.{i}.attention_norm"] = "layers.{i}.input_layernorm"
    table["layers.{i}.mlp_norm"] = "layers.{i}.post_attention_layernorm"
    if config.model_type == "qwen3":
        table["layers.{i}.self_attn.q_norm"] = "layers.{i}.self_attn.q_norm"
        table["layers.{i}.self_attn.k_norm"] = "layers.{i}.self_attn.k_norm"
    return table


def _llama_type(name: str, zeros: tuple[str, ...] = ()) -> WeightMap:
    return WeightMap(
        name=name,
        is_decoder=True,
        fields=_llama_fields,
        check=_check_llama,
        trunk=_llama_trunk,
        heads={
            "ForCausalLM": {"lm_head": Source("lm_head", in_head=True)},
            "ForSequenceClassification": {"classifier.out_proj": Source("score", in_head=True)},
            "ForTokenClassification": {"classifier": Source("score", in_head=True)},
            "ForQuestionAnswering": {"qa_outputs": Source("qa_outputs", in_head=True)},
        },
        zeros=zeros,
    )


LLAMA = _llama_type("Llama")
MISTRAL = _llama_type("Mistral")
QWEN2 = _llama_type("Qwen2", zeros=("self_attn.o_proj.bias",))
QWEN3 = _llama_type("Qwen3")
