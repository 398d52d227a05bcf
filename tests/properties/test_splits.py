"""A sequence cut anywhere, with the state carried over, is the whole: output, state, gradients."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import relative_error
from tests.properties.attention_cases import CAUSAL, cases
from tests.properties.examples import examples
from tests.reference import real_positions

SMALL = 0.05  # see `test_parity`


def in_parts(mechanism, tensors, mask, positions, edges):
    """Outputs of the parts, joined, and the state after the last one."""
    state, parts = None, []
    for start, stop in itertools.pairwise(edges):
        q, k, v = (x[:, :, start:stop] for x in tensors)
        keywords = {"query_positions": positions[:, start:stop], "state": state}
        first = start
        if mechanism.cache_kind == "full keys":
            first = 0
            k, v = (x[:, :, :stop] for x in tensors[1:])
            keywords = {
                "query_positions": positions[:, start:stop], "key_positions": positions[:, :stop],
            }  # fmt: skip
        keywords["key_mask"] = None if mask is None else mask[:, first:stop]
        out, state = mechanism(q, k, v, causal=True, **keywords)
        parts.append(out)
    return torch.cat(parts, 2), state


@examples(250)
@given(
    case=cases(names=CAUSAL, causal=True, rotary=True, documents=False),
    cuts=st.lists(st.integers(1, 79), max_size=6),
)
def test_any_split_equals_the_whole(case, cuts):
    tensors, (mask, _, positions) = case.tensors(), case.tokens()
    mechanism = case.build()
    if positions is None:
        positions = real_positions(case.length, key_mask=mask)
    whole, final = mechanism(
        *tensors, causal=True, key_mask=mask, query_positions=positions,
    )  # fmt: skip
    edges = [0, *sorted({cut for cut in cuts if cut < case.length}), case.length]
    joined, state = in_parts(mechanism, tensors, mask, positions, edges)
    real = 1 if mask is None else mask[:, None, :, None]
    outputs = [(joined * real, whole * real)]
    if final is not None:
        outputs.append((state, final))
    scale = SMALL * tensors[2].detach().norm()
    for a, b in outputs:
        assert relative_error(a, b, scale) <= 1e-10
    # What is done with the state later gives gradients, too.
    upstream = [torch.randn_like(b) for _, b in outputs]
    found, wanted = (
        torch.autograd.grad([pair[i] for pair in outputs], tensors, upstream) for i in (0, 1)
    )
    scale = SMALL * torch.stack([x.norm() for x in (*wanted, upstream[0])]).norm()
    for side, a, b in zip("qkv", found, wanted, strict=True):
        assert relative_error(a, b, scale) <= 1e-10, f"gradient of {side}"
