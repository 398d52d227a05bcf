"""What PEFT has to know of our model types; told when it asks for a config, and never imported.

PEFT looks up by model type which layers an adapter goes to where a user names none. It has no way
to register a type but its tables, and importing it takes seconds, so nobody pays for it who does
not use it: PEFT reads a model's config by `to_dict` before it looks into them, and there its tables
are completed, whichever of the two packages was imported first.
"""

import sys
from typing import Any, NoReturn

# Our linear layers have Llama's names; norms have not, and some hold no parameters.
_MODEL_TYPE = "llama"
_LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj", "down_proj"}


def tell_peft(model_type: str) -> None:
    """Complete PEFT's tables by a model type, if PEFT is imported; entries of others are kept.

    Args:
        model_type: of a config of ours.
    """
    constants = sys.modules.get("peft.utils.constants")
    if constants is None:
        return
    for name, table in vars(constants).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and name.endswith("_MODULES_MAPPING"):
            modules = table.get(_MODEL_TYPE)
            if isinstance(modules, list) and _LINEAR.issuperset(modules):
                table.setdefault(model_type, list(modules))
    # PEFT calls this with the keys and values that it has made for a model type.
    constants.TRANSFORMERS_MODELS_TO_PREFIX_TUNING_POSTPROCESS_MAPPING.setdefault(
        model_type, refuse_prefix
    )


def refuse_prefix(past_key_values: Any) -> NoReturn:
    """Refuse keys and values that belong to no token.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        "models of hf_linear_attn take no prefix tuning (nor cartridges): it puts trained keys and "
        "values into the cache of every layer, and linear attention keeps sums over the keys of "
        "tokens instead. Use LoRA, LoraConfig(task_type=…), or PromptTuningConfig, which puts "
        "trained vectors before the tokens."
    )
