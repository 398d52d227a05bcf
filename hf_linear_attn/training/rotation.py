"""Old checkpoints make room for new ones, and never a complete one for one that is not.

Trainer goes by the time of a folder's last change, which a removal that was killed, or a copy,
changes; or by the steps, of which an interrupted save may have the most.
"""

import shutil
from pathlib import Path

from hf_linear_attn.training.checkpoints import (
    all_checkpoints,
    checkpoint_steps,
    unfinished_checkpoints,
)
from hf_linear_attn.training.checksums import CHECKSUMS_FILE


def remove_old_checkpoints(folder: Path, limit: int | None, steps: int, best: str | None) -> None:
    """Keep so many complete checkpoints, the newest ones; those that are not complete go, too.

    Args:
        folder: of the run.
        limit: as Trainer's `save_total_limit`; None or 0 keeps all.
        steps: of the checkpoint that was just saved, which stays.
        best: path of the best checkpoint, which stays.
    """
    if not limit or limit < 0:
        return
    unfinished = unfinished_checkpoints(folder)
    complete = [path for path in all_checkpoints(folder) if path not in unfinished]
    names = {f"checkpoint-{steps}", *([] if best is None else [Path(best).name])}
    kept = {path for path in complete if path.name in names}
    for path in sorted(complete, key=checkpoint_steps, reverse=True):
        if len(kept) < limit:
            kept.add(path)
    for path in sorted({*complete, *unfinished} - kept, key=checkpoint_steps):
        # Without them it counts as unfinished, should its removal be cut off and an older one stay.
        (path / CHECKSUMS_FILE).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
