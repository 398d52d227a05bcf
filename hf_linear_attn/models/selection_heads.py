"""Heads that choose among what they are given: one of several rows, a span of tokens.

Their softmax runs over the input, so a bias on a score would change nothing and there is none.
Written once; the variants give them a name and a config. See `task_heads` for the losses.
"""

from typing import Unpack

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
)

from hf_linear_attn.hf_internals import can_return_tuple
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.pooling import real_tokens, refuse_documents
from hf_linear_attn.models.task_heads import PooledClassificationHead, summed_loss, whole_rows
from hf_linear_attn.models.task_labels import check_answers, check_classes
from hf_linear_attn.models.trunk import LinearAttnModel, LinearAttnPreTrainedModel, TrunkKeywords


class LinearAttnForMultipleChoice(LinearAttnPreTrainedModel):
    """The trunk with one score for each of several rows, read from the pooled row.

    Args:
        config: any variant's config; it is copied and settled, never changed.
    """

    accepts_loss_kwargs = True

    def __init__(self, config: LinearAttnConfig):
        super().__init__(config.settle())
        self.model = LinearAttnModel(self.config)
        self.config = config = self.model.config
        self.classifier = PooledClassificationHead(config, 1, bias=False)
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
    ) -> MultipleChoiceModelOutput:
        """Choose one of several rows.

        Args:
            input_ids, attention_mask, position_ids, token_type_ids: (batch, choices, seq); see
                `LinearAttnModel.forward`.
            inputs_embeds: float (batch, choices, seq, hidden); or input_ids.
            labels: int (batch,), the right choice; −100 = no target.
            num_items_in_batch: number of labels the summed loss is divided by (over accumulation
                steps and processes); None = those of this call.
            **kwargs: output_hidden_states, output_attentions, return_dict.

        Returns:
            loss (with labels), logits (batch, choices), hidden_states and attentions on
            request, whose first dimension is batch · choices.

        Raises:
            ValueError: packed documents, or what was given cannot be honoured.
        """
        given = inputs_embeds if input_ids is None else input_ids
        if given is None or (input_ids is not None and inputs_embeds is not None):
            raise ValueError("give exactly one of input_ids and inputs_embeds.")
        shape = tuple(given.shape[:3])
        input_ids, attention_mask, position_ids, token_type_ids = (
            _flat(name, tensor, shape)
            for name, tensor in (
                ("input_ids", input_ids), ("attention_mask", attention_mask),
                ("position_ids", position_ids), ("token_type_ids", token_type_ids),
            )
        )  # fmt: skip
        outputs = self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
            token_type_ids=token_type_ids, **whole_rows(kwargs),
            inputs_embeds=_flat("inputs_embeds", inputs_embeds, (*shape, self.config.hidden_size)),
        )  # fmt: skip
        x = outputs.last_hidden_state
        refuse_documents(type(self).__name__, position_ids, attention_mask, x, **kwargs)
        logits = self.classifier(x, input_ids, attention_mask).view(shape[:2])
        loss = None
        if labels is not None:
            check_classes(labels, (shape[0],), shape[1])
            # Transformers' table of losses has none for this head.
            targets = labels.long().to(logits.device)
            if num_items_in_batch is None:
                loss = nn.functional.cross_entropy(logits.float(), targets)
            else:
                loss = summed_loss(logits, targets) / num_items_in_batch
        return MultipleChoiceModelOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def _flat(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """(batch, choices, …) -> (batch · choices, …)."""
    if tensor is None:
        return None
    if tensor.shape != shape or len(shape) < 3:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; multiple choice takes (batch, choices, seq), "
            "embeddings with their width behind it, and all inputs alike."
        )
    return tensor.flatten(0, 1)


class LinearAttnForQuestionAnswering(LinearAttnPreTrainedModel):
    """The trunk with two scores for each token: an answer begins here, ends here.

    Args:
        config: any variant's config; it is copied and settled, never changed.
    """

    accepts_loss_kwargs = False

    def __init__(self, config: LinearAttnConfig):
        super().__init__(config.settle())
        self.model = LinearAttnModel(self.config)
        self.config = config = self.model.config
        self.qa_outputs = nn.Linear(config.hidden_size, 2, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Unpack[TrunkKeywords],
    ) -> QuestionAnsweringModelOutput:
        """Find the answer in a row that holds question and text.

        Args:
            input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds: see
                `LinearAttnModel.forward`.
            start_positions, end_positions: int (batch,), first and last token of the answer. One
                at or past the end of the row (the text was cut) is no target, as everywhere in
                Transformers.
            **kwargs: output_hidden_states, output_attentions, return_dict.

        Returns:
            loss (with positions), start_logits and end_logits (batch, seq), hidden_states on
            request. A pad's score is half the lowest number of its type: it never wins, takes no
            part in the loss, and the sum of two is finite.

        Raises:
            ValueError: packed documents, positions at pads, or what was given cannot be honoured.
        """
        if (start_positions is None) != (end_positions is None):
            raise ValueError("give both start_positions and end_positions, or neither.")
        outputs = self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
            token_type_ids=token_type_ids, inputs_embeds=inputs_embeds, **whole_rows(kwargs),
        )  # fmt: skip
        x = outputs.last_hidden_state
        refuse_documents(type(self).__name__, position_ids, attention_mask, x, **kwargs)
        shape = (x.shape[0], x.shape[1])
        # As the trunk has it: without a mask every token is real.
        mask = real_tokens(None, attention_mask, self.config, shape)
        logits = self.qa_outputs(x)
        if mask is not None:
            lowest = torch.finfo(logits.dtype).min / 2
            logits = logits.masked_fill(~mask[..., None], lowest)
        start, end = logits.unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            check_answers(start_positions, end_positions, mask, shape)
            loss = self.loss_function(
                start.float(), end.float(), start_positions.long(), end_positions.long()
            )
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start,
            end_logits=end,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
