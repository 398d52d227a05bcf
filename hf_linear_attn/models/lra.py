"""The classifiers of Long Range Arena: any encoder trunk under the head of a published protocol.

Config and model are registered with the Auto classes under the type "linear_attn_lra".
"""

from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast, SequenceClassifierOutput
from transformers.utils import logging

from hf_linear_attn.hf_internals import can_return_tuple
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.cosformer import CosformerConfig, CosformerModel
from hf_linear_attn.models.linear_transformer import (
    LinearTransformerConfig,
    LinearTransformerModel,
)
from hf_linear_attn.models.lra_config import LraConfig
from hf_linear_attn.models.nystrom import NystromConfig, NystromModel
from hf_linear_attn.models.pooling import pool
from hf_linear_attn.models.saved_weights import check_shards, readable_weights
from hf_linear_attn.models.softmax import SoftmaxConfig, SoftmaxModel
from hf_linear_attn.models.task_labels import check_classes
from hf_linear_attn.models.transnormer import TransNormerConfig, TransNormerModel
from hf_linear_attn.models.trunk import LinearAttnModel, OutputKeywords
from hf_linear_attn.models.with_code import ModelWithCode

# Not by the Auto classes, which do not know code that came with a model.
_TRUNKS: dict[type[LinearAttnConfig], type[LinearAttnModel]] = {
    CosformerConfig: CosformerModel,
    LinearTransformerConfig: LinearTransformerModel,
    NystromConfig: NystromModel,
    SoftmaxConfig: SoftmaxModel,
    TransNormerConfig: TransNormerModel,
}

logger = logging.get_logger(__name__)


