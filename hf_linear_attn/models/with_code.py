"""Configs and models that can be saved together with the code that runs them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from hf_linear_attn.models.entry_file import ENTRY
from hf_linear_attn.models.export import (
    check_code_can_travel,
    code_from_elsewhere,
    is_own,
    map_to_save,
    names_code,
    write_code,
)

logger = logging.get_logger(__name__)


class ConfigWithCode(PreTrainedConfig):
    """A config whose `auto_map` says that its model's code lies beside it."""

    models_module: ClassVar[str | None] = None
    """the module beside the config's that has the models; None = they stand in the same one"""

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Checks the name and keeps nothing: whether code goes along is the saved model's choice.

        Transformers calls it on a config class that came with a model. On a class of somebody's own
        it does what it does in Transformers.
        """
        super().register_for_auto_class(auto_class)
        if is_own(cls):
            cls._auto_class = None

    def save_pretrained(
        self, save_directory: Any, push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """As in Transformers; the code that a config names (`auto_map`) is written first.

        Raises:
            ValueError: the code cannot be written there.
        """
        if names_code(self):
            if push_to_hub:
                # The files written here would be taken for old ones and not uploaded.
                raise ValueError("this config carries code: use push_to_hub(name) to upload both.")
            check_code_can_travel(self)
            self.auto_map = map_to_save(self, with_code=True)
            write_code(Path(save_directory), self)
        super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)


class ModelWithCode(PreTrainedModel):
    """A model that takes its code along on request."""

    takes_code: ClassVar[bool] = False
    """set by `register_for_auto_class`"""
    write_card: ClassVar[Callable[..., str] | None] = None
    """text of a card from a model, the repository's name, the card that Transformers would upload,
    with_code, token and revision; set by the floor that knows cards"""
    guard_upload: ClassVar[Callable[..., AbstractContextManager[str]] | None] = None
    """what an upload runs in, from the repository's name, token and revision; gives the full name;
    set by the floor that knows the Hub"""
    _with_code: bool | None = None
    """while the model is pushed: what was asked for"""

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """As in Transformers: models of this class are saved with their code from now on.

        That of a class of somebody's own is its file alone, which imports this package.
        """
        super().register_for_auto_class(auto_class)
        if is_own(cls):
            # Transformers would copy one file, which imports the package.
            cls._auto_class = None
            cls.takes_code = True

    def save_pretrained(
        self, save_directory: Any, *args: Any, with_code: bool | None = None, **kwargs: Any
    ) -> None:
        """As in Transformers, and with the model's code if that is wanted.

        Args:
            save_directory: the folder.
            *args: as in Transformers.
            with_code: write the code that runs the model beside it, so that it loads by
                trust_remote_code=True where this package is not installed; None = if the model
                was loaded from a folder that names code, or its class is registered
                (`register_for_auto_class`), and it needs no code from elsewhere.
            **kwargs: as in Transformers.

        Raises:
            ValueError: the model needs code that is not this package's, or another file has the
                name of one of ours.
        """
        with self._code_named(self._with_code if with_code is None else with_code):
            super().save_pretrained(save_directory, *args, **kwargs)

    def push_to_hub(  # pyright: ignore[reportIncompatibleVariableOverride] - a copied function there
        self, repo_id: str, *, with_code: bool | None = None, **kwargs: Any
    ) -> Any:
        """As in Transformers; `hf_linear_attn.push_to_hub` also uploads a tokenizer.

        Args:
            repo_id: user/name, or a name of your own.
            with_code: see `save_pretrained`.
            **kwargs: as in Transformers.

        Raises:
            ValueError: the Hub is not reached or refuses, or the model cannot be saved so. A
                repository or branch that was made for it is gone again.
        """
        push: Any = super().push_to_hub
        guard, self._with_code = type(self).guard_upload, with_code
        try:
            if guard is None:
                return push(repo_id, **kwargs)
            with guard(repo_id, kwargs.get("token"), kwargs.get("revision")) as name:
                return push(name, **kwargs)
        finally:
            del self._with_code

    def _upload_modified_files(self, working_dir: Any, repo_id: str, *args: Any, **kwargs: Any):
        """As in Transformers; its empty form of a card gives way to a card of ours."""
        card, write = Path(working_dir) / "README.md", type(self).write_card
        if write is not None and card.is_file():
            text = write(
                self, repo_id, card.read_text(encoding="utf-8"),
                with_code=(Path(working_dir) / f"{ENTRY}.py").is_file(),
                token=kwargs.get("token"), revision=kwargs.get("revision"),
            )  # fmt: skip
            card.write_text(text, encoding="utf-8")
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    @contextmanager
    def _code_named(self, wanted: bool | None) -> Iterator[None]:
        """The config names the code, or none, while the model is saved."""
        config: Any = self.config
        before = getattr(config, "auto_map", None)
        named = map_to_save(config, with_code=self._takes_along(wanted))
        _set_auto_map(config, named)
        try:
            yield
        finally:
            _set_auto_map(config, before)

    def _takes_along(self, wanted: bool | None) -> bool:
        """Whether this package's code goes along with the model."""
        if wanted not in (None, True, False):
            raise ValueError(f"with_code is {wanted!r}; expected True, False or None.")
        if wanted is not None:
            if wanted:
                check_code_can_travel(self.config, type(self))
            return bool(wanted)
        if self._auto_class is not None or not (names_code(self.config) or self.takes_code):
            return False
        found = code_from_elsewhere(self.config, type(self))
        if found is not None:
            # Not refused: a Trainer saves so in the middle of its work.
            logger.warning(
                f"{type(self).__name__} is saved without code: it needs {found.__name__} of "
                f"{found.__module__}, which is not part of hf_linear_attn. Who loads the model has "
                "to import that module."
            )
        return found is None


def _set_auto_map(config: Any, value: dict[str, Any] | None) -> None:
    if value:
        config.auto_map = value
    elif hasattr(config, "auto_map"):
        del config.auto_map
