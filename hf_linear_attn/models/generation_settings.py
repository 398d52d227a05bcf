"""Settings of generation beside a saved model, which Transformers takes for none where damaged."""

import json
from pathlib import Path
from typing import Any

from transformers import GenerationConfig
from transformers.utils import GENERATION_CONFIG_NAME
from transformers.utils.hub import cached_file

_WHERE = (
    "cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token",
)  # fmt: skip


def check_generation_settings(source: Any, keywords: dict[str, Any] | None = None) -> None:
    """Refuse a saved model whose settings of generation would be lost without a word.

    Args:
        source: folder, or name on the Hub; one without such settings passes.
        keywords: of `from_pretrained`; those that say where the files are count.

    Raises:
        ValueError: `generation_config.json` is there and holds no JSON object, or values with
            which Transformers cannot begin anything.
    """
    where = {name: value for name, value in (keywords or {}).items() if name in _WHERE}
    try:
        file = cached_file(source, GENERATION_CONFIG_NAME, **where)
    except OSError:
        return  # none, or a place that is not reached: whoever loads the model says so
    if file is None:
        return
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(_fault(file, "is not readable JSON")) from error
    if not isinstance(found, dict):
        raise ValueError(_fault(file, "is damaged: it holds no mapping"))
    try:
        GenerationConfig.from_dict(found)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(_fault(file, f"cannot be used ({error})")) from error


def _fault(file: str, fault: str) -> str:
    return (
        f"{file} {fault}, so that what it sets for generation would be lost; save or download it "
        "again, or delete it if nothing of it is wanted"
    )
