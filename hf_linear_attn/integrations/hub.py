"""A model, its tokenizer, its card and its code: into one folder, and to the Hub in one commit."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from hf_linear_attn.integrations.card_drafts import is_unedited, merged
from hf_linear_attn.integrations.config_card import config_card
from hf_linear_attn.integrations.hub_access import check_access, guarded
from hf_linear_attn.models.entry_file import CODE, ENTRY
from hf_linear_attn.models.with_code import ModelWithCode

CARD = "README.md"

# Of an older upload, they would be loaded beside the new weights or instead of them.
_REPLACED = [
    "model.safetensors",
    "model.safetensors.index.json",
    "model-?????-of-?????.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "pytorch_model-?????-of-?????.bin",
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
    f"{CODE}.py",
    f"{ENTRY}.py",
]


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
        card: text of the card; None = the one that people wrote there, else one from the config.

    Returns:
        Address of the commit.

    Raises:
        ValueError: the Hub is not reached or refuses, a repository that exists is not as private
            as asked for, or the model cannot be saved so. The Hub is left as it was.
    """
    name = check_access(repo_id, token)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_folder(
            folder, model, tokenizer, where=name, with_code=with_code, card=card, revision=revision
        )
        return upload(
            folder, name, private=private, revision=revision, token=token,
            commit_message=commit_message or f"{type(model).__name__} of hf_linear_attn",
            keep_card=card is None,
        )  # fmt: skip


def write_folder(
    folder: Path,
    model: Any,
    tokenizer: Any,
    *,
    where: str,
    with_code: bool,
    card: str | None,
    revision: str | None = None,
) -> None:
    """Save model, tokenizer, card and code.

    Args:
        folder: exists.
        model: one of this package.
        tokenizer: or None.
        where: what the card says `from_pretrained` is given.
        with_code: see `save_pretrained` of our models.
        card: text of the card; None = one written from the config.
        revision: branch of `where`, for the card; None = the default one.

    Raises:
        ValueError: not a model of this package, or it needs code from elsewhere.
    """
    if not isinstance(model, ModelWithCode):
        raise ValueError(f"{type(model).__name__} is not a model of hf_linear_attn; {_way(model)}.")
    model.save_pretrained(folder, with_code=with_code)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    if card is None:
        card = config_card(
            model, where, with_code=with_code, has_tokenizer=tokenizer is not None,
            revision=revision,
        )  # fmt: skip
    (folder / CARD).write_text(card, encoding="utf-8")


def _way(model: Any) -> str:
    """What to do with something that is no model of this package."""
    if isinstance(getattr(model, "_orig_mod", None), ModelWithCode):
        return "it is compiled: give model._orig_mod"
    if hasattr(model, "merge_and_unload"):
        return "it has adapters: give model.merge_and_unload(), or share them by model.push_to_hub"
    return "share it by its own push_to_hub and save_pretrained"


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
    """Upload a folder in one commit; what is made for it on the Hub does not outlive a failure.

    Weights and code of an older upload go, other files stay.

    Args:
        folder: all its files are uploaded; its card gets the header of one that it replaces.
        repo_id: user/name.
        private, revision, token, commit_message: see `push_to_hub`.
        keep_card: leave a card that is there as it is, if people wrote it.

    Returns:
        Address of the commit.

    Raises:
        ValueError: see `push_to_hub`.
    """
    api = HfApi(token=token)
    with guarded(repo_id, token, revision):
        _create(api, repo_id, private)
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        kept = keep_card and not _card_gives_way(api, folder / CARD, repo_id, revision)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            revision=revision,
            commit_message=commit_message,
            ignore_patterns=[CARD] if kept else None,
            delete_patterns=_REPLACED,
        )
    return commit.commit_url


def _create(api: HfApi, repo_id: str, private: bool | None) -> None:
    """Make a repository if it is missing.

    Raises:
        ValueError: it is there and is not as private as asked for.
    """
    if not api.repo_exists(repo_id):
        # Not asked for one that is there: a token may have the right to write to it alone.
        api.create_repo(repo_id, private=private)
        return
    found = bool(api.model_info(repo_id).private)
    if private is not None and found != private:
        is_now, wanted = ("private", "public") if found else ("public", "private")
        raise ValueError(
            f"{repo_id} exists and is {is_now}, and {wanted} was asked for: change that in its "
            "settings on the Hub, or choose another name."
        )


def _card_gives_way(api: HfApi, card: Path, repo_id: str, revision: str | None) -> bool:
    """Is there no card that people wrote? The header of one that nobody did goes into ours."""
    if not api.file_exists(repo_id, CARD, revision=revision):
        return True
    old = Path(api.hf_hub_download(repo_id, CARD, revision=revision)).read_text(encoding="utf-8")
    if not is_unedited(old):
        return False
    card.write_text(merged(card.read_text(encoding="utf-8"), old), encoding="utf-8")
    return True


def _card_instead(
    model: Any,
    repo_id: str,
    card: str,
    *,
    with_code: bool,
    token: str | None,
    revision: str | None,
) -> str:
    """For `model.push_to_hub`: a card from the config instead of one that nobody wrote."""
    if not is_unedited(card):
        return card
    api = HfApi(token=token)
    # A branch that is yet to be made begins with what the default one has.
    there = revision if revision and api.revision_exists(repo_id, revision) else None
    has_tokenizer = api.file_exists(repo_id, "tokenizer_config.json", revision=there)
    ours = config_card(
        model, repo_id, with_code=with_code, has_tokenizer=has_tokenizer, revision=revision
    )
    return merged(ours, card)


@contextmanager
def _guard_push(repo_id: str, token: str | None, revision: str | None) -> Iterator[str]:
    """For `model.push_to_hub`: see `guarded`; the full name of the repository."""
    name = check_access(repo_id, token)
    with guarded(name, token, revision):
        yield name


# `model.push_to_hub` is Transformers' own and uploads the model alone.
ModelWithCode.write_card = staticmethod(_card_instead)
ModelWithCode.guard_upload = staticmethod(_guard_push)
