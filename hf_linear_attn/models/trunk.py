"""The one trunk: embeddings and a stack of blocks."""

from collections.abc import Iterable
from typing import Any, TypedDict, Unpack, cast

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils import logging

from hf_linear_attn.attention.rotary import LRPE
from hf_linear_attn.attention.softmax import check_implementation
from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.hf_internals import capture_outputs, deprecate_kwarg
from hf_linear_attn.models.cache_step import CacheStep, fit_cache, seen_tokens
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.embeddings import Embeddings
from hf_linear_attn.models.layers import LinearAttnBlock, SelfAttention, build_norm
from hf_linear_attn.models.saved_weights import check_shards, readable_weights
from hf_linear_attn.models.token_layout import packed_segments, padding_mask, token_keywords
from hf_linear_attn.models.with_code import ModelWithCode

logger = logging.get_logger(__name__)


class LinearAttnPreTrainedModel(ModelWithCode):
    """What all our models share with Transformers."""

    config_class = LinearAttnConfig
    config: LinearAttnConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["LinearAttnBlock"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = False
    # Learned frequencies are multiplied by positions: 16 bits are not enough for them.
    _keep_in_fp32_modules_strict = ["rotary"]  # noqa: RUF012
    _can_record_outputs = {"hidden_states": LinearAttnBlock, "attentions": SelfAttention}  # noqa: RUF012

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *model_args: Any, config: Any = None, **kwargs: Any
    ) -> Any:
        """As in Transformers; a checkpoint of another architecture or variant is converted.

        RoBERTa, BERT, DistilBERT, GPT-2 and Llama-type checkpoints go through an explicit weight
        map: what is set in `config` or in keywords holds, the rest follows the checkpoint. The
        model's `conversion_report` lists every tensor.

        Raises:
            ValueError: an architecture without a weight map, a checkpoint that does not fit, or
                files of weights that are damaged or lie outside of the folder.
        """
        from hf_linear_attn.models.foreign import foreign_source, load_foreign

        path = pretrained_model_name_or_path
        check_shards(path)
        found = foreign_source(path, cls, kwargs)
        if found is not None:
            return load_foreign(cls, path, found, config, kwargs)
        with readable_weights(path):
            return super().from_pretrained(path, *model_args, config=config, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LRPE):
            init.copy_(module.theta, module.initial_theta())
            init.copy_(module.reflection, module.random_reflection())

    def _check_and_adjust_attn_implementation(
        self, attn_implementation: str | None, *args: Any, **kwargs: Any
    ) -> str:
        """Refuse what our softmax layers cannot run before Transformers looks for a substitute."""
        if attn_implementation is not None:
            check_implementation(attn_implementation)
            explicit = attn_implementation == "flash_attention_2"
            if explicit and "softmax" not in self.config.attention_names:
                raise ValueError(
                    f"attn_implementation={attn_implementation!r} concerns softmax layers, and "
                    f"this {type(self).__name__} has none; leave it out."
                )
        return super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)


class OutputKeywords(TypedDict, total=False):
    """What a call may ask for beside its output; Transformers looks here, too."""

    output_attentions: bool
    output_hidden_states: bool | list[int]
    return_dict: bool


class TrunkKeywords(OutputKeywords, total=False):
    """What a call of a head may ask for, and the documents of packed rows."""

    seq_idx: Tensor | None
    cu_seq_lens_q: Tensor | None
    cu_seq_lens_k: Tensor | None
    max_length_q: int | None
    max_length_k: int | None


