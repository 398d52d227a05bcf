"""The model classes that the suite is run against, and small models and batches of them."""

from typing import Any, NamedTuple

import torch
from transformers.models.auto import modeling_auto

import hf_linear_attn as hla
from hf_linear_attn.models import AUTO_CLASSES, LraConfig, LraForSequenceClassification
from tests.conftest import OWN, TINY, VARIANTS

# Transformers' tests ask by name in these tables what a class is for. Classes that are registered
# with the Auto classes stand in others, and most tests would pass over ours in silence.
TABLES = {
    "Model": modeling_auto.MODEL_MAPPING_NAMES,
    "ForCausalLM": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "ForMaskedLM": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "ForSequenceClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "ForTokenClassification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    "ForQuestionAnswering": modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
    "ForMultipleChoice": modeling_auto.MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES,
}
FAMILIES = tuple(VARIANTS)
HORIZON = 256
LRA = (
    ({"pooling": "cls"}, ""),
    ({"pooling": "mean", "interaction": "nli", "initialization": "torch"}, ", pairs"),
)
HYBRID = {"layer_attention": ["linear_transformer", "softmax"]}


class Subject(NamedTuple):
    """What one run of the tests is about."""

    family: str
    model_class: type
    fields: dict[str, Any] = {}  # noqa: RUF012
    """of the config, beside those of all small models"""
    note: str = ""

    @property
    def name(self) -> str:
        """Of the class, and what is special about its config."""
        return f"{self.model_class.__name__}{self.note}"


def subjects(family: str) -> list[Subject]:
    """Every model class of a family that can be built; trunks of decoders and hybrids, too.

    The classifiers of Long Range Arena, of single sequences and of pairs, are in every family.
    """
    name = VARIANTS[family][0].__name__.removesuffix("Config")
    causal = family != "nystrom"
    ends = [end for end in AUTO_CLASSES if causal or end != "ForCausalLM"]
    found = [Subject(family, getattr(hla, name + end)) for end in ends]
    if causal:
        trunk = found[0].model_class
        found.insert(1, Subject(family, trunk, {"is_decoder": True}, " (decoder)"))
    if family == "linear_transformer":
        found.append(Subject(family, getattr(hla, f"{name}ForCausalLM"), HYBRID, " (hybrid)"))
    for fields, note in LRA:
        note = f" ({family}{note})"
        found.append(Subject(family, LraForSequenceClassification, fields, note))
    return found


def enter_names() -> None:
    """Enter our classes in `TABLES`."""
    for family in FAMILIES:
        for model in {subject.model_class for subject in subjects(family)}:
            end = next(end for end in TABLES if model.__name__.endswith(end))
            config = getattr(model, "config_class", VARIANTS[family][0])
            TABLES[end][config.model_type] = model.__name__


def tester_of(subject: Subject, *, rotated: bool) -> "Tester":
    """What makes configs and batches for a subject: see `Tester`."""
    kind = LraTester if subject.model_class is LraForSequenceClassification else Tester
    return kind(subject, rotated=rotated)


class Tester:
    """What Transformers' tests call a model tester: makes small configs and batches.

    Args:
        subject: what is tested.
        rotated: with rotary positions instead of a table, for the tests of these.
    """

    batch_size = 3
    seq_length = 7
    num_choices = 4
    is_training = True
    num_hidden_layers = TINY["num_hidden_layers"]
    num_attention_heads = TINY["num_attention_heads"]
    hidden_size = TINY["hidden_size"]
    vocab_size = TINY["vocab_size"]

    def __init__(self, subject: Subject, *, rotated: bool):
        self.config_class = VARIANTS[subject.family][0]
        self.causal_lm_class = subject.model_class
        self.settings = self._settings(subject.family, rotated) | subject.fields

    @staticmethod
    def _settings(family: str, rotated: bool) -> dict[str, Any]:
        own = {"cosformer": {"cos_horizon": HORIZON}, **OWN}.get(family, {})
        settings = {**TINY, **own, "initializer_range": 0.02, "max_position_embeddings": 64}
        settings["num_labels"] = 3
        if family == "softmax":
            settings["attention_probs_dropout_prob"] = 0.1
        if rotated:
            settings["position_embedding_type"] = "rope"
            settings["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
        return {**settings, "type_vocab_size": 2}

    def get_config(self) -> Any:
        """A config for a small model."""
        return self.config_class(**self.settings)

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, Any]]:
        """A config, and a batch without labels: one row is padded on the right."""
        shape = (self.batch_size, self.seq_length)
        mask = torch.ones(shape, dtype=torch.long)
        mask[0, -2:] = 0
        inputs = {
            "input_ids": torch.randint(3, self.vocab_size, shape),
            "attention_mask": mask,
            "token_type_ids": torch.randint(0, 2, shape),
        }
        return self.get_config(), inputs


class LraTester(Tester):
    """The same for a classifier of Long Range Arena: a trunk of the family under its head."""

    def __init__(self, subject: Subject, *, rotated: bool):
        self.config_class = LraConfig
        self.causal_lm_class = subject.model_class
        self.trunk_class = VARIANTS[subject.family][0]
        self.trunk_settings = self._settings(subject.family, rotated)
        self.settings = {"num_labels": 3, **subject.fields}
        # A vector stands before the sequence.
        self.encoder_seq_length = self.seq_length + (subject.fields["pooling"] == "cls")

    def get_config(self) -> LraConfig:
        """A config for a small model."""
        return LraConfig(trunk=self.trunk_class(**self.trunk_settings), **self.settings)

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, Any]]:
        """A config, and a batch without labels: pairs for two towers."""
        config, inputs = super().prepare_config_and_inputs_for_common()
        del inputs["token_type_ids"]
        if config.towers == 2:
            inputs = {name: torch.stack([x, x.roll(1, 0)], dim=1) for name, x in inputs.items()}
        return config, inputs
