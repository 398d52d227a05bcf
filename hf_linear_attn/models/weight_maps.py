"""Which tensor of a foreign checkpoint becomes which of ours, and which config field which.

One `WeightMap` an architecture, spelt out in the tables of `weight_maps_encoders` and
`weight_maps_decoders`. Names in the tables are those of modules: a weight and a bias follow them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor


class Source(NamedTuple):
    """Where a module's weight and bias come from.

    Attributes:
        name: module of the source, without the prefix of its trunk.
        transposed: the weight is stored (input, output), as GPT-2's `Conv1D` does.
        part: (i, n): the i-th of n equal pieces of the outputs, of fused projections.
        skip: rows at the top of a position table that are no positions.
        in_head: the name is one of the head, which has no prefix.
    """

    name: str
    transposed: bool = False
    part: tuple[int, int] | None = None
    skip: int = 0
    in_head: bool = False

    def take(self, tensor: Tensor) -> Tensor:
        """The tensor as ours is laid out; a position table without its reserved rows."""
        if self.transposed and tensor.ndim == 2:
            tensor = tensor.T
        if self.part is not None:
            tensor = tensor.chunk(self.part[1], dim=0)[self.part[0]]
        return tensor[self.skip :]

    def words(self) -> str:
        """What `take` does, for the report; "" = nothing."""
        done = []
        if self.part is not None:
            done.append(f"part {self.part[0] + 1} of {self.part[1]}")
        if self.transposed:
            done.append("transposed")
        if self.skip:
            done.append(f"without its {self.skip} reserved rows")
        return ", ".join(done)


Table = Mapping[str, str | Source]
"""our module → the source's; `{i}` stands for the layer"""


@dataclass(frozen=True)
class WeightMap:
    """How checkpoints of one architecture are read.

    Attributes:
        name: for people.
        is_decoder: attention is causal.
        fields: source config → fields of ours.
        check: raises ValueError, names what of a source config the trunk has no place for.
        trunk: table of the trunk, given the source's config; names without the trunk's prefix.
        heads: table of each head, by the end of the class's name ("ForMaskedLM").
        zeros: our modules' biases that the source does not have, by the end of their names.
        dropped: {module of the source, trunk names without prefix: why nothing of ours reads it}.
        with_pooler: class of Transformers that reads the trunk, the pooler and no labels.
    """

    name: str
    is_decoder: bool
    fields: Callable[[Any], dict[str, Any]]
    check: Callable[[Any], None]
    trunk: Callable[[Any], Table]
    heads: Mapping[str, Table]
    zeros: tuple[str, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    with_pooler: str | None = None

    def pooler_of(self, head: str) -> str | None:
        """The source's module that a head of ours begins with, whatever head the source has."""
        dense = self.heads.get(head, {}).get("classifier.dense")
        return dense if isinstance(dense, str) else None


def spell_out(table: Table, layers: int) -> dict[str, Source]:
    """A table with every layer's modules by name."""
    found = {}
    for ours, theirs in table.items():
        source = Source(theirs) if isinstance(theirs, str) else theirs
        if "{i}" not in ours:
            found[ours] = source
            continue
        for i in range(layers):
            found[ours.format(i=i)] = source._replace(name=source.name.format(i=i))
    return found


def refuse(config: Any, **accepted: Any) -> None:
    """Raise ValueError if a field of a source config holds something else than is accepted.

    A field that the config lacks is accepted.
    """
    for name, value in accepted.items():
        found = getattr(config, name, value)
        if found != value:
            raise ValueError(
                f"this {config.model_type} checkpoint has {name}={found!r}, for which the trunk of "
                f"these models has no place; only {name}={value!r} can be converted."
            )


def head_of(class_name: str) -> str:
    """The end of a model class's name that says which head it has; "Model" = none."""
    known = (
        "ForMaskedLM", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification",
        "ForQuestionAnswering", "ForMultipleChoice",
    )  # fmt: skip
    for head in known:
        if class_name.endswith(head):
            return head
    # Pretraining heads hold a masked-language-model head and another one beside it.
    other = {
        "LMHeadModel": "ForCausalLM", "DoubleHeadsModel": "ForCausalLM",
        "ForPreTraining": "ForMaskedLM",
    }  # fmt: skip
    for end, head in other.items():
        if class_name.endswith(end):
            return head
    return "Model"


def head_of_class(model_class: type) -> str:
    """The head of a model class, by the first class above it whose name says one."""
    heads = (head_of(c.__name__) for c in model_class.__mro__)
    return next((head for head in heads if head != "Model"), "Model")
