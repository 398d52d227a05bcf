"""Heads, written once; the variants give them a name and a config."""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import MaskedLMOutput

from hf_linear_attn.hf_internals import can_return_tuple
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.layers import activation, build_norm
from hf_linear_attn.models.trunk import LinearAttnModel, LinearAttnPreTrainedModel


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


class LinearAttnForMaskedLM(LinearAttnPreTrainedModel):
    """The trunk with a masked-language-model head.

    Args:
        config: any variant's config; it is copied and settled, never changed.
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012
    # forward divides the summed loss by num_items_in_batch, so the Trainer must pass it.
    accepts_loss_kwargs = True

    def __init__(self, config: LinearAttnConfig):
        super().__init__(config.settle(is_decoder=False))
        self.model = LinearAttnModel(self.config)
        # One object for head and trunk: resizing the vocabulary changes it once.
        self.config = config = self.model.config
        self.lm_head_transform = LMHeadTransform(config) if config.lm_head_transform else None
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """The output layer, which shares its weight with the embeddings if tied."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output layer; used when the vocabulary is resized."""
        self.lm_head = new_embeddings

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
        **kwargs: Any,
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
            **kwargs: packing keywords, output_hidden_states, return_dict.

        Returns:
            loss (with labels), logits (batch, seq, vocab_size), hidden_states on request.

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
        logits = self._logits(x)
        loss = None
        if targets is not None:
            loss = self.loss_function(
                logits, targets, vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )  # fmt: skip
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)

    def _logits(self, x: Tensor) -> Tensor:
        if self.lm_head_transform is not None:
            x = self.lm_head_transform(x)
        logits = self.lm_head(x)
        return logits if self.config.logit_scale is None else logits * self.config.logit_scale
