"""Transformers' `generate`, with what it would get wrong in silence refused before it begins."""

from typing import Any, cast

from torch import Tensor
from transformers import Cache, GenerationConfig, GenerationMixin


class CheckedGenerationMixin(GenerationMixin):
    """`GenerationMixin` that looks at prompt and cache first; Transformers knows it by its name."""

    def _prefill(
        self, input_ids: Any, generation_config: GenerationConfig, model_kwargs: dict[str, Any],
        is_first_iteration: bool = True,
    ) -> Any:  # fmt: skip
        embeds = model_kwargs.get("inputs_embeds") if is_first_iteration else None
        _check_prompt(input_ids, embeds, model_kwargs, generation_config)
        # Not a public name: the tests see whether Transformers still calls it.
        above = cast(Any, super())
        return above._prefill(input_ids, generation_config, model_kwargs, is_first_iteration)

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Refused; `generate_batch` begins here, too.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "continuous batching keeps keys and values in pages, and these models keep states of "
            "their own. Use generate with all prompts, padded on the left, and attention_mask."
        )


def _check_prompt(
    input_ids: Tensor, embeds: Tensor | None, model_kwargs: dict[str, Any],
    generation_config: GenerationConfig,
) -> None:  # fmt: skip
    """Refuse a prompt that ends before the cache does, and pieces of embeddings.

    Raises:
        ValueError: says what to pass.
    """
    if embeds is not None and generation_config.prefill_chunk_size is not None:
        raise ValueError(
            "prefill_chunk_size cuts input_ids, not inputs_embeds; pass one of them, or feed the "
            "embeddings in pieces yourself: model(inputs_embeds=…, cache=cache)."
        )
    cache = model_kwargs.get("cache")
    past = 0 if cache is None else cache.get_seq_length()
    mask = model_kwargs.get("attention_mask")
    masked = getattr(generation_config, "_mask_length", -1) if mask is None else mask.shape[1]
    given = input_ids.shape[1] if embeds is None else embeds.shape[1]
    # A mask longer than the ids says that they are the new tokens alone.
    whole = embeds is not None or masked == given
    if past and whole and given <= past:
        name = "input_ids" if embeds is None else "inputs_embeds"
        raise ValueError(
            f"the cache holds {past} tokens, {name} {given}: to go on from a cache pass all its "
            "tokens and at least one more. Use a copy of the cache (copy.deepcopy) from before the "
            "last token, if the prompt is the one it was filled with."
        )


def check_virtual_tokens(model: Any, cache: Cache | None, inputs_embeds: Tensor | None) -> None:
    """Refuse what PEFT's prompt tuning makes of a step of `generate` with a cache.

    PEFT 0.21 looks for the cache by an older name. It finds none, takes every step for the first
    one and puts its virtual tokens before each new token again: the text would be another model's.

    Args:
        model: the causal LM, whose `prepare_inputs_for_generation` is PEFT's while it generates.
        cache, inputs_embeds: what its forward was given.

    Raises:
        ValueError: says what to pass.
    """
    if cache is None or inputs_embeds is None or not cache.get_seq_length():
        return
    preparing = getattr(model.prepare_inputs_for_generation, "__self__", model)
    config = None if preparing is model else getattr(preparing, "active_peft_config", None)
    if config is not None and config.is_prompt_learning:
        raise ValueError(
            "PEFT puts its virtual tokens into the cache again with every new token. Generate with "
            "use_cache=False, which is right."
        )
