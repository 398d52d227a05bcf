"""May this be written to the Hub, and what becomes of it when it fails."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub import HfApi, is_offline_mode
from huggingface_hub.utils import validate_repo_id

from hf_linear_attn.integrations.hub_errors import hub_errors

_MADE_WITH_A_REPOSITORY = {".gitattributes"}


def check_access(repo_id: str, token: str | None) -> str:
    """The full name of a repository, after asking who the token belongs to.

    Raises:
        ValueError: the name is none, or the Hub is not reached or refuses.
    """
    with hub_errors(repo_id, uploading=True):
        validate_repo_id(repo_id)
        if is_offline_mode():
            raise ValueError(f"HF_HUB_OFFLINE is set: unset it to upload to {repo_id}.")
        owner = HfApi().whoami(token=token)["name"]
    return repo_id if "/" in repo_id else f"{owner}/{repo_id}"


def check_may_write(repo_id: str, token: str | None) -> None:
    """Ask whether a token may write to a repository, if that exists.

    Raises:
        ValueError: it may not, the name is none, or the Hub is not reached.
    """
    name, api = check_access(repo_id, token), HfApi(token=token)
    with hub_errors(name, uploading=True):
        if api.repo_exists(name):
            api.auth_check(name, write=True)


@contextmanager
def guarded(repo_id: str, token: str | None, revision: str | None) -> Iterator[None]:
    """An upload: after an error a repository or branch that was made for it is gone again.

    Args:
        repo_id: user/name.
        token: None = that of `hf auth login`.
        revision: the branch; None = the default one.

    Raises:
        ValueError: the Hub is not reached or refuses.
    """
    api = HfApi(token=token)
    with hub_errors(repo_id, revision, uploading=True):
        existed = api.repo_exists(repo_id)
        had_branch = revision is None or (existed and api.revision_exists(repo_id, revision))
        try:
            yield
        except BaseException as error:
            if not existed:
                _take_back(error, f"new, empty repository {repo_id}", _remove_empty, api, repo_id)
            elif not had_branch:
                _take_back(error, f"new branch {revision}", _remove_branch, api, repo_id, revision)
            raise


def _take_back(error: BaseException, what: str, remove: Callable[..., None], *args: Any) -> None:
    try:
        remove(*args)
    except Exception as failure:
        error.add_note(f"The {what} could not be removed: {failure}")


def _remove_empty(api: HfApi, repo_id: str) -> None:
    # Whatever has come into it meanwhile stays.
    if api.repo_exists(repo_id) and set(api.list_repo_files(repo_id)) <= _MADE_WITH_A_REPOSITORY:
        api.delete_repo(repo_id)


def _remove_branch(api: HfApi, repo_id: str, branch: str) -> None:
    if not api.revision_exists(repo_id, branch):
        return
    # One that has a commit of its own stays.
    if api.model_info(repo_id, revision=branch).sha == api.model_info(repo_id).sha:
        api.delete_branch(repo_id, branch=branch)
