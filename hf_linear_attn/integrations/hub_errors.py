"""What the Hub refuses, as one sentence that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import is_offline_mode
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # pyright: ignore[reportPrivateImportUsage] - of whatever library it uses
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)

_LOG_IN = "run `hf auth login`, or give a token"


@contextmanager
def hub_errors(
    name: str, revision: str | None = None, *, uploading: bool = False
) -> Iterator[None]:
    """Inside the block an error of the Hub becomes a ValueError; any other error stays itself.

    Args:
        name: of the repository.
        revision: what was asked of it; None = the default branch.
        uploading: something is written to it.

    Raises:
        ValueError: the Hub is not reached or refuses.
    """
    try:
        yield
    except Exception as error:
        for cause in _causes(error):
            sentence = _sentence(cause, name, revision, uploading)
            if sentence is not None:
                raise ValueError(sentence) from error
        raise


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from: Transformers wraps those of the Hub."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _sentence(error: BaseException, name: str, revision: str | None, uploading: bool) -> str | None:
    """What an error of the Hub means; None for other errors."""
    if isinstance(error, HFValidationError):
        return (
            f"{name!r} cannot be the name of a repository; expected name or user/name, of letters, "
            "digits, '-', '_' and '.', 96 characters at most."
        )
    if isinstance(error, LocalTokenNotFoundError):
        return f"the Hub asks for a token to write to {name}, and there is none: {_LOG_IN}."
    if isinstance(error, GatedRepoError):
        return f"{name} is given to people who asked its author for access; {_LOG_IN}."
    if isinstance(error, RevisionNotFoundError):
        return f"{name} has no revision {revision!r} on the Hub; give a branch, tag or commit."
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"the Hub has no repository {name} for you: the name is wrong, or it is private and "
            f"the token is missing or has no access. Check the name; {_LOG_IN}."
        )
    if isinstance(error, HfHubHTTPError):
        return _answer(error, name)
    unreached = (
        OfflineModeIsEnabled, LocalEntryNotFoundError, RevisionResolutionError, HTTPError,
    )  # fmt: skip
    if isinstance(error, unreached):
        if is_offline_mode() and uploading:
            return f"HF_HUB_OFFLINE is set: unset it to upload to {name}."
        if is_offline_mode():
            return (
                f"{name} is not on this machine, and HF_HUB_OFFLINE keeps the Hub from being asked:"
                " unset it, or give a local folder."
            )
        return (
            f"the Hub cannot be reached for {name}: check the connection, and HF_ENDPOINT if set."
        )
    return None


def _answer(error: HfHubHTTPError, name: str) -> str:
    status = error.response.status_code
    if status == 401:
        return f"the Hub refused the token, or got none, for {name}: {_LOG_IN} that is valid."
    if status == 403:
        return f"the token has no right to do this to {name}: give one that may write there."
    said = (error.server_message or str(error)).strip().split("\n")[0]
    return f"the Hub answered {status} for {name}: {said}"
