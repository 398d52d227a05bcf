"""From the weights of one model to a model of ours, tensor by tensor, with nothing unexplained."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.conversion_report import ConversionReport, Filled
from hf_linear_attn.models.foreign_config import weight_map
from hf_linear_attn.models.weight_maps import Source, head_of_class, spell_out

_POSITIONS = "embed_positions.weight"
_SAME_FOR_ALL = {
    ("ForQuestionAnswering", "qa_outputs.bias"): "adds the same to the scores of all tokens: no "
    "choice depends on it",
    ("ForMultipleChoice", "classifier.bias"): "adds the same to the scores of all choices: none "
    "depends on it",
}
_IN_GENERATION = ("bos_token_id", "eos_token_id", "pad_token_id", "use_cache")
_LABELLED = ("ForSequenceClassification", "ForTokenClassification")


def carry_over(
    source: PreTrainedModel, target: PreTrainedModel, absent: frozenset[str] = frozenset()
) -> ConversionReport:
    """Fill a model of ours with another one's weights.

    Args:
        source: any model with a weight map, or one of ours; it is never changed.
        target: of ours, of the source's shape; its weights are overwritten.
        absent: tensors of the source that its checkpoint did not hold.

    Raises:
        ValueError: a shape that does not fit, weights that differ where the target ties them, or a
            tensor of either side that nothing explains.
    """
    return _Transfer(source, target, absent).run()


class _Transfer:
    """One conversion in progress."""

    def __init__(self, source: PreTrainedModel, target: PreTrainedModel, absent: frozenset[str]):
        self.source, self.target = source, target
        self.tensors = {k: v for k, v in source.state_dict().items() if k not in absent}
        self.absent = absent
        self.theirs, self.ours = head_of_class(type(source)), head_of_class(type(target))
        self.trunk = trunk_prefix(source)
        self.own = isinstance(source.config, LinearAttnConfig)
        labels = source.config.num_labels, target.config.num_labels
        self.other_labels = self.theirs == self.ours in _LABELLED and labels[0] != labels[1]
        self.labels = f"the source has {labels[0]} classes, the target {labels[1]}"
        self.report = ConversionReport(type(source).__name__, type(target).__name__)

    def run(self) -> ConversionReport:
        wanted = self.target.state_dict(keep_vars=True)
        plan = self._own_plan(wanted) if self.own else self._foreign_plan(wanted)
        values = {}
        for name, (source_name, source) in plan.items():
            taken = source.take(self.tensors[source_name])
            values[name] = self._fitted(name, source_name, taken, wanted[name])
            self.report.filled[name] = Filled(source_name, self._how(name, source, taken, wanted))
            self.report.used.add(source_name)
        self._explain_new(wanted)
        self._explain_rest()
        _check_ties(wanted, values)
        with torch.no_grad():
            for name, value in values.items():
                wanted[name].copy_(value)
        return self.report

    def _foreign_plan(self, wanted: Mapping[str, Tensor]) -> dict[str, tuple[str, Source]]:
        """{tensor of ours: (tensor of the source, how it is taken)}."""
        known, config = weight_map(self.source.config.model_type), self.source.config
        inside = trunk_prefix(self.target)
        trunk = spell_out(known.trunk(config), config.num_hidden_layers)
        modules = {inside + name: source for name, source in trunk.items()}
        if self.theirs == self.ours and self.ours in known.heads:
            modules |= spell_out(known.heads[self.ours], 0)
        elif (pooler := known.pooler_of(self.ours)) is not None:
            # Trained beside another head, it is a start for the dense layer.
            modules["classifier.dense"] = Source(pooler)
        plan = {}
        for name in wanted:
            module, _, end = name.rpartition(".")
            if module not in modules:
                continue
            source = modules[module]
            found = ("" if source.in_head else self.trunk) + f"{source.name}.{end}"
            if found in self.tensors and not self._is_other_output(name):
                plan[name] = (found, source)
        return plan

    def _own_plan(self, wanted: Mapping[str, Tensor]) -> dict[str, tuple[str, Source]]:
        """Models of ours name alike what is alike; a mechanism's weights belong to it."""
        names = self.source.config.attention_names, self.target.config.attention_names
        other = [a != b for a, b in zip(*names, strict=True)]
        inside = trunk_prefix(self.target)
        plan = {}
        for name in wanted:
            bare = name.removeprefix(inside)
            of_trunk = name.startswith(inside)
            if not of_trunk and self.theirs != self.ours:
                continue
            found = self.trunk + bare if of_trunk else name
            layer = _mechanism_layer(bare)
            if layer is not None and other[layer] and ".rotary." not in bare:
                continue
            if found in self.tensors and not self._is_other_output(name):
                plan[name] = (found, Source(found))
        return plan

    def _is_other_output(self, name: str) -> bool:
        """Does this tensor score classes, of which the source has another number?"""
        return self.other_labels and name.rpartition(".")[0] in (
            "classifier", "classifier.out_proj",
        )  # fmt: skip

    def _fitted(self, name: str, source_name: str, taken: Tensor, wanted: Tensor) -> Tensor:
        """The tensor at the target's size; a position table is extended by tiling."""
        rows = wanted.shape[0] if wanted.ndim else 0
        if name.endswith(_POSITIONS) and rows > len(taken):
            self.report.notes.append(
                f"the table of {len(taken)} positions is extended to {rows} by repeating it; "
                "positions beyond it should be trained."
            )
            taken = taken.repeat(-(-rows // len(taken)), 1)[:rows]
        if taken.shape != wanted.shape:
            raise ValueError(
                f"{source_name} has shape {tuple(taken.shape)}, which does not fit {name} of shape "
                f"{tuple(wanted.shape)}: the checkpoint's weights are not those of its config."
            )
        return taken

    def _how(self, name: str, source: Source, taken: Tensor, wanted: Mapping[str, Tensor]) -> str:
        words = [source.words()] if source.words() else []
        if name.endswith(_POSITIONS) and len(wanted[name]) > len(taken):
            words.append(f"{len(taken)} rows repeated to {len(wanted[name])}")
        return ", ".join(words)

    def _explain_new(self, wanted: Mapping[str, Tensor]) -> None:
        """Say of every tensor that nothing fills why it is new, and what stands in it."""
        zeros = () if self.own else weight_map(self.source.config.model_type).zeros
        inside = trunk_prefix(self.target)
        tied = {wanted[n].data_ptr(): filled for n, filled in self.report.filled.items()}
        for name in wanted:
            if name in self.report.filled:
                continue
            if wanted[name].numel() and wanted[name].data_ptr() in tied:
                self.report.filled[name] = tied[wanted[name].data_ptr()]._replace(how="tied")
                continue
            layer = _mechanism_layer(name.removeprefix(inside))
            if layer is not None:
                self.report.new[name] = self._begin_mechanism(name, layer, wanted[name])
            elif name.endswith(zeros):
                self.report.new[name] = "zeros: the source has no bias here"
                _fill_zeros(wanted[name])
            elif not name.startswith(inside) or not inside:
                if inside == "" and self.ours == "Model":
                    raise self._unexplained("target", name)
                self.report.new[name] = f"drawn anew: {self._no_head()}"
            else:
                raise self._unexplained("target", name)

    def _no_head(self) -> str:
        if self.other_labels:
            return self.labels
        if self.theirs == "Model":
            return "the source has no head of this kind"
        if self.theirs == self.ours:
            return "the source's head is of another form, or its checkpoint lacks it"
        return f"the source's head is {self.theirs}"

    def _begin_mechanism(self, name: str, layer: int, tensor: Tensor) -> str:
        attention = self.target.config.attention_names[layer]
        if name.endswith("mechanism.conv.weight"):
            _fill_zeros(tensor)
            return f"zeros: the convolution of {attention} adds nothing until it is trained"
        return f"drawn anew: belongs to {attention}"

    def _explain_rest(self) -> None:
        """Say of every tensor of the source that was not used why."""
        dropped = {} if self.own else weight_map(self.source.config.model_type).dropped
        known = {self.tensors[name].data_ptr(): name for name in sorted(self.report.used)}
        for name, tensor in self.tensors.items():
            if name in self.report.used:
                continue
            bare = name.removeprefix(self.trunk)
            module = bare.rpartition(".")[0]
            of_trunk = name.startswith(self.trunk) and (self.trunk or self.theirs == "Model")
            layer = _mechanism_layer(bare) if self.own else None
            if tensor.numel() and tensor.data_ptr() in known:
                # The same tensor under a second name.
                self.report.used.add(name)
            elif module in dropped:
                self.report.dropped[name] = dropped[module]
            elif layer is not None:
                self.report.dropped[name] = "belongs to a mechanism that the target does not have"
            elif of_trunk:
                raise self._unexplained("source", name)
            else:
                self.report.dropped[name] = self._no_place(name)
        for name in sorted(n for n in self.absent if n.startswith(self.trunk)):
            self.report.notes.append(f"the checkpoint does not hold {name}.")

    def _no_place(self, name: str) -> str:
        if self.other_labels:
            return self.labels
        if (self.theirs, name) in _SAME_FOR_ALL and self.theirs == self.ours:
            return _SAME_FOR_ALL[self.theirs, name]
        if self.theirs != self.ours:
            return f"belongs to the head {self.theirs}; the target's is {self.ours}"
        return "belongs to a head of another form than the target's"

    def _unexplained(self, side: str, name: str) -> ValueError:
        return ValueError(
            f"{name} of the {side} ({getattr(self.report, side)}) is unknown to the weight map of "
            f"{self.source.config.model_type!r}: this checkpoint is not of the architecture its "
            "config names, or lacks weights."
        )


def trunk_prefix(model: PreTrainedModel) -> str:
    """How the names of a model's trunk begin in its state dict."""
    return "" if model.base_model is model else f"{model.base_model_prefix}."


def _mechanism_layer(name: str) -> int | None:
    """The layer whose mechanism a tensor of ours belongs to, or None."""
    parts = name.split(".")
    if len(parts) > 3 and parts[0] == "layers" and parts[2:4] == ["self_attn", "mechanism"]:
        return int(parts[1])
    return None


def _fill_zeros(tensor: Tensor) -> None:
    with torch.no_grad():
        tensor.zero_()


def _check_ties(wanted: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Refuse to tie in the target what differs in the source."""
    first: dict[int, str] = {}
    for name, value in values.items():
        other = first.setdefault(wanted[name].data_ptr(), name)
        if other != name and not torch.equal(values[other], value):
            raise ValueError(
                f"the target ties {name} to {other}, but in the source they differ; set "
                "tie_word_embeddings=False."
            )


def keep_settings(
    source: Any, target: PreTrainedModel, chosen: Mapping[str, Any], dtype: torch.dtype | None
) -> None:
    """Carry over what is no tensor: type of numbers, and how text is generated.

    Args:
        source, target: the models.
        chosen: config fields that the user set; token ids and use_cache hold in generation, too.
        dtype: None = the source's.
    """
    wanted: Any = source.dtype if dtype is None else dtype
    cast(Any, target).to(wanted)
    target.config.dtype = wanted
    if getattr(source, "generation_config", None) is not None and target.can_generate():
        settings = source.generation_config.to_dict()
        settings |= {name: chosen[name] for name in _IN_GENERATION if name in chosen}
        target.generation_config = type(source.generation_config).from_dict(settings)
