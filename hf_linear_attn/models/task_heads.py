"""Heads that label a row or its tokens, written once; the variants give them a name and a config.

All heads of tasks call the trunk as it is, encoder or decoder.

The summed loss is divided by the number of targets of the whole step, which the Trainer passes:
`accepts_loss_kwargs = True`. Micro-batches of other sizes, such as the last ones of an epoch, count
by their rows then. Of answers to questions the Trainer has no count: there it takes the mean over
micro-batches (`accepts_loss_kwargs = False`).
"""

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import (
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from hf_linear_attn.hf_internals import can_return_tuple
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.pooling import (
    check_pads_are_known,
    pool,
    real_tokens,
    refuse_documents,
)
from hf_linear_attn.models.task_labels import check_classes, check_row_labels
from hf_linear_attn.models.trunk import LinearAttnModel, LinearAttnPreTrainedModel, TrunkKeywords


def _dropout(config: LinearAttnConfig) -> nn.Dropout:
    rate = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if rate is None else rate)


def _classes(config: LinearAttnConfig) -> int:
    if not config.num_labels:
        raise ValueError(f"num_labels is {config.num_labels}; a classifier needs 1 or more.")
    return config.num_labels


def whole_rows(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords for the trunk, which reads whole rows in a head of a task and keeps no cache.

    Raises:
        ValueError: a cache is asked for.
    """
    if kwargs.get("use_cache") or kwargs.get("cache") is not None:
        raise ValueError("use_cache and cache: this head reads whole rows and keeps no cache.")
    return {**kwargs, "use_cache": False, "return_dict": True}


def summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Summed cross-entropy in fp32 of (batch, classes) with int labels (batch,), −100 = none."""
    return nn.functional.cross_entropy(logits.float(), labels.view(-1), reduction="sum")


class PooledClassificationHead(nn.Module):
    """Scores of a pooled row.

    In an encoder RoBERTa's head (dropout, dense, tanh, dropout, output), in a decoder GPT-2's
    (dropout, output without bias).

    Args:
        config: a settled one.
        outputs: number of scores.
        bias: of the output in an encoder.
    """

    def __init__(self, config: LinearAttnConfig, outputs: int, *, bias: bool = True):
        super().__init__()
        width = config.hidden_size
        # Looked up at every call: people set pad_token_id on a model that is already built.
        self.config = config
        self.dropout = _dropout(config)
        self.dense = None if config.is_decoder else nn.Linear(width, width)
        self.out_proj = nn.Linear(width, outputs, bias=bias and not config.is_decoder)

    def forward(self, x: Tensor, input_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor:
        """(batch, seq, hidden) -> (batch, outputs).

        Raises:
            ValueError: nobody can tell the real tokens of the batch.
        """
        assert self.config.pooling is not None
        check_pads_are_known(input_ids, attention_mask, self.config, len(x))
        mask = real_tokens(input_ids, attention_mask, self.config, (x.shape[0], x.shape[1]))
        pooled = self.dropout(pool(x, mask, self.config.pooling))
        if self.dense is not None:
            pooled = self.dropout(torch.tanh(self.dense(pooled)))
        return self.out_proj(pooled)


class LinearAttnForSequenceClassification(LinearAttnPreTrainedModel):
    """The trunk with a classifier of a pooled row; the config's `pooling` says what is read.

    Args:
        config: any variant's config; it is copied and settled, never changed.
    """

    accepts_loss_kwargs = True

    def __init__(self, config: LinearAttnConfig):
        super().__init__(config.settle())
        self.model = LinearAttnModel(self.config)
        self.config = config = self.model.config
        self.classifier = PooledClassificationHead(config, _classes(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TrunkKeywords],
    ) -> SequenceClassifierOutput:
        """Label every row.

        Args:
            input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds: see
                `LinearAttnModel.forward`. Without attention_mask a row begins with its first token
                that is not pad_token_id and ends with its last.
            labels: what `problem_type` of the config says: int (batch,) classes, (batch,) or
                (batch, num_labels) numbers, or float (batch, num_labels) of 0 and 1 for several
                classes at once. None there: chosen by Transformers' rule from num_labels and the
                type of the first labels, and kept.
            num_items_in_batch: number of labels the summed loss is divided by (over accumulation
                steps and processes); None = those of this call.
            **kwargs: output_hidden_states, output_attentions, return_dict.

        Returns:
            loss (with labels), logits (batch, num_labels), hidden_states and attentions on request.

        Raises:
            ValueError: packed documents, or what was given cannot be honoured.
        """
        outputs = self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
            token_type_ids=token_type_ids, inputs_embeds=inputs_embeds, **whole_rows(kwargs),
        )  # fmt: skip
        x = outputs.last_hidden_state
        refuse_documents(type(self).__name__, position_ids, attention_mask, x, **kwargs)
        logits = self.classifier(x, input_ids, attention_mask)
        loss = None
        if labels is not None:
            check_row_labels(labels, len(logits), self.config)
            # fp16 and bf16 are too coarse for a loss, on either side.
            targets = labels.float() if labels.is_floating_point() else labels.long()
            loss = self.loss_function(
                labels=targets, pooled_logits=logits.float(), config=self.config
            )
            if num_items_in_batch is not None:
                one_of_many = self.config.problem_type == "single_label_classification"
                summed = summed_loss(logits, targets) if one_of_many else loss * targets.numel()
                loss = summed / num_items_in_batch
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class LinearAttnForTokenClassification(LinearAttnPreTrainedModel):
    """The trunk with a classifier of every token: dropout and one linear layer.

    Args:
        config: any variant's config; it is copied and settled, never changed.
    """

    accepts_loss_kwargs = True

    def __init__(self, config: LinearAttnConfig):
        super().__init__(config.settle())
        self.model = LinearAttnModel(self.config)
        self.config = config = self.model.config
        self.dropout = _dropout(config)
        self.classifier = nn.Linear(config.hidden_size, _classes(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TrunkKeywords],
    ) -> TokenClassifierOutput:
        """Label every token.

        Args:
            input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds: see
                `LinearAttnModel.forward`.
            labels: int (batch, seq), −100 = no target.
            num_items_in_batch: number of targets the summed loss is divided by (over accumulation
                steps and processes); None = the targets of this call.
            **kwargs: packing keywords, output_hidden_states, output_attentions, return_dict.

        Returns:
            loss (with labels), logits (batch, seq, num_labels), hidden_states and attentions on
            request.

        Raises:
            ValueError: what was given cannot be honoured.
        """
        outputs = self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
            token_type_ids=token_type_ids, inputs_embeds=inputs_embeds, **whole_rows(kwargs),
        )  # fmt: skip
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            check_classes(labels, tuple(logits.shape[:2]), logits.shape[2])
            loss = self.loss_function(
                logits, labels.long(), self.config, num_items_in_batch=num_items_in_batch
            )
        return TokenClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
