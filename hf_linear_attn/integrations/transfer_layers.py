"""Which layers of two models an attention transfer fits, and the working copy of one of them."""

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.layers import LinearAttnBlock, SelfAttention
from hf_linear_attn.models.trunk import LinearAttnModel

PROJECTIONS = "qkvo"
# What decides where a layer's input comes from; everything else may differ.
_SHARED_FIELDS = (
    "is_decoder", "hidden_size", "num_hidden_layers", "norm_position", "position_embedding_type",
    "rope_parameters",
)  # fmt: skip
# Not part of the function that a layer computes in evaluation.
_NO_FUNCTION = {"attention_probs_dropout_prob", "chunk_size"}


def trunk_of(model: PreTrainedModel) -> LinearAttnModel:
    """The trunk of one of our models, with or without a head.

    Raises:
        ValueError: it is something else.
    """
    trunk = getattr(model, "base_model", None)
    if not isinstance(model, PreTrainedModel) or not isinstance(trunk, LinearAttnModel):
        raise ValueError(
            f"attention transfer takes models of hf_linear_attn; got {type(model).__name__}. "
            "Convert a foreign checkpoint first, and merge adapters (merge_and_unload)."
        )
    return trunk


def self_attention(model: PreTrainedModel, layer: int) -> SelfAttention:
    """The self-attention of a layer."""
    return cast(LinearAttnBlock, trunk_of(model).layers[layer]).self_attn


def mechanism_names(model: PreTrainedModel) -> list[str]:
    """Registry name of each layer's mechanism."""
    return trunk_of(model).config.attention_names


def changed_layers(teacher: PreTrainedModel, student: PreTrainedModel) -> list[int]:
    """The layers whose mechanism, or a setting of it, differs.

    Raises:
        ValueError: there is none.
    """
    old, new = trunk_of(teacher).config, trunk_of(student).config
    changed = [i for i in range(new.num_hidden_layers) if _function(old, i) != _function(new, i)]
    if not changed:
        raise ValueError(
            "there is no attention to transfer: teacher and student have the same mechanism in "
            f"every layer ({', '.join(dict.fromkeys(new.attention_names))})."
        )
    return changed


def _function(config: LinearAttnConfig, layer: int) -> tuple[str, dict[str, Any]]:
    name = config.attention_names[layer]
    settings = config.attention_settings(name)
    return name, {k: v for k, v in settings.items() if k not in _NO_FUNCTION}


def check_pair(teacher: PreTrainedModel, student: PreTrainedModel) -> None:
    """See that layer i of the one corresponds to layer i of the other.

    Raises:
        ValueError: names the field or the weight in which they differ.
    """
    old, new = trunk_of(teacher), trunk_of(student)
    for field in _SHARED_FIELDS:
        if getattr(old.config, field) != getattr(new.config, field):
            raise ValueError(
                f"teacher and student must share one trunk; {field} is "
                f"{getattr(old.config, field)!r} in the teacher and "
                f"{getattr(new.config, field)!r} in the student. Convert one checkpoint twice."
            )
    theirs = dict(old.layers.named_parameters())
    for name, weight in new.layers.named_parameters():
        if ".self_attn." not in name and not _alike(theirs.get(name), weight):
            raise ValueError(
                f"teacher and student must have the same weights outside attention, for the "
                f"student is fitted on what the teacher's layers see; layers.{name} differs. "
                "Convert one checkpoint twice."
            )


def _alike(old: Tensor | None, new: Tensor) -> bool:
    if old is None or old.shape != new.shape:
        return False
    # One of them may be kept in 16 bits: compared as the coarser of the two.
    coarser = min(old.dtype, new.dtype, key=lambda dtype: dtype.itemsize)
    return torch.equal(old.detach().to(new.device, coarser), new.detach().to(coarser))


class TransferLayer:
    """A working copy of one self-attention, in fp32 or better, and how far it is from a target.

    Args:
        original: the layer of the student; it changes in `write_back` only.
        trained: letters of "qkvo": the projections to train, q and k with their norms. The
            mechanism's own parameters are trained in any case.

    Raises:
        ValueError: other letters, or projections that are no plain linear layers.
    """

    def __init__(self, original: SelfAttention, trained: str):
        if not trained or len(set(trained)) < len(trained) or not set(trained) <= set(PROJECTIONS):
            raise ValueError(
                f"trained names projections by letters of {PROJECTIONS!r}, each once, such as "
                f"'qk'; got {trained!r}."
            )
        for name in (f"{letter}_proj" for letter in PROJECTIONS):
            kind = type(getattr(original, name))
            if kind is not nn.Linear:
                raise ValueError(
                    f"{name} of layer {original.layer_idx} is a {kind.__name__}, and attention "
                    "transfer takes plain linear layers: merge adapters (merge_and_unload) and "
                    "load the model without quantisation."
                )
        self.original = original
        self.working = copy.deepcopy(original).eval()
        if self.working.q_proj.weight.dtype.itemsize < 4:
            self.working.float()
        # The trunk looks at positions for its own mechanisms; here the mechanism has to.
        self.working.mechanism.check_inputs = True
        parts = [f"{letter}_{part}." for letter in trained for part in ("proj", "norm")]
        for name, parameter in self.working.named_parameters():
            parameter.requires_grad_(name.startswith((*parts, "mechanism.")))
        self.trained = {n: p for n, p in self.working.named_parameters() if p.requires_grad}

    def loss(self, x: Tensor, tokens: dict[str, Any], target: Tensor) -> Tensor:
        """‖output − target‖² / ‖target‖² over real tokens, a scalar in fp32 or better.

        Args:
            x: float (batch, seq, hidden), what the teacher's self-attention was given.
            tokens: the mechanism's keywords.
            target: float (batch, seq, hidden), what the teacher's self-attention gave.
        """
        weight = self.working.q_proj.weight
        x, target = (tensor.detach().to(weight.device, weight.dtype) for tensor in (x, target))
        tokens = {
            name: value.to(weight.device) if isinstance(value, Tensor) else value
            for name, value in tokens.items()
        }
        output, _ = self.working(x, tokens)
        difference = output - target
        mask = tokens["key_mask"]
        if mask is not None:
            difference, target = (t * mask[..., None] for t in (difference, target))
        return difference.square().sum() / target.square().sum()

    @torch.no_grad()
    def round(self) -> None:
        """Round what was learned to the student's precision: so it is what the student gets."""
        own = dict(self.original.named_parameters())
        for name, parameter in self.trained.items():
            parameter.copy_(parameter.to(own[name].dtype))

    @torch.no_grad()
    def write_back(self) -> None:
        """Give the student what was learned, rounded to its own precision."""
        own = dict(self.original.named_parameters())
        for name, parameter in self.trained.items():
            own[name].copy_(parameter)
