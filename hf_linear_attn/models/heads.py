"""Heads, written once; the variants give them a name and a config."""

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput

from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.hf_internals import can_return_tuple, deprecate_kwarg, slice_logits_to_keep
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.generation import CheckedGenerationMixin, check_virtual_tokens
from hf_linear_attn.models.layers import activation, build_norm
from hf_linear_attn.models.token_layout import predictable
from hf_linear_attn.models.trunk import LinearAttnModel, LinearAttnPreTrainedModel, TrunkKeywords


class LMHeadTransform(nn.Module):
    """Dense, activation, norm before the output layer, as in RoBERTa and BERT."""

    def __init__(self, config: LinearAttnConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = activation(config.hidden_act)
        self.norm = build_norm(config)

    def forward(self, x: Tensor) -> Tensor:
        """(…, hidden) -> (…, hidden)."""
        return self.norm(self.act(self.dense(x)))


class LanguageModel(LinearAttnPreTrainedModel):
    """The trunk with an output layer over the vocabulary; the kinds of language model add a loss.

    Args:
        config: any variant's config; it is copied and settled, never changed.
    """

    is_decoder: ClassVar[bool]
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012
    # forward divides the summed loss by num_items_in_batch, so the Trainer must pass it.
    accepts_loss_kwargs = True

    def __init__(self, config: LinearAttnConfig):
        super().__init__(config.settle(is_decoder=self.is_decoder))
        self.model = LinearAttnModel(self.config)
        # One object for head and trunk: resizing the vocabulary changes it once.
        self.config = config = self.model.config
        self.lm_head_transform = LMHeadTransform(config) if config.lm_head_transform else None
        # RoBERTa's output layer has a bias, GPT-2's has none.
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=not self.is_decoder)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """The output layer, which shares its weight with the embeddings if tied."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output layer; used when the vocabulary is resized."""
        self.lm_head = new_embeddings

    def logits(self, x: Tensor) -> Tensor:
        """(…, hidden) -> (…, vocab_size): transform if any, output layer, scale if any."""
        if self.lm_head_transform is not None:
            x = self.lm_head_transform(x)
        logits = self.lm_head(x)
        scale = self.config.logit_scale
        return logits if scale is None else logits * scale


class LinearAttnForMaskedLM(LanguageModel):
    """The trunk with a masked-language-model head.

    Args:
        config: any variant's config; it is copied and settled, never changed.
    """

    is_decoder = False

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        sparse_prediction: bool = False,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TrunkKeywords],
    ) -> MaskedLMOutput:
        """Predict tokens.

        Args:
            input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds: see
                `LinearAttnModel.forward`.
            labels: int (batch, seq), −100 = no target.
            sparse_prediction: compute the output layer only where there is a target. `logits` are
                then (targets, vocab_size), in row-major order; the loss is the same. Needs labels.
            num_items_in_batch: number of targets the summed loss is divided by (over accumulation
                steps and processes); None = the targets of this call.
            **kwargs: packing keywords, output_hidden_states, output_attentions, return_dict.

        Returns:
            loss (with labels), logits (batch, seq, vocab_size), hidden_states and attentions on
            request.

        Raises:
            ValueError: what was given cannot be honoured.
        """
        if sparse_prediction and labels is None:
            raise ValueError("sparse_prediction=True needs labels: they say where to predict.")
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            **{**kwargs, "return_dict": True},
        )
        x, targets = outputs.last_hidden_state, labels
        if labels is not None and labels.shape != x.shape[:2]:
            raise ValueError(
                f"labels have shape {tuple(labels.shape)}; the input has {tuple(x.shape[:2])}."
            )
        if sparse_prediction:
            assert labels is not None
            chosen = labels != -100
            x, targets = x[chosen], labels[chosen]
        logits = self.logits(x)
        loss = None
        if targets is not None:
            loss = self.loss_function(
                logits, targets, vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )  # fmt: skip
        return MaskedLMOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class LinearAttnForCausalLM(LanguageModel, CheckedGenerationMixin):
    """The trunk as a decoder with a language-model head; `generate` works.

    Args:
        config: any variant's config; it is copied and settled, never changed.
    """

    is_decoder = True
    # Tokens cannot be taken out of a state again, so Transformers refuses assisted decoding.
    _is_stateful = True

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TrunkKeywords],
    ) -> CausalLMOutputWithPast:
        """Predict the next token at every position.

        Args:
            input_ids, attention_mask, position_ids, token_type_ids, inputs_embeds, cache,
                use_cache: see `LinearAttnModel.forward`.
            labels: int (batch, seq), −100 = no target; usually input_ids, they are shifted here. A
                token right behind a pad or behind another document is no target.
            logits_to_keep: compute logits for the last so many positions, or for the positions a
                tensor names; 0 = all. Not with labels.
            num_items_in_batch: number of targets the summed loss is divided by (over accumulation
                steps and processes); None = the targets of this call. With it labels must not hold
                tokens that are no target.
            **kwargs: packing keywords, output_hidden_states, output_attentions, return_dict.

        Returns:
            loss (with labels), logits (batch, positions kept, vocab_size), cache, hidden_states on
            request.

        Raises:
            ValueError: what was given cannot be honoured.
        """
        if not torch.compiler.is_compiling():
            check_virtual_tokens(self, cache, inputs_embeds)
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        if labels is not None and inputs is not None:
            if not isinstance(logits_to_keep, int) or logits_to_keep:
                raise ValueError("labels need the logits of every position: leave logits_to_keep.")
            packing = {k: kwargs.get(k) for k in ("seq_idx", "cu_seq_lens_q", "cu_seq_lens_k")}
            counted = labels
            labels = self._targets(
                labels, inputs, attention_mask=attention_mask, position_ids=position_ids,
                cache=cache, **packing,
            )  # fmt: skip
            if num_items_in_batch is not None:
                _check_counted(counted, labels)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            cache=cache,
            use_cache=use_cache,
            **{**kwargs, "return_dict": True},
        )
        logits = self.logits(slice_logits_to_keep(outputs.last_hidden_state, logits_to_keep))
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits, labels, vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )  # fmt: skip
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            cache=outputs.cache,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _targets(self, labels: Tensor, inputs: Tensor, **layout: Any) -> Tensor:
        """Labels without those that no real token of their document precedes."""
        if labels.shape != inputs.shape[:2]:
            raise ValueError(
                f"labels have shape {tuple(labels.shape)}; the input has {tuple(inputs.shape[:2])}."
            )
        shape = (labels.shape[0], labels.shape[1])
        return predictable(labels, *self.model.padding_and_documents(shape, **layout))


def _check_counted(given: Tensor, kept: Tensor) -> None:
    """Refuse targets that whoever counted num_items_in_batch took for such, and that are none."""
    lost = (given != kept)[:, 1:]
    if any_wrong(lost, "labels hold tokens behind a pad or another document"):
        raise ValueError(
            f"labels hold {int(lost.sum())} tokens right behind a pad or behind another document: "
            "nothing precedes them that could predict them, but num_items_in_batch counts them. "
            "Set the labels of pads and of the first real token behind them or of a document to "
            "-100, as hf_linear_attn.training.collators.CausalLMCollator does."
        )
