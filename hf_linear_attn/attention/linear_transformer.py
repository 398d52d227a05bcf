"""Linear Transformer (Katharopoulos et al. 2020, "Transformers are RNNs", eq. 4-7).

    o_i = φ(q_i) Σ_j φ(k_j)ᵀ v_j / φ(q_i)·Σ_j φ(k_j),    φ(x) = elu(x) + 1

Time O(n·d·d_v), state d·d_v + d numbers a head. No scale 1/√d: the paper has none. The authors'
code adds its ε to the denominator; here ε bounds it from below, so a well-scaled row is exact.
"""

from hf_linear_attn.attention.kernelized import KernelizedAttention


class LinearTransformerAttention(KernelizedAttention):
    """Linear attention with φ(x) = elu(x) + 1; see `KernelizedAttention` for the arguments."""

    feature_maps = ("elu_plus_one",)
