"""The one trunk: embeddings and a stack of blocks."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput

from hf_linear_attn.attention.rotary import LRPE
from hf_linear_attn.attention.softmax import check_implementation
from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.hf_internals import capture_outputs
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.layers import LinearAttnBlock, SinusoidalPositions, build_norm
from hf_linear_attn.models.token_layout import packed_segments, padding_mask, token_keywords


class LinearAttnPreTrainedModel(PreTrainedModel):
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
    _can_record_outputs = {"hidden_states": LinearAttnBlock}  # noqa: RUF012

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


class Embeddings(nn.Module):
    """Token, position and type embeddings, norm, dropout."""

    def __init__(self, config: LinearAttnConfig):
        super().__init__()
        self.width = width = config.hidden_size
        self.embed_positions = None
        if config.position_embedding_type == "learned":
            self.embed_positions = nn.Embedding(config.max_position_embeddings, width)
        elif config.position_embedding_type == "sinusoidal":
            self.embed_positions = SinusoidalPositions(width)
        self.embed_types = None
        if config.type_vocab_size:
            self.embed_types = nn.Embedding(config.type_vocab_size, width)
        self.norm = build_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, positions: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Token embeddings (batch, seq, hidden) -> input of the first block."""
        if isinstance(self.embed_positions, SinusoidalPositions):
            # Sines have size 1; the paper scales the embeddings up to them.
            x = x * self.width**0.5
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions).to(x.dtype)
        if self.embed_types is not None:
            types = torch.zeros_like(positions) if token_type_ids is None else token_type_ids
            x = x + self.embed_types(types)
        return self.dropout(self.norm(x))

    def check(self, positions: Tensor, mask: Tensor | None, token_type_ids: Tensor | None) -> None:
        """Refuse positions and types that no table holds.

        Raises:
            ValueError: names the limit.
        """
        if isinstance(self.embed_positions, nn.Embedding):
            limit = self.embed_positions.num_embeddings
            wrong = (positions < 0) | (positions >= limit)
            if mask is not None:
                wrong = wrong & mask
            if any_wrong(wrong, "a position is outside the model's table of positions"):
                found = int(positions.expand_as(wrong)[wrong].max())
                raise ValueError(
                    f"position {found} is outside the model's table of {limit} positions "
                    f"(max_position_embeddings): at most {limit} tokens fit. Shorten the input, or "
                    "use a model with more positions."
                )
        if token_type_ids is not None:
            if token_type_ids.shape[-1] != positions.shape[-1]:
                raise ValueError(
                    f"token_type_ids have shape {tuple(token_type_ids.shape)}; the input has "
                    f"{positions.shape[-1]} tokens a row."
                )
            limit = self.embed_types.num_embeddings if self.embed_types is not None else 1
            wrong = (token_type_ids < 0) | (token_type_ids >= limit)
            if any_wrong(wrong, "token_type_ids are outside type_vocab_size"):
                raise ValueError(
                    f"token_type_ids hold {int(token_type_ids.max())}; this model has "
                    f"type_vocab_size={0 if self.embed_types is None else limit}."
                )


class LinearAttnModel(LinearAttnPreTrainedModel):
    """The trunk as an encoder. Parameters follow the field's commonest names.

    Args:
        config: any variant's config; it is copied and settled, never changed.
    """

    def __init__(self, config: LinearAttnConfig):
        super().__init__(config.settle(is_decoder=False))
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

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        seq_idx: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encode a batch.

        A compiled or exported graph refuses the same values as an eager call, by an assertion of a
        few words, and without the warning about padding. It cannot look whether a mask has pads or
        positions restart, so what is passed is taken to: leave out what holds nothing.

        Args:
            input_ids: int (batch, seq); or inputs_embeds.
            attention_mask: (batch, seq), 1 = real token, any dtype; or 4-D of padding alone.
            position_ids: int (batch or 1, seq); None = counted over real tokens from 0, in every
                document. Without attention_mask, seq_idx and cu_seq_lens_q a position that is not
                above the one before it begins a new document.
            token_type_ids: int (batch, seq).
            inputs_embeds: float (batch, seq, hidden); or input_ids.
            seq_idx: int (batch, seq), the document of each token of packed rows.
            cu_seq_lens_q, cu_seq_lens_k: int (documents + 1,), document boundaries of the batch
                laid end to end; both alike.
            max_length_q, max_length_k: length of the longest document; follows from the
                boundaries and is not needed.
            **kwargs: output_hidden_states, return_dict.

        Raises:
            ValueError: what was given cannot be honoured.
            RuntimeError: the same in a graph; on a GPU a device-side assert.
        """
        _refuse_unknown(kwargs)
        x = self._embed(input_ids, inputs_embeds)
        shape = (x.shape[0], x.shape[1])
        message = "cu_seq_lens_q and cu_seq_lens_k must be alike in an encoder."
        if cu_seq_lens_k is not None and (
            cu_seq_lens_q is None
            or cu_seq_lens_q.shape != cu_seq_lens_k.shape
            or any_wrong(cu_seq_lens_q != cu_seq_lens_k, message)
        ):
            raise ValueError(message)
        mask = padding_mask(attention_mask, *shape)
        # Asked of what was passed: whether a mask holds a pad must not change what restarts mean.
        restarts = attention_mask is None
        segments = packed_segments(position_ids, seq_idx, cu_seq_lens_q, shape, restarts=restarts)
        tokens = token_keywords(mask, position_ids, segments, shape, x.device)
        positions = tokens["query_positions"]
        assert positions is not None
        self._check(input_ids, attention_mask, positions, mask, segments, token_type_ids)
        x = self.embeddings(x, positions, token_type_ids)
        for layer in self.layers:
            x = layer(x, tokens)
        return BaseModelOutput(last_hidden_state=self.norm(x))

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
        self, input_ids, attention_mask, positions: Tensor, mask: Tensor | None,
        segments: Tensor | None, token_type_ids: Tensor | None,
    ) -> None:  # fmt: skip
        """Looks at values; once a forward pass, for all layers."""
        if input_ids is not None and not torch.compiler.is_compiling():
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        self.embeddings.check(positions, mask, token_type_ids)
        # Layers of one name are alike, so one of each is asked.
        for index in {name: i for i, name in enumerate(self.config.attention_names)}.values():
            block = cast(LinearAttnBlock, self.layers[index])
            block.self_attn.mechanism.check_positions(positions, mask, segments)


def _refuse_unknown(kwargs: dict[str, Any]) -> None:
    """Refuse keywords that nothing would read."""
    if kwargs.pop("output_attentions", None):
        raise ValueError(
            "output_attentions=True is not available: linear attention never forms the weights."
        )
    if kwargs.pop("use_cache", None):
        raise ValueError("use_cache=True: an encoder has no cache.")
    known = ["output_hidden_states", "return_dict"]
    for name in kwargs:
        if name not in known:
            hint = did_you_mean(name, [*known, *LinearAttnModel.forward.__annotations__])
            raise ValueError(f"forward got an unknown argument {name!r}.{hint}")
