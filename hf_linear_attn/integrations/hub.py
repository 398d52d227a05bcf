"""A model, its tokenizer, its card and its code: into one folder, and to the Hub in one commit."""

import tempfile
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, is_offline_mode
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import validate_repo_id

from hf_linear_attn.integrations.config_card import config_card
from hf_linear_attn.integrations.hub_errors import hub_errors
from hf_linear_attn.models.with_code import ModelWithCode

CARD = "README.md"

# For `model.push_to_hub`, which is Transformers' own and uploads the model alone.
ModelWithCode.write_card = staticmethod(config_card)


def push_to_hub(
    model: Any,
    tokenizer: Any,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    with_code: bool = True,
    commit_message: str | None = None,
    card: str | None = None,
) -> str:
    """Upload a model with its tokenizer, card and code in one commit.

    Args:
        model: one of this package.
        tokenizer: or None.
        repo_id: user/name, or a name of your own; made if it is missing.
        private: who may see a new repository; None = as your account has it.
        revision: branch to commit to, made if it is missing; None = the default one.
        token: None = that of `hf auth login`.
        with_code: see `save_pretrained` of our models.
        commit_message: None = one that names the model.
        card: text of the card; None = the one that is there, else one written from the config.

    Returns:
        Address of the commit.

    Raises:
        ValueError: the Hub is not reached or refuses, a repository that exists is not as private
            as asked for, or the model cannot be saved so. The Hub is left as it was.
    """
    name = check_access(repo_id, token)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_folder(folder, model, tokenizer, where=name, with_code=with_code, card=card)
        return upload(
            folder, name, private=private, revision=revision, token=token,
            commit_message=commit_message or f"{type(model).__name__} of hf_linear_attn",
            keep_card=card is None,
        )  # fmt: skip


def check_access(repo_id: str, token: str | None) -> str:
    """The full name of a repository, after asking who the token belongs to.

    Raises:
        ValueError: the name is none, or the Hub is not reached or refuses.
    """
    with hub_errors(repo_id):
        validate_repo_id(repo_id)
        if is_offline_mode():
            raise ValueError(f"HF_HUB_OFFLINE is set: unset it to upload to {repo_id}.")
        owner = HfApi().whoami(token=token)["name"]
    return repo_id if "/" in repo_id else f"{owner}/{repo_id}"


def write_folder(
    folder: Path, model: Any, tokenizer: Any, *, where: str, with_code: bool, card: str | None
) -> None:
    """Save model, tokenizer, card and code.

    Args:
        folder: exists.
        model: one of this package.
        tokenizer: or None.
        where: what the card says `from_pretrained` is given.
        with_code: see `save_pretrained` of our models.
        card: text of the card; None = one written from the config.

    Raises:
        ValueError: not a model of this package, or it needs code from elsewhere.
    """
    if not isinstance(model, ModelWithCode):
        raise ValueError(
            f"{type(model).__name__} is not a model of hf_linear_attn; share it by its own "
            "push_to_hub and save_pretrained."
        )
    model.save_pretrained(folder, with_code=with_code)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    if card is None:
        card = config_card(model, where, with_code=with_code, has_tokenizer=tokenizer is not None)
    (folder / CARD).write_text(card, encoding="utf-8")


def upload(
    folder: Path,
    repo_id: str,
    *,
    private: bool | None,
    revision: str | None,
    token: str | None,
    commit_message: str,
    keep_card: bool,
) -> str:
    """Upload a folder in one commit; a repository made for it does not outlive a failure.

    Args:
        folder: all its files are uploaded.
        repo_id: user/name.
        private, revision, token, commit_message: see `push_to_hub`.
        keep_card: leave a card that is there as it is.

    Returns:
        Address of the commit.

    Raises:
        ValueError: see `push_to_hub`.
    """
    api = HfApi(token=token)
    with hub_errors(repo_id, revision):
        is_new = _create(api, repo_id, private)
        try:
            if revision is not None:
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            kept = keep_card and api.file_exists(repo_id, CARD, revision=revision)
            commit = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                revision=revision,
                commit_message=commit_message,
                ignore_patterns=[CARD] if kept else None,
            )
        except BaseException as error:
            if is_new:
                _remove(api, repo_id, error)
            raise
    return commit.commit_url


def _create(api: HfApi, repo_id: str, private: bool | None) -> bool:
    """Make a repository; False if it was there.

    Raises:
        ValueError: it was there and is not as private as asked for.
    """
    try:
        api.create_repo(repo_id, private=private)
        return True
    except HfHubHTTPError as error:
        if error.response.status_code != 409:
            raise
    found = bool(api.model_info(repo_id).private)
    if private is not None and found != private:
        is_now, wanted = ("private", "public") if found else ("public", "private")
        raise ValueError(
            f"{repo_id} exists and is {is_now}, and {wanted} was asked for: change that in its "
            "settings on the Hub, or choose another name."
        )
    return False


def _remove(api: HfApi, repo_id: str, error: BaseException) -> None:
    """Take back a repository that has nothing in it yet."""
    try:
        api.delete_repo(repo_id)
    except Exception as failure:
        error.add_note(f"The new, empty repository {repo_id} could not be removed: {failure}")