class LraHead(nn.Module):
    """Hidden layers with ReLU, and the classes: no dropout.

    Args:
        config: of the model.
    """

    def __init__(self, config: LraConfig) -> None:
        super().__init__()
        encoder = config.encoder
        factor = {None: 1, "concat": 2, "nli": 4}[config.interaction]
        widths = [factor * encoder.hidden_size]
        widths += [encoder.intermediate_size >> layer for layer in range(config.head_layers)]
        self.hidden = nn.ModuleList(map(nn.Linear, widths[:-1], widths[1:]))
        self.out_proj = nn.Linear(widths[-1], _classes(config))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, features) -> (batch, classes)."""
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.out_proj(x)


class LraForSequenceClassification(ModelWithCode):
    """An encoder and the head of Long Range Arena's protocols.

    The loss is divided by the number of labels in the whole optimiser step, which the Trainer
    passes.

    Args:
        config: it is copied and settled, never changed.
    """

    config_class = LraConfig
    config: LraConfig
    base_model_prefix = "model"
    accepts_loss_kwargs = True
    supports_gradient_checkpointing = True
    _no_split_modules = ["LinearAttnBlock"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flash_attn = True

    def __init__(self, config: LraConfig) -> None:
        config = config.settle()
        super().__init__(config)
        self.model = _build_trunk(config.encoder)
        # One object for head and trunk: resizing the vocabulary changes it once.
        config.trunk = self.model.config
        width = config.encoder.hidden_size
        self.cls = nn.Parameter(torch.zeros(width)) if config.pooling == "cls" else None
        self.head = LraHead(config)
        self.post_init()

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *model_args: Any, **kwargs: Any
    ) -> Any:
        """As in Transformers.

        Raises:
            ValueError: files of weights that are damaged or lie outside of the folder.
        """
        check_shards(pretrained_model_name_or_path)
        with readable_weights(pretrained_model_name_or_path):
            return super().from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)

    def initialize_weights(self) -> None:
        """As in Transformers, and then the protocol's weights over those of the trunk.

        Called when a model is built, and after loading for what the files did not have.
        """
        done = getattr(self, "_is_hf_initialized", False)
        super().initialize_weights()
        if not done:
            self._draw_weights()

    @torch.no_grad()
    @init.guard_torch_init_functions()
    def _draw_weights(self) -> None:
        """Draw what was not loaded: each of these functions passes over what was."""
        xavier = self.config.initialization == "xavier"
        for part in self.modules():
            if isinstance(part, nn.Linear):
                _draw_linear(part, xavier)
        tokens = self.model.embed_tokens
        init.normal_(tokens.weight, std=1.0 if xavier else 0.02)
        loaded = getattr(tokens.weight, "_is_hf_initialized", False)
        if tokens.padding_idx is not None and not loaded:
            tokens.weight[tokens.padding_idx].zero_()
        if self.cls is not None:
            init.zeros_(self.cls)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[OutputKeywords],
    ) -> SequenceClassifierOutput:
        """Classify sequences, or pairs of them.

        Args:
            input_ids: int (batch, seq), with two towers (batch, 2, seq).
            attention_mask: of the same shape, 1 = real symbol; None = all are.
            labels: int (batch,), or −100 = no target.
            num_items_in_batch: number of labels the summed loss is divided by (over accumulation
                steps and processes); None = those of this call.
            **kwargs: output_hidden_states, output_attentions, return_dict.

        Returns:
            loss (with labels), logits (batch, classes), hidden_states and attentions on request,
            with two towers (batch, 2, …); a CLS vector stands before the sequence in them.

        Raises:
            ValueError: another number of towers, or labels that are no classes.
        """
        unknown = next(
            (name for name in kwargs if name not in OutputKeywords.__annotations__), None
        )
        if unknown is not None:
            raise ValueError(f"forward got an unknown argument {unknown!r}.")
        features, outputs = self._features(input_ids, attention_mask, **kwargs)
        logits = self.head(features)
        if self.training and not torch.compiler.is_compiling():
            self._warn_of_a_frozen_head()
        loss = None
        if labels is not None:
            check_classes(labels, (len(logits),), logits.shape[1])
            reduction = "mean" if num_items_in_batch is None else "sum"
            loss = F.cross_entropy(logits.float(), labels.long(), reduction=reduction)
            if num_items_in_batch is not None:
                loss = loss / num_items_in_batch
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=self._by_tower(outputs.hidden_states),
            attentions=self._by_tower(outputs.attentions),
        )

    def _warn_of_a_frozen_head(self) -> None:
        """PEFT trains heads that it knows by name; this one it has to be told of."""
        trains = any(p.requires_grad for p in self.model.parameters())
        if trains and not any(p.requires_grad for p in self.head.parameters()):
            logger.warning_once(
                "the trunk is trained and the head is frozen. A new head has random weights: with "
                'PEFT pass modules_to_save=["head"].'
            )

    def _features(
        self, input_ids: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, BaseModelOutputWithPast]:
        """(batch, features): pooled, and two towers put together; and what the trunk returned."""
        towers = self.config.towers
        expected = 2 if towers == 1 else 3
        if input_ids.ndim != expected or (towers > 1 and input_ids.shape[1] != towers):
            raise ValueError(
                f"input_ids have shape {tuple(input_ids.shape)}; the task {self.config.task} "
                f"takes {'(batch, seq)' if towers == 1 else '(batch, 2, seq)'}."
            )
        if towers == 1:
            return self._encode(input_ids, attention_mask, **kwargs)
        mask = None if attention_mask is None else attention_mask.flatten(0, 1)
        # The towers share their weights and do not see each other: rows of one batch.
        rows, outputs = self._encode(input_ids.flatten(0, 1), mask, **kwargs)
        a, b = rows.unflatten(0, (-1, towers)).unbind(1)
        parts = [a, b] if self.config.interaction == "concat" else [a, b, a * b, a - b]
        return torch.cat(parts, dim=-1), outputs

    def _encode(
        self, input_ids: Tensor, mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, BaseModelOutputWithPast]:
        """(rows, seq) -> (rows, hidden), and what the trunk returned."""
        x = self.model.embed_tokens(input_ids)
        if self.cls is not None:
            x = torch.cat([self.cls.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
            if mask is not None:
                mask = torch.cat([mask[:, :1], mask], dim=1)
        if self.config.encoder.position_embedding_type == "sinusoidal":
            # The trunk multiplies by √width; here the embeddings are of the sines' size already.
            x = x / self.config.encoder.hidden_size**0.5
        asked = {"output_hidden_states": self.config.output_hidden_states, **kwargs}
        outputs = self.model(inputs_embeds=x, attention_mask=mask, **{**asked, "return_dict": True})
        real = None if mask is None else mask.bool()
        pooling = "mean" if self.config.pooling == "mean" else "first"
        return pool(outputs.last_hidden_state, real, pooling), outputs

    def _by_tower(self, layers: Sequence[Tensor | None] | None) -> Any:
        """What each layer gave, by rows of the batch; None for a layer that was not asked for."""
        towers = self.config.towers
        if layers is None or towers == 1:
            return layers
        return tuple(x if x is None else x.unflatten(0, (-1, towers)) for x in layers)


def _build_trunk(config: LinearAttnConfig) -> Any:
    own = _TRUNKS.get(type(config))
    return AutoModel.from_config(config) if own is None else own(config)


def _draw_linear(layer: nn.Linear, xavier: bool) -> None:
    if not xavier:
        layer.reset_parameters()
        return
    init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        init.zeros_(layer.bias)


def _classes(config: LraConfig) -> int:
    if not config.num_labels or config.num_labels < 2:
        raise ValueError(
            f"num_labels is {config.num_labels}; these models give an example one of two or more "
            "classes."
        )
    return config.num_labels
