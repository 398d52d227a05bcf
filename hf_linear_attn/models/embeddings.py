"""Input of the first block: token, position and type embeddings."""

import torch
from torch import Tensor, nn

from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.layers import SinusoidalPositions, build_norm


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
