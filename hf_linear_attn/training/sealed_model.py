"""The model in the output folder of a finished run: by its checksums a change to it shows."""

from pathlib import Path

from hf_linear_attn.training.checksums import CHECKSUMS_FILE, write_checksums
from hf_linear_attn.training.saved_files import DamagedFileError, changed_files, model_files


def seal_model(folder: Path) -> None:
    """Write checksums of the run's model, by which damage shows when the run is started again.

    Args:
        folder: the output folder; the model is saved in it.
    """
    write_checksums(folder, model_files(folder))


def unseal_model(folder: Path) -> None:
    """Forget the checksums of an earlier model, since the files of a new one take their places.

    Killed in between, the run would take its own files for those of a person.
    """
    (folder / CHECKSUMS_FILE).unlink(missing_ok=True)


def check_not_edited(folder: Path) -> None:
    """Refuse to replace what a person has made of a finished run's model.

    A file that is missing is no loss, and a model without checksums passes.

    Args:
        folder: the output folder of a finished run that is to go on.

    Raises:
        ValueError: a file is not the one that was saved, or the checksums cannot be read.
    """
    try:
        changed = changed_files(folder)
    except DamagedFileError as error:
        raise ValueError(
            f"{error}, so it is not known whether the model in {folder} is as the finished run has "
            "saved it, and this run would replace it; delete that file to go on without comparing "
            "(nothing was changed)"
        ) from error
    if changed:
        raise ValueError(
            f"{' and '.join(map(str, changed))} differs from what the finished run has saved, and "
            "this run would replace it; move it elsewhere, or put the saved one back, and start "
            "again (nothing was changed)"
        )
