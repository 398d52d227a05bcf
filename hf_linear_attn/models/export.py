"""The code that travels with a model, so that it loads where this package is not installed.

The folder of such a model has, beside weights and config, two Python files: the modules that its
classes need as one (`CODE`), and the one Transformers is pointed to by an `auto_map` in the config,
for every head. `AutoModel….from_pretrained(…,
trust_remote_code=True)` follows it; a process that has imported this package does not need to.
"""

import inspect
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from hf_linear_attn.attention.registry import get_attention
from hf_linear_attn.models.bundling import bundle
from hf_linear_attn.models.entry_file import CODE, ENTRY, entry_text
from hf_linear_attn.namespace import IS_PACKAGE, ROOT
from hf_linear_attn.version import __version__

_MARK = "# Code of hf_linear_attn "
_NOTICE = f"""{_MARK}{__version__} that travels with a model.
# Copyright The hf_linear_attn authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except
# in compliance with the License. You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License
# is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express
# or implied. See the License for the specific language governing permissions and limitations under
# the License.
"""


def auto_map(config: PreTrainedConfig) -> dict[str, str]:
    """Class of the entry file for each Auto class: the config and all heads that take it.

    So that a masked language model can be finetuned as a classifier where it was loaded.
    """
    stem = type(config).__name__.removesuffix("Config")
    classes = {"AutoConfig": type(config).__name__}
    for name in _model_names(config):
        head = name.removeprefix(stem).removeprefix("Model")
        classes[f"AutoModel{head}"] = name
    return {auto: f"{ENTRY}.{name}" for auto, name in classes.items()}


def names_code(config: Any) -> bool:
    """Does an `auto_map` point to the code of this package?"""
    return any(_is_entry(value) for value in (getattr(config, "auto_map", None) or {}).values())


def map_to_save(config: Any, *, with_code: bool) -> dict[str, Any]:
    """The `auto_map` that is saved: entries for the code come and go, a user's own stay.

    Args:
        config: with an `auto_map` or without.
        with_code: whether the code is saved.
    """
    found = getattr(config, "auto_map", None) or {}
    own = {auto: value for auto, value in found.items() if not _is_entry(value)}
    return {**auto_map(config), **own} if with_code else own


def _is_entry(value: Any) -> bool:
    """Is this a class of the entry file, here or (`user/name--…`) in a repository?"""
    return isinstance(value, str) and value.split("--")[-1].startswith(f"{ENTRY}.")


def is_own(found: type) -> bool:
    """Is a class part of this package?"""
    return found.__module__.startswith(f"{ROOT}.")


def code_from_elsewhere(config: Any, model_class: type | None = None) -> type | None:
    """The first class that a model needs and that is not this package's own.

    Args:
        config: of the model.
        model_class: of the model; what PyTorch puts in front of it (FSDP) is no code of anybody's.
    """
    needed = [type(config)]
    if model_class is not None:
        needed += [c for c in model_class.__mro__ if c.__module__.split(".")[0] != "torch"][:1]
    needed += [get_attention(name) for name in dict.fromkeys(config.attention_names)]
    return next((found for found in needed if not is_own(found)), None)


def check_code_can_travel(config: Any, model_class: type | None = None) -> None:
    """Refuse a model that needs code from elsewhere.

    Args:
        config, model_class: see `code_from_elsewhere`.

    Raises:
        ValueError: its class, or a mechanism in it, is not this package's own.
    """
    found = code_from_elsewhere(config, model_class)
    if found is not None:
        raise ValueError(
            f"with_code=True writes the code of hf_linear_attn, but this model also needs "
            f"{found.__name__} of {found.__module__}, which is not part of it. Use "
            "with_code=False; who loads the model has to import that module."
        )


def carried_files(config: PreTrainedConfig) -> dict[str, str]:
    """Texts by file name: the code, and the entry file.

    Args:
        config: of a class of this package.
    """
    if not IS_PACKAGE:
        # This code has itself come with a model, and goes on as it is.
        beside = sorted(Path(__file__).parent.glob("*.py"))
        texts = {file.name: file.read_text(encoding="utf-8") for file in beside}
        return {name: text for name, text in texts.items() if text.startswith(_MARK)}
    names = [type(config).__name__, *_model_names(config)]
    texts = {CODE: bundle(_module_of_models(config)), ENTRY: entry_text(names, __version__)}
    return {f"{name}.py": f"{_NOTICE}{text.rstrip()}\n" for name, text in texts.items()}


def write_code(folder: Path, config: PreTrainedConfig) -> None:
    """Write the code into a folder, all of it or nothing.

    Args:
        folder: made if it is missing; files of an earlier export are replaced.
        config: see `carried_files`.

    Raises:
        ValueError: another file has the name of one of ours.
    """
    texts = carried_files(config)
    for name in texts:
        file = folder / name
        if file.exists() and not _is_ours(file):
            raise ValueError(
                f"{file} is not a file of hf_linear_attn, and the code that travels with the model "
                "would replace it. Choose another folder, or move the file away."
            )
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".code-", dir=folder))
    try:
        for name, text in texts.items():
            (scratch / name).write_text(text, encoding="utf-8")
        for name in texts:
            os.replace(scratch / name, folder / name)
    finally:
        shutil.rmtree(scratch)


def _is_ours(file: Path) -> bool:
    with open(file, encoding="utf-8", errors="replace") as opened:
        return opened.readline().startswith(_MARK)


def _module_of_models(config: PreTrainedConfig) -> str:
    """The module that has the models of a config, and its class or an import of it."""
    own = type(config).__module__
    other = getattr(type(config), "models_module", None)
    # Code that came with a model is one file.
    return f"{own.rpartition('.')[0]}.{other}" if other is not None and IS_PACKAGE else own


def _model_names(config: PreTrainedConfig) -> list[str]:
    """Names of the model classes that take a config."""
    beside = vars(sys.modules[_module_of_models(config)])
    return sorted(
        name
        for name, found in beside.items()
        if inspect.isclass(found)
        and issubclass(found, PreTrainedModel)
        and found.config_class is type(config)
    )
