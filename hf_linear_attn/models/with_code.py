"""Configs and models that can be saved together with the code that runs them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub import ModelCard
from transformers import PreTrainedConfig, PreTrainedModel

from hf_linear_attn.models.entry_file import ENTRY
from hf_linear_attn.models.export import auto_map, check_code_can_travel, write_code

# Stands in the card that Transformers uploads where a repository has none.
_DRAFT = "This is the model card of a 🤗 transformers model that has been pushed on the Hub."


class ConfigWithCode(PreTrainedConfig):
    """A config whose `auto_map` says that its model's code lies beside it."""

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Checks the name and keeps nothing: whether code goes along is the saved model's choice.

        Transformers calls it on a config class that came with a model.
        """
        super().register_for_auto_class(auto_class)
        cls._auto_class = None

    def save_pretrained(
        self, save_directory: Any, push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """As in Transformers; the code that a config names (`auto_map`) is written first.

        Raises:
            ValueError: the code cannot be written there.
        """
        if getattr(self, "auto_map", None):
            if push_to_hub:
                # The files written here would be taken for old ones and not uploaded.
                raise ValueError("this config carries code: use push_to_hub(name) to upload both.")
            check_code_can_travel(self)
            self.auto_map = auto_map(self)
            write_code(Path(save_directory), self)
        super().save_pretrained(save_directory, push_to_hub=push_to_hub, **kwargs)


class ModelWithCode(PreTrainedModel):
    """A model that takes its code along on request."""

    takes_code: ClassVar[bool] = False
    """set by `register_for_auto_class`"""
    write_card: ClassVar[Callable[..., str] | None] = None
    """text of a card from a model, the repository's name, with_code and has_tokenizer; set by the
    floor that knows cards"""

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """As in Transformers: models of this class are saved with their code from now on."""
        super().register_for_auto_class(auto_class)
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
                (`register_for_auto_class`).
            **kwargs: as in Transformers.

        Raises:
            ValueError: the model needs code that is not this package's, or another file has the
                name of one of ours.
        """
        with self._code_named(with_code):
            super().save_pretrained(save_directory, *args, **kwargs)

    def _upload_modified_files(self, working_dir: Any, repo_id: str, *args: Any, **kwargs: Any):
        """As in Transformers; its empty form of a card gives way to a card of ours."""
        card, write = Path(working_dir) / "README.md", type(self).write_card
        if write is not None and card.is_file() and _DRAFT in card.read_text(encoding="utf-8"):
            code = (Path(working_dir) / f"{ENTRY}.py").is_file()
            ours = ModelCard(write(self, repo_id, with_code=code, has_tokenizer=False))
            asked = ModelCard(card.read_text(encoding="utf-8")).data.get("tags") or []
            ours.data["tags"] = list(dict.fromkeys([*(ours.data.get("tags") or []), *asked]))
            ours.save(card)
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    @contextmanager
    def _code_named(self, wanted: bool | None) -> Iterator[None]:
        """The config names the code, or none, while the model is saved."""
        config: Any = self.config
        before = getattr(config, "auto_map", None)
        if wanted is None:
            wanted = before is not None or self.takes_code
        if wanted:
            check_code_can_travel(config)
        config.auto_map = auto_map(config) if wanted else None
        if not wanted:
            del config.auto_map
        try:
            yield
        finally:
            config.auto_map = before
            if before is None:
                del config.auto_map