class LinearAttnModel(LinearAttnPreTrainedModel):
    """The trunk without a head. Parameters follow the field's commonest names.

    Args:
        config: any variant's config; it is copied and settled, never changed. With is_decoder=True
            attention is causal, otherwise this is an encoder.
    """

    def __init__(self, config: LinearAttnConfig):
        super().__init__(config.settle())
        config = self.config
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(
            LinearAttnBlock(config, i) for i in range(config.num_hidden_layers)
        )
        self.norm = build_norm(config) if config.final_norm else nn.Identity()
        self.gradient_checkpointing = False
        self.post_init()

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        seq_idx: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        **kwargs: Unpack[OutputKeywords],
    ) -> BaseModelOutputWithPast:
        """Run a batch through the trunk.

        A compiled or exported graph refuses the same values as an eager call, by an assertion of a
        few words, and without the warning about padding. It cannot look whether a mask has pads or
        positions restart, so what is passed is taken to: leave out what holds nothing.

        Args:
            input_ids: int (batch, seq); or inputs_embeds.
            attention_mask: (batch, seq), 1 = real token, any dtype; or 4-D of padding alone, in a
                decoder of padding × causality. With a cache it covers the tokens in it, too:
                (batch, past + seq); None = no new token is padding.
            position_ids: int (batch or 1, seq); None = counted over real tokens from 0, in every
                document, or on from those in the cache. Without attention_mask, cache, seq_idx and
                cu_seq_lens_q a position that is not above the one before it begins a new document.
            token_type_ids: int (batch, seq).
            inputs_embeds: float (batch, seq, hidden); or input_ids.
            cache: what an earlier call returned for the tokens before these, or an empty one; it
                takes up the new tokens. Decoders only.
            use_cache: return a cache; None = if one is given, else config.use_cache outside
                training and without packed documents.
            seq_idx: int (batch, seq), the document of each token of packed rows.
            cu_seq_lens_q, cu_seq_lens_k: int (documents + 1,), document boundaries of the batch
                laid end to end; both alike.
            max_length_q, max_length_k: length of the longest document; follows from the
                boundaries and is not needed.
            **kwargs: output_hidden_states, return_dict, and output_attentions: explicit weights of
                each layer (batch, heads, seq, seq), see `Attention.weights`. Quadratic; not with
                tokens in the cache, of which no keys may be left.

        Raises:
            ValueError: what was given cannot be honoured.
            RuntimeError: the same in a graph; on a GPU a device-side assert.
        """
        explicit = bool(kwargs.pop("output_attentions", False))
        _refuse_unknown(kwargs)
        x = self._embed(input_ids, inputs_embeds)
        shape = (x.shape[0], x.shape[1])
        mask, segments = self.padding_and_documents(
            shape, attention_mask, position_ids, seq_idx, cu_seq_lens_q, cu_seq_lens_k, cache
        )
        cache = self._cache(cache, use_cache, segments)
        seen = seen_tokens(cache)
        tokens = token_keywords(
            mask, position_ids, segments, shape, x.device,
            first=None if seen is None else seen.next_position,
        )  # fmt: skip
        if explicit and seen is not None:
            raise ValueError(
                "output_attentions=True, but the cache holds tokens already: their keys are summed "
                "up in a state. Give all tokens in one call, in generate with use_cache=False."
            )
        positions = tokens["query_positions"]
        assert positions is not None
        if input_ids is not None and seen is None and not torch.compiler.is_compiling():
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        self._check(positions, mask, segments, token_type_ids)
        x = self.embeddings(x, positions, token_type_ids)
        step = None if cache is None else CacheStep(cache, mask, positions, shape[0])
        if position_ids is None and seen is None:
            # A mechanism that counts for itself knows that nothing is missing.
            tokens["query_positions"] = None
        for layer in self.layers:
            x = layer(x, tokens, cache=step, output_attentions=explicit)
        if step is not None:
            step.close()
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x), cache=cache)

    def padding_and_documents(
        self, shape: tuple[int, int], attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None, seq_idx: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None, cu_seq_lens_k: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
        """Which new tokens are real, bool (batch, seq), and the document of each; None = all, one.

        Args:
            shape: (batch, seq) of the input.
            attention_mask, position_ids, seq_idx, cu_seq_lens_q, cu_seq_lens_k, cache: as in
                `forward`.

        Raises:
            ValueError: what was given does not fit the input or the cache.
        """
        message = "cu_seq_lens_q and cu_seq_lens_k must be alike: keys are queries here."
        if cu_seq_lens_k is not None and (
            cu_seq_lens_q is None
            or cu_seq_lens_q.shape != cu_seq_lens_k.shape
            or any_wrong(cu_seq_lens_q != cu_seq_lens_k, message)
        ):
            raise ValueError(message)
        if cache is not None:
            self._check_decoder()
            fit_cache(cache, self.config, shape[0], self.embed_tokens.weight.device)
        seen = seen_tokens(cache)
        mask = padding_mask(
            attention_mask, *shape, causal=bool(self.config.is_decoder),
            past=0 if seen is None or cache is None else cache.get_seq_length(),
            real_tokens=None if seen is None else seen.real_tokens,
        )  # fmt: skip
        # Asked of what was passed: whether a mask holds a pad must not change what restarts mean.
        restarts = attention_mask is None and cache is None
        segments = packed_segments(position_ids, seq_idx, cu_seq_lens_q, shape, restarts=restarts)
        return mask, segments

    def _check_decoder(self) -> None:
        if not self.config.is_decoder:
            raise ValueError(
                "this model is an encoder and has no cache; leave cache and use_cache out, or use "
                "a causal LM (is_decoder=True)."
            )

    def _cache(
        self, cache: Cache | None, use_cache: bool | None, segments: Tensor | None
    ) -> Cache | None:
        """The cache this call fills, or None."""
        if use_cache:
            self._check_decoder()
        if not self.config.is_decoder:
            return None
        if cache is not None and use_cache is False:
            raise ValueError("a cache was given with use_cache=False; leave one of them out.")
        replayed = self.gradient_checkpointing and self.training and torch.is_grad_enabled()
        if replayed:
            # The backward pass runs the layers again, which would fill a cache twice.
            if seen_tokens(cache) is not None:
                raise ValueError(
                    "gradient checkpointing cannot continue from a cache; call "
                    "activation_checkpointing_disable(), or give all tokens at once."
                )
            if use_cache or cache is not None:
                logger.warning_once("no cache is kept under gradient checkpointing.")
            return None
        wanted = cache is not None or use_cache
        if segments is not None and wanted:
            raise ValueError(
                "a cache holds one document a row and cannot take packed documents; leave out "
                "cache and use_cache, or seq_idx, cu_seq_lens_q and restarts of position_ids."
            )
        # A cache cannot leave an exported graph.
        exporting = torch.compiler.is_exporting()
        if use_cache is None and segments is None and not self.training and not exporting:
            wanted = wanted or self.config.use_cache
        return DynamicCache(config=self.config) if wanted and cache is None else cache

    def _embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds.")
        if inputs_embeds is None:
            assert input_ids is not None
            if input_ids.ndim != 2 or 0 in input_ids.shape:
                raise ValueError(
                    "input_ids must be (batch, seq) with a token at least; got shape "
                    f"{tuple(input_ids.shape)}."
                )
            return self.embed_tokens(input_ids)
        width = self.config.hidden_size
        if inputs_embeds.ndim != 3 or inputs_embeds.shape[-1] != width or 0 in inputs_embeds.shape:
            raise ValueError(
                f"inputs_embeds must be (batch, seq, {width}) with a token at least; got shape "
                f"{tuple(inputs_embeds.shape)}."
            )
        return inputs_embeds

    def _check(
        self, positions: Tensor, mask: Tensor | None, segments: Tensor | None,
        token_type_ids: Tensor | None,
    ) -> None:  # fmt: skip
        """Looks at values; once a forward pass, for all layers."""
        negative = positions < 0
        if any_wrong(negative if mask is None else negative & mask, "a position is negative"):
            raise ValueError(
                f"position {int(positions.min())} is negative; positions of real tokens count "
                "from 0. Leave position_ids out to have them counted."
            )
        self.embeddings.check(positions, mask, token_type_ids)
        # Layers of one name are alike, so one of each is asked.
        for index in {name: i for i, name in enumerate(self.config.attention_names)}.values():
            block = cast(LinearAttnBlock, self.layers[index])
            block.self_attn.mechanism.check_positions(positions, mask, segments)


def _refuse_unknown(names: Iterable[str]) -> None:
    """Refuse keywords that nothing would read."""
    known = OutputKeywords.__annotations__
    for name in names:
        if name not in known:
            hint = did_you_mean(name, [*known, *LinearAttnModel.forward.__annotations__])
            raise ValueError(f"forward got an unknown argument {name!r}.{hint}")
