"""Nyströmformer (Xiong et al. 2021, 2102.03902).

    O = F Z (B V) + DConv(V),    F, Z, B as in `nystrom_attention`

Time O(n·m·d + m³) with m landmarks. Weights F Z B may be negative; their rows sum to about 1.

What differs from the authors' code, and why:

* Landmarks are means over the real tokens of each row, and any length is cut into m segments;
  they average pads and need a length that m divides.
* The pseudo-inverse is scaled by each matrix's own norms; they take the largest of the batch.
* The convolution sees real tokens only.
* With no more tokens than landmarks a row is computed exactly.

There is no causal form: a landmark averages over later tokens too.
"""

from torch import Tensor, nn

from hf_linear_attn.attention.base import Attention, Tokens
from hf_linear_attn.ops.nystrom_attention import nystrom_attention
from hf_linear_attn.ops.operands import accumulation_dtype

_MOST_ITERATIONS = 1000
_LONGEST_KERNEL = 2**16 + 1


class NystromAttention(Attention):
    """Nyström self-attention.

    Args:
        num_landmarks: m.
        pinv_iterations: steps of the pseudo-inverse. More are not better where m < n: stopping
            early regularises.
        conv_kernel_size: odd number of tokens of the depthwise convolution beside the attention
            (one kernel a head); None = no convolution, also in another model's `layer_attention`
            unless its `attention_kwargs` set it. `NystromConfig` has 33.
        num_attention_heads: number of kernels; needed with a convolution.
        rotary, check_inputs: see `Attention`.
    """

    supports_causal = False
    no_causal_reason = (
        "landmarks are means over all tokens of a row, so every output would depend on later ones"
    )
    cache_kind = "full keys"

    def __init__(
        self,
        *,
        num_landmarks: int = 64,
        pinv_iterations: int = 6,
        conv_kernel_size: int | None = None,
        num_attention_heads: int | None = None,
        rotary: nn.Module | None = None,
        check_inputs: bool = True,
    ):
        super().__init__(rotary=rotary, check_inputs=check_inputs)
        sizes = (num_landmarks, pinv_iterations)
        if not all(isinstance(size, int) and size >= 1 for size in sizes):
            raise ValueError(
                "num_landmarks and pinv_iterations must be whole numbers from 1 on; got "
                f"{num_landmarks} and {pinv_iterations}."
            )
        if pinv_iterations > _MOST_ITERATIONS:
            raise ValueError(
                f"pinv_iterations is {pinv_iterations}; it must be {_MOST_ITERATIONS} at most (6 "
                "in the paper)."
            )
        self.num_landmarks, self.pinv_iterations = num_landmarks, pinv_iterations
        self.conv = None
        if conv_kernel_size is not None:
            self.conv = _depthwise(conv_kernel_size, num_attention_heads)
        self.has_parameters = self.conv is not None

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `Attention.attend`."""
        if state is not None:
            raise ValueError("NystromAttention carries no state.")
        weight = None if self.conv is None else self.conv.weight
        return self._mix(query, key, value, tokens, weight), None

    def pair_weights(self, query: Tensor, key: Tensor, tokens: Tokens) -> Tensor:
        """See `Attention.weights`: F Z B, without the convolution."""
        return self._mix(query, key, self._units(query, key), tokens, None)

    def _mix(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, conv_weight: Tensor | None
    ) -> Tensor:
        self._check_self_attention(query, key, tokens)
        if self.rotary is not None:
            dtype = accumulation_dtype(query, key, value)
            query = self.rotary(query.to(dtype), tokens.query_positions)
            key = self.rotary(key.to(dtype), tokens.key_positions)
        out = nystrom_attention(
            query, key, value, num_landmarks=self.num_landmarks,
            pinv_iterations=self.pinv_iterations, conv_weight=conv_weight,
            key_mask=tokens.key_mask, segments=tokens.key_segments,
        )  # fmt: skip
        return out.to(value.dtype)


def _depthwise(size: int, heads: int | None) -> nn.Conv2d:
    if size % 2 == 0 or not 1 <= size <= _LONGEST_KERNEL:
        raise ValueError(
            f"conv_kernel_size is {size}; it must be an odd number of tokens (33 in the paper's "
            f"pretraining), {_LONGEST_KERNEL} at most, or None for no convolution."
        )
    if heads is None:
        raise ValueError("conv_kernel_size needs num_attention_heads: there is a kernel a head.")
    return nn.Conv2d(heads, heads, (size, 1), padding=(size // 2, 0), groups=heads, bias=False)
