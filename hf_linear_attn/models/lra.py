"""The classifiers of Long Range Arena: any encoder trunk under the head of a published protocol.

Config and model are registered with the Auto classes under the type "linear_attn_lra".
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import logging

from hf_linear_attn.hf_internals import can_return_tuple
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.cosformer import CosformerConfig, CosformerModel
from hf_linear_attn.models.linear_transformer import (
    LinearTransformerConfig,
    LinearTransformerModel,
)
from hf_linear_attn.models.nystrom import NystromConfig, NystromModel
from hf_linear_attn.models.peft_defaults import tell_peft
from hf_linear_attn.models.pooling import pool
from hf_linear_attn.models.softmax import SoftmaxConfig, SoftmaxModel
from hf_linear_attn.models.task_labels import check_classes
from hf_linear_attn.models.transnormer import TransNormerConfig, TransNormerModel
from hf_linear_attn.models.trunk import LinearAttnModel
from hf_linear_attn.models.with_code import ConfigWithCode, ModelWithCode

_TOWERS = {None: 1, "concat": 2, "nli": 2}

# Not by the Auto classes, which do not know code that came with a model.
_TRUNKS: dict[type[LinearAttnConfig], type[LinearAttnModel]] = {
    CosformerConfig: CosformerModel,
    LinearTransformerConfig: LinearTransformerModel,
    NystromConfig: NystromModel,
    SoftmaxConfig: SoftmaxModel,
    TransNormerConfig: TransNormerModel,
}

logger = logging.get_logger(__name__)


class LraConfig(ConfigWithCode):
    """Config of a Long Range Arena classifier: a trunk's config and the fields of the head.

    Args:
        trunk: config of the encoder, or its fields as a mapping with `model_type`.
        task: name of the task, such as "listops".
        preset: name of the protocol, such as "official".
        pooling: what the head reads: "cls" = the output at a zero-initialised vector put before the
            sequence, "first" = at the first token, "mean" = the mean over real tokens.
        interaction: None for one sequence; for two towers "concat" = [a, b] or "nli" =
            [a, b, a·b, a − b].
        head_layers: hidden layers of the head, each with a ReLU; the first is as wide as the
            trunk's MLP, each further one half of the one before.
        initialization: "xavier" = Xavier-uniform weights, token embeddings N(0, 1); "torch" =
            PyTorch's default for linear layers, token embeddings N(0, 0.02²). Biases are 0 under
            the first.
        **kwargs: what Transformers passes on loading, such as id2label.

    Raises:
        ValueError: a value that is not accepted, or a trunk that is a decoder.
    """

    model_type = "linear_attn_lra"
    # Transformers makes a property of it where defaults of the parts are declared; ours has none.
    sub_configs: ClassVar[dict[str, Any]] = {"trunk": AutoConfig}  # pyright: ignore

    trunk: dict[str, Any] | PreTrainedConfig | None = None
    task: str = "listops"
    preset: str = "official"
    pooling: Literal["cls", "first", "mean"] = "cls"
    interaction: Literal["concat", "nli"] | None = None
    head_layers: int = 1
    initialization: Literal["xavier", "torch"] = "xavier"

    def __post_init__(self, **kwargs: Any) -> None:
        if isinstance(self.trunk, dict):
            fields = dict(self.trunk)
            self.trunk = _trunk_config(fields.pop("model_type"), fields)
        super().__post_init__(**kwargs)
        self._check()

    def _check(self) -> None:
        choices = {
            "pooling": ("cls", "first", "mean"),
            "interaction": tuple(_TOWERS),
            "initialization": ("xavier", "torch"),
        }
        for name, accepted in choices.items():
            if getattr(self, name) not in accepted:
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected one of {accepted}")
        if self.head_layers < 1:
            raise ValueError(f"head_layers: got {self.head_layers}, expected 1 or more")
        if self.trunk is not None and getattr(self.trunk, "is_decoder", None):
            raise ValueError(
                "the trunk of a Long Range Arena model is an encoder; got is_decoder=True"
            )

    def to_dict(self) -> dict[str, Any]:
        """As in Transformers; PEFT, which calls it first, gets to know the model type."""
        tell_peft(self.model_type)
        return super().to_dict()

    @property
    def encoder(self) -> LinearAttnConfig:
        """The trunk's config.

        Raises:
            ValueError: there is none.
        """
        if not isinstance(self.trunk, LinearAttnConfig):
            raise ValueError(f"trunk: expected the config of an encoder, got {self.trunk!r}")
        return self.trunk

    @property
    def attention_names(self) -> list[str]:
        """Registry name of each layer's mechanism."""
        return self.encoder.attention_names

    @property
    def towers(self) -> int:
        """Sequences in an example."""
        return _TOWERS[self.interaction]


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
        config: its trunk is copied and settled, never changed.
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
        super().__init__(config)
        trunk = config.trunk = config.encoder.settle(is_decoder=False)
        self.model = _build_trunk(trunk)
        width = config.encoder.hidden_size
        self.cls = nn.Parameter(torch.zeros(width)) if config.pooling == "cls" else None
        self.head = LraHead(config)
        self.post_init()
        self._draw_weights()

    @torch.no_grad()
    def _draw_weights(self) -> None:
        """The protocol's initial weights, over those of the trunk; saved ones are loaded later."""
        xavier = self.config.initialization == "xavier"
        for part in self.modules():
            if isinstance(part, nn.Linear):
                _draw_linear(part, xavier)
        tokens = self.model.embed_tokens
        nn.init.normal_(tokens.weight, std=1.0 if xavier else 0.02)
        if tokens.padding_idx is not None:
            tokens.weight[tokens.padding_idx].zero_()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify sequences, or pairs of them.

        Args:
            input_ids: int (batch, seq), with two towers (batch, 2, seq).
            attention_mask: of the same shape, 1 = real symbol; None = all are.
            labels: int (batch,), or −100 = no target.
            num_items_in_batch: number of labels the summed loss is divided by (over accumulation
                steps and processes); None = those of this call.
            **kwargs: return_dict.

        Returns:
            loss (with labels) and logits (batch, classes).

        Raises:
            ValueError: another number of towers, or labels that are no classes.
        """
        kwargs.pop("return_dict", None)
        if kwargs:
            raise ValueError(f"forward got an unknown argument {next(iter(kwargs))!r}.")
        features = self._features(input_ids, attention_mask)
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
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def _warn_of_a_frozen_head(self) -> None:
        """PEFT trains heads that it knows by name; this one it has to be told of."""
        trains = any(p.requires_grad for p in self.model.parameters())
        if trains and not any(p.requires_grad for p in self.head.parameters()):
            logger.warning_once(
                "the trunk is trained and the head is frozen. A new head has random weights: with "
                'PEFT pass modules_to_save=["head"].'
            )

    def _features(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """(batch, features): pooled, and two towers put together."""
        towers = self.config.towers
        expected = 2 if towers == 1 else 3
        if input_ids.ndim != expected or (towers > 1 and input_ids.shape[1] != towers):
            raise ValueError(
                f"input_ids have shape {tuple(input_ids.shape)}; the task {self.config.task} "
                f"takes {'(batch, seq)' if towers == 1 else '(batch, 2, seq)'}."
            )
        if towers == 1:
            return self._encode(input_ids, attention_mask)
        mask = None if attention_mask is None else attention_mask.flatten(0, 1)
        # The towers share their weights and do not see each other: rows of one batch.
        a, b = self._encode(input_ids.flatten(0, 1), mask).unflatten(0, (-1, towers)).unbind(1)
        parts = [a, b] if self.config.interaction == "concat" else [a, b, a * b, a - b]
        return torch.cat(parts, dim=-1)

    def _encode(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """(rows, seq) -> (rows, hidden)."""
        x = self.model.embed_tokens(input_ids)
        if self.cls is not None:
            x = torch.cat([self.cls.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
            if mask is not None:
                mask = torch.cat([mask[:, :1], mask], dim=1)
        if self.config.encoder.position_embedding_type == "sinusoidal":
            # The trunk multiplies by √width; here the embeddings are of the sines' size already.
            x = x / self.config.encoder.hidden_size**0.5
        x = self.model(inputs_embeds=x, attention_mask=mask).last_hidden_state
        real = None if mask is None else mask.bool()
        return pool(x, real, "mean" if self.config.pooling == "mean" else "first")


def _trunk_config(model_type: str, fields: dict[str, Any]) -> PreTrainedConfig:
    own = next((config for config in _TRUNKS if config.model_type == model_type), None)
    return AutoConfig.for_model(model_type, **fields) if own is None else own(**fields)


def _build_trunk(config: LinearAttnConfig) -> Any:
    own = _TRUNKS.get(type(config))
    return AutoModel.from_config(config) if own is None else own(config)


def _draw_linear(layer: nn.Linear, xavier: bool) -> None:
    if not xavier:
        layer.reset_parameters()
        return
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _classes(config: LraConfig) -> int:
    if not config.num_labels or config.num_labels < 2:
        raise ValueError(f"num_labels is {config.num_labels}; a classifier needs 2 or more.")
    return config.num_labels
