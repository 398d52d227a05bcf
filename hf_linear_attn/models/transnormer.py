"""TransNormer models: config and named classes.

The mechanisms are `TransNormerDiagAttention` and `TransNormerNormAttention`.
"""

from typing import ClassVar, Literal, Self

from transformers.utils import logging

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.heads import LinearAttnForCausalLM, LinearAttnForMaskedLM
from hf_linear_attn.models.selection_heads import (
    LinearAttnForMultipleChoice,
    LinearAttnForQuestionAnswering,
)
from hf_linear_attn.models.task_heads import (
    LinearAttnForSequenceClassification,
    LinearAttnForTokenClassification,
)
from hf_linear_attn.models.trunk import LinearAttnModel

logger = logging.get_logger(__name__)


class TransNormerConfig(LinearAttnConfig):
    """Config of TransNormer models; the trunk's fields are those of `LinearAttnConfig`.

    Defaults are the paper's trunk: RMS norms without weights, GLU of 2048 (8/3 of the width 768:
    set it with the width), LRPE, block attention in the first half of the layers and NormAttention
    in the second.

    Args:
        transnormer_version: "t2" (softmax in blocks, φ = 1 + elu) or "t1" (ReLU in blocks and a
            norm behind it, φ = elu).
        block_size: tokens a block, counted from the first real token.
        num_local_layers: layers with block attention, the first ones; None = half of them, rounded
            down. It makes the default of layer_attention.
        xnorm: norm in place of the denominator, "srmsnorm" or "layernorm".
    """

    model_type = "transnormer"
    default_attention = "transnormer_norm"
    own_attention: ClassVar[tuple[str, ...]] = ("transnormer_diag",)

    norm_type: Literal["layernorm", "rmsnorm", "srmsnorm"] = "srmsnorm"
    norm_eps: float | int = 1e-6
    mlp_type: Literal["mlp", "glu"] = "glu"
    hidden_act: str = "silu"
    intermediate_size: int = 2048
    position_embedding_type: Literal["learned", "sinusoidal", "rope", "lrpe", "none"] = "lrpe"
    embedding_norm: bool | None = True
    transnormer_version: Literal["t1", "t2"] = "t2"
    block_size: int = 64
    num_local_layers: int | None = None
    xnorm: Literal["srmsnorm", "layernorm"] = "srmsnorm"

    def default_layers(self) -> list[str]:
        """Block attention in the first num_local_layers layers, NormAttention in the others."""
        local = self.num_local_layers
        local = self.num_hidden_layers // 2 if local is None else local
        return ["transnormer_diag"] * local + ["transnormer_norm"] * (
            self.num_hidden_layers - local
        )

    def check(self) -> None:
        """See `LinearAttnConfig.check`."""
        local, layers = self.num_local_layers, self.num_hidden_layers
        if isinstance(local, int) and not 0 <= local <= layers:
            raise ValueError(
                f"num_local_layers is {local}; it must lie between 0 and num_hidden_layers "
                f"({layers})."
            )
        if isinstance(self.block_size, int) and self.block_size < 1:
            raise ValueError(f"block_size must be at least 1; got {self.block_size}.")
        super().check()
        if local is not None and self.attention_names != self.default_layers():
            raise ValueError(
                f"num_local_layers ({local}) and layer_attention ({self.layer_attention}) "
                "contradict each other; give one of them."
            )

    def settle(self, *, is_decoder: bool | None = None) -> Self:
        """See `LinearAttnConfig.settle`; warns of blocks that hold every input whole."""
        blocks = "transnormer_diag" in self.attention_names
        if blocks and self.max_position_embeddings <= self.block_size:
            logger.warning_once(
                f"block_size ({self.block_size}) is not below max_position_embeddings "
                f"({self.max_position_embeddings}): inputs of no more tokens are one block, so "
                "attention in blocks is attention to all tokens. Set block_size lower to change "
                "that."
            )
        return super().settle(is_decoder=is_decoder)


class TransNormerModel(LinearAttnModel):
    """TransNormer without a head."""

    config_class = TransNormerConfig


class TransNormerForMaskedLM(LinearAttnForMaskedLM):
    """TransNormer encoder with a masked-language-model head."""

    config_class = TransNormerConfig


class TransNormerForCausalLM(LinearAttnForCausalLM):
    """TransNormer decoder with a language-model head."""

    config_class = TransNormerConfig


class TransNormerForSequenceClassification(LinearAttnForSequenceClassification):
    """TransNormer model with a classifier of rows."""

    config_class = TransNormerConfig


class TransNormerForTokenClassification(LinearAttnForTokenClassification):
    """TransNormer model with a classifier of tokens."""

    config_class = TransNormerConfig


class TransNormerForQuestionAnswering(LinearAttnForQuestionAnswering):
    """TransNormer model with scores for the span of an answer."""

    config_class = TransNormerConfig


class TransNormerForMultipleChoice(LinearAttnForMultipleChoice):
    """TransNormer model with a score for each choice."""

    config_class = TransNormerConfig
