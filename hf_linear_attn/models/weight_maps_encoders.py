"""Weight maps of RoBERTa, BERT and DistilBERT."""

from typing import Any

from hf_linear_attn.models.weight_maps import Source, Table, WeightMap, refuse

_BERT_LAYERS: Table = {
    "layers.{i}.self_attn.q_proj": "encoder.layer.{i}.attention.self.query",
    "layers.{i}.self_attn.k_proj": "encoder.layer.{i}.attention.self.key",
    "layers.{i}.self_attn.v_proj": "encoder.layer.{i}.attention.self.value",
    "layers.{i}.self_attn.o_proj": "encoder.layer.{i}.attention.output.dense",
    "layers.{i}.attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "layers.{i}.mlp.up_proj": "encoder.layer.{i}.intermediate.dense",
    "layers.{i}.mlp.down_proj": "encoder.layer.{i}.output.dense",
    "layers.{i}.mlp_norm": "encoder.layer.{i}.output.LayerNorm",
}
_BERT_EMBEDDINGS: Table = {
    "embed_tokens": "embeddings.word_embeddings",
    "embeddings.embed_types": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
}
_ONE_LAYER = Source("classifier", in_head=True)
_ROWS: Table = {"classifier.dense": "pooler.dense", "classifier.out_proj": _ONE_LAYER}
_TOKENS: dict[str, Table] = {
    "ForTokenClassification": {"classifier": _ONE_LAYER},
    "ForQuestionAnswering": {"qa_outputs": Source("qa_outputs", in_head=True)},
}
"""heads that all three have in one form"""
_NO_POOLER = {"pooler.dense": "a pooler, which only heads that label whole rows read"}


def _bert_trunk(config: Any) -> Table:
    positions = Source("embeddings.position_embeddings")
    return {**_BERT_EMBEDDINGS, "embeddings.embed_positions": positions, **_BERT_LAYERS}


def reserved_rows(config: Any) -> int:
    """Rows of RoBERTa's position table before that of the first token: those up to the pad id's."""
    return config.pad_token_id + 1


def _roberta_trunk(config: Any) -> Table:
    positions = Source("embeddings.position_embeddings", skip=reserved_rows(config))
    return {**_BERT_EMBEDDINGS, "embeddings.embed_positions": positions, **_BERT_LAYERS}


def _encoder_fields(**fields: Any) -> dict[str, Any]:
    return {
        "mlp_type": "mlp", "glu_act": None, "norm_type": "layernorm", "norm_position": "post",
        "embedding_norm": True, "final_norm": False, "qk_norm": False, "num_key_value_heads": None,
        "head_dim": None, "position_embedding_type": "learned", "rope_parameters": None,
        "attention_bias": True, "mlp_bias": True, "lm_head_transform": True, "logit_scale": None,
        "pooling": "first", **fields,
    }  # fmt: skip


def _bert_fields(config: Any) -> dict[str, Any]:
    return _encoder_fields(
        intermediate_size=config.intermediate_size,
        hidden_act=config.hidden_act,
        norm_eps=config.layer_norm_eps,
        type_vocab_size=config.type_vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        hidden_dropout_prob=config.hidden_dropout_prob,
        classifier_dropout=config.classifier_dropout,
    )


def _roberta_fields(config: Any) -> dict[str, Any]:
    usable = config.max_position_embeddings - reserved_rows(config)
    return _bert_fields(config) | {"max_position_embeddings": usable}


def _check_bert(config: Any) -> None:
    # Removed from Transformers, but configs saved before still name it.
    refuse(config, position_embedding_type="absolute")
    refuse(config, is_decoder=False, add_cross_attention=False)


def _check_roberta(config: Any) -> None:
    _check_bert(config)
    if config.pad_token_id is None:
        raise ValueError(
            "this RoBERTa checkpoint has pad_token_id=None; its first position is the one after "
            "the pad id's, so set pad_token_id in its config.json."
        )
    # The output layer's activation is gelu whatever the config says.
    refuse(config, hidden_act="gelu")


def _check_distilbert(config: Any) -> None:
    refuse(config, is_decoder=False)


ROBERTA = WeightMap(
    name="RoBERTa",
    is_decoder=False,
    fields=_roberta_fields,
    check=_check_roberta,
    trunk=_roberta_trunk,
    heads={
        "ForMaskedLM": {
            "lm_head_transform.dense": Source("lm_head.dense", in_head=True),
            "lm_head_transform.norm": Source("lm_head.layer_norm", in_head=True),
            "lm_head": Source("lm_head.decoder", in_head=True),
        },
        "ForSequenceClassification": {
            "classifier.dense": Source("classifier.dense", in_head=True),
            "classifier.out_proj": Source("classifier.out_proj", in_head=True),
        },
        **_TOKENS,
        "ForMultipleChoice": _ROWS,
    },
    dropped=_NO_POOLER,
)

BERT = WeightMap(
    name="BERT",
    is_decoder=False,
    fields=_bert_fields,
    check=_check_bert,
    trunk=_bert_trunk,
    heads={
        "ForMaskedLM": {
            "lm_head_transform.dense": Source("cls.predictions.transform.dense", in_head=True),
            "lm_head_transform.norm": Source("cls.predictions.transform.LayerNorm", in_head=True),
            "lm_head": Source("cls.predictions.decoder", in_head=True),
        },
        "ForSequenceClassification": _ROWS,
        **_TOKENS,
        "ForMultipleChoice": _ROWS,
    },
    dropped=_NO_POOLER,
    with_pooler="BertForPreTraining",
)


def _distilbert_fields(config: Any) -> dict[str, Any]:
    return _encoder_fields(
        intermediate_size=config.hidden_dim,
        hidden_act=config.activation,
        norm_eps=1e-12,
        type_vocab_size=0,
        max_position_embeddings=config.max_position_embeddings,
        hidden_dropout_prob=config.dropout,
        classifier_dropout=config.seq_classif_dropout,
    )


def _distilbert_trunk(config: Any) -> Table:
    return {
        "embed_tokens": "embeddings.word_embeddings",
        "embeddings.embed_positions": "embeddings.position_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "layers.{i}.self_attn.q_proj": "transformer.layer.{i}.attention.q_lin",
        "layers.{i}.self_attn.k_proj": "transformer.layer.{i}.attention.k_lin",
        "layers.{i}.self_attn.v_proj": "transformer.layer.{i}.attention.v_lin",
        "layers.{i}.self_attn.o_proj": "transformer.layer.{i}.attention.out_lin",
        "layers.{i}.attention_norm": "transformer.layer.{i}.sa_layer_norm",
        "layers.{i}.mlp.up_proj": "transformer.layer.{i}.ffn.lin1",
        "layers.{i}.mlp.down_proj": "transformer.layer.{i}.ffn.lin2",
        "layers.{i}.mlp_norm": "transformer.layer.{i}.output_layer_norm",
    }


DISTILBERT = WeightMap(
    name="DistilBERT",
    is_decoder=False,
    fields=_distilbert_fields,
    check=_check_distilbert,
    trunk=_distilbert_trunk,
    # Its classifier of rows has a ReLU where ours has a tanh: no table for it.
    heads={
        "ForMaskedLM": {
            "lm_head_transform.dense": Source("vocab_transform", in_head=True),
            "lm_head_transform.norm": Source("vocab_layer_norm", in_head=True),
            "lm_head": Source("vocab_projector", in_head=True),
        },
        **_TOKENS,
    },
)
