"""The linear-attention operator in compiled and exported graphs: what eager gives, at any length.

Graphs are traced with "aot_eager"; the test that lets Inductor write code around is slow.
"""

import pytest
import torch
import torch._inductor.config
from torch.autograd import forward_ad

import hf_linear_attn as hla
from hf_linear_attn.ops import linear_attention
from hf_linear_attn.ops.linear_attention_op import (
    linear_attention_backward_op,
    linear_attention_op,
)
from tests.errors import relative_error

# A compiler takes equal sizes for one size, so all differ.
B, H, G, D, DV, CHUNK = 3, 4, 2, 6, 7, 16

# Each call has what another lacks; none may fall back on another's shapes.
CALLS = {
    "bidirectional": {"causal": False},
    "bidirectional, no normaliser": {"causal": False, "normalize": False},
    "padding": {"causal": False, "key_mask": True},
    "angles and padding": {"causal": False, "q_angles": True, "k_angles": True, "key_mask": True},
    "packed": {"causal": False, "segments": True, "key_mask": True},
    "causal": {"causal": True, "key_mask": True},
    "causal, packed": {"causal": True, "segments": True},
    "causal, angles, state": {"causal": True, "q_angles": True, "k_angles": True, "state": True},
    "causal, no normaliser, state": {"causal": True, "normalize": False, "state": True},
    "states again": {"causal": True, "state": True, "recompute_states": True},
}


@pytest.fixture(autouse=True)
def forget_graphs():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture(params=list(CALLS))
def call(request):
    return CALLS[request.param]


def draw(length, call, dtype=torch.float32, batch=B):
    """Leaves that need gradients, and the other keywords of a call."""
    leaves = {
        # Laid out as projections leave them: heads behind the sequence.
        name: torch.randn(batch, length, heads, width).to(dtype).transpose(1, 2)
        for name, heads, width in (("q", H, D), ("k", G, D), ("v", G, DV))
    }
    others = {"feature_map": "elu_plus_one", "chunk_size": CHUNK, **call}
    if others.pop("state", False):
        features = 2 * D if "q_angles" in call else D
        # Positive, as sums of features are: the last column divides.
        leaves["state"] = torch.rand(batch, G, features, DV + call.get("normalize", True))
    for name in ("q_angles", "k_angles"):
        if name in call:
            others[name] = torch.arange(length)[None] / (2 * length)
    if "key_mask" in call:
        others["key_mask"] = torch.arange(length).expand(batch, -1) >= length // 3
        others["key_mask"] = torch.cat((others["key_mask"][:1], others["key_mask"][1:].flip(1)))
    if "segments" in call:
        others["segments"] = (torch.arange(length) * 3 // length).expand(batch, -1)
    return {name: x.requires_grad_() for name, x in leaves.items()}, others


def gradients(function, leaves, others):
    """Outputs, and the gradients of a function of all of them."""
    outputs = [x for x in function(**leaves, **others) if x is not None]
    torch.manual_seed(1)
    loss = sum((x.float() * torch.randn(x.shape)).sum() for x in outputs)
    return [*outputs, *torch.autograd.grad(loss, list(leaves.values()))]


def check_alike(found, expected, tolerance=1e-6):
    assert [x.shape for x in found] == [x.shape for x in expected]
    assert [x.dtype for x in found] == [x.dtype for x in expected]
    for a, b in zip(found, expected, strict=True):
        assert relative_error(a, b) <= tolerance


def arguments(length, call, dtype=torch.float32):
    """The positional arguments of the operator."""
    leaves, others = draw(length, call, dtype)
    tensors = ("q", "k", "v", "state", "q_angles", "k_angles", "key_mask", "segments")
    found = {**leaves, **others}
    return (
        *(found.get(name) for name in tensors), "elu_plus_one", call["causal"],
        call.get("normalize", True), CHUNK, 1e-6, not call.get("recompute_states", False), None,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 16, 37])
def test_operators_keep_the_rules_of_operators(call, length, dtype):
    args = arguments(length, call, dtype)
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    torch.library.opcheck(linear_attention_op, args, test_utils=tests)
    with torch.no_grad():
        out, final, total, rest, states = linear_attention_op(*args)
    normalize, save = args[10], args[13]
    found = (
        total if normalize else None,
        rest if normalize and dtype == torch.bfloat16 else None,
        states if save else None,
    )
    grads = torch.randn_like(out), torch.randn_like(final) if call["causal"] else None
    args = [x.detach() if torch.is_tensor(x) else x for x in args[:13]]
    torch.library.opcheck(
        linear_attention_backward_op, (*grads, out, *found, *args, None), test_utils=tests
    )


def layouts():
    wide = torch.randn(B, 37, 2 * H, D).transpose(1, 2)
    yield "slices of one tensor", wide[:, :H], wide[:, H : H + G], wide[:, -G:]
    yield "one key head", wide[:, :H], *(wide[:, :1].expand(-1, G, -1, -1) for _ in "kv")
    yield "every other column", *(torch.randn(B, n, 37, 2 * D)[..., ::2] for n in (H, G, G))
    yield "tokens inside", *(torch.randn(B, n, D, 37).mT for n in (H, G, G))
    yield "heads inside", *(torch.randn(B, 37, D, n).permute(0, 3, 1, 2) for n in (H, G, G))


FIRST, *OTHERS = layouts()


@pytest.mark.parametrize(
    "layout",
    [FIRST, *(pytest.param(layout, marks=pytest.mark.slow) for layout in OTHERS)],
    ids=lambda layout: layout[0],
)
def test_operators_keep_the_rules_for_any_layout(layout):
    q, k, v = (x.detach().requires_grad_() for x in layout[1:])
    args = (q, k, v, *[None] * 5, "relu", True, True, CHUNK, 1e-6, True, None)
    # The last of the checks goes through the gradients.
    torch.library.opcheck(linear_attention_op, args)


def check_compiled(call, dtype=torch.float32, sizes=((3, 64), (3, 65), (5, 50)), graphs=1):
    compiled = torch.compile(linear_attention, backend="aot_eager", fullgraph=True, dynamic=True)
    for batch, length in sizes:
        leaves, others = draw(length, call, dtype, batch)
        expected = gradients(linear_attention, leaves, others)
        check_alike(gradients(compiled, leaves, others), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs


def test_b46_one_graph_for_every_length(call):
    check_compiled(call)


@pytest.mark.parametrize("name", ["angles and padding", "causal"])
def test_b46_sixteen_bits_in_a_graph(name):
    check_compiled(CALLS[name], torch.bfloat16)


def test_b46_one_chunk_and_one_token_in_a_graph():
    # Sizes of 1 are facts to a compiler: one chunk and one token have a graph each.
    check_compiled(
        CALLS["causal, angles, state"], sizes=((3, 50), (3, 9), (3, 16), (3, 1)), graphs=3
    )


@pytest.mark.parametrize("used", [0, 1])
def test_gradient_of_one_output_alone(used):
    leaves, others = draw(37, CALLS["causal, angles, state"])

    def one(**keywords):
        return (linear_attention(**keywords)[used],)

    compiled = torch.compile(one, backend="aot_eager", fullgraph=True)

    def found(function):
        (x,) = function(**leaves, **others)
        return [
            g for g in torch.autograd.grad(x.square().sum(), leaves.values(), allow_unused=True)
            if g is not None and g.any()
        ]  # fmt: skip

    check_alike(found(compiled), found(one))


def test_autocast_does_not_reach_the_sums_of_a_graph():
    leaves, others = draw(300, CALLS["causal"], torch.bfloat16)
    compiled = torch.compile(linear_attention, backend="aot_eager", fullgraph=True)
    expected = gradients(linear_attention, leaves, others)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check_alike(gradients(compiled, leaves, others), expected)


def test_autocast_does_not_reach_the_sums_of_the_operator():
    # An exported graph meets the regions of whoever runs it.
    args = arguments(300, CALLS["causal"])
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            out = linear_attention_op(*args)[0]
            found.append([out, *torch.autograd.grad(out.square().sum(), args[:3])])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
# Code that Inductor kept of an older operator knows other shapes.
@torch._inductor.config.patch(force_disable_caches=True)
def test_b46_code_written_by_inductor_around_the_operator():
    def block(x, w):
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in (x @ w).chunk(3, dim=-1))
        out, _ = linear_attention(q, k * 2, v, causal=True, chunk_size=CHUNK)
        return (out.transpose(1, 2).flatten(2) + 1,)

    compiled = torch.compile(block, fullgraph=True, dynamic=True)
    for length in (37, 64, 1):
        leaves = {"x": torch.randn(3, length, 10), "w": torch.randn(10, 24)}
        leaves = {name: x.requires_grad_() for name, x in leaves.items()}
        check_alike(gradients(compiled, leaves, {}), gradients(block, leaves, {}))


class Causal(torch.nn.Module):
    def forward(self, q, k, v, state):
        return linear_attention(q, k, v, state=state, causal=True, chunk_size=CHUNK)


@pytest.mark.parametrize("strict", [False, True])
def test_exported_with_a_state_at_other_lengths(strict, tmp_path):
    call = {"causal": True, "state": True}
    leaves, _ = draw(37, call)
    seq, batch = torch.export.Dim("seq"), torch.export.Dim("batch")
    tokens = {0: batch, 2: seq}
    program = torch.export.export(
        Causal(), (), leaves, strict=strict,
        dynamic_shapes={"q": tokens, "k": tokens, "v": tokens, "state": {0: batch}},
    )  # fmt: skip
    torch.export.save(program, tmp_path / "causal.pt2")
    loaded = torch.export.load(tmp_path / "causal.pt2").module()
    for length in (1, 7, 16, 100):
        leaves, _ = draw(length, call, batch=5)
        check_alike(gradients(loaded, leaves, {}), gradients(Causal(), leaves, {}))


def test_an_exported_graph_keeps_no_states():
    leaves, _ = draw(37, {"causal": True, "state": True})
    program = torch.export.export(Causal(), (), leaves)
    node = next(n for n in program.graph.nodes if "linear_attention" in str(n.target))
    assert node.meta["val"][4].shape == (0,)


def test_a_compiled_graph_follows_the_backend(monkeypatch):
    leaves, others = draw(9, CALLS["causal"])
    compiled = torch.compile(linear_attention, backend="aot_eager", fullgraph=True)
    before, _ = compiled(**leaves, **others)
    with (
        hla.use_backend("triton"),
        pytest.raises(ValueError, match=r"not for the device 'cpu'|Triton is not installed"),
    ):
        compiled(**leaves, **others)
    with monkeypatch.context() as patch:
        patch.setenv("HF_LINEAR_ATTN_BACKEND", "cuda")
        with pytest.raises(ValueError, match="HF_LINEAR_ATTN_BACKEND is 'cuda'"):
            compiled(**leaves, **others)
    with pytest.raises(ValueError, match=r"not for the device 'cpu'|Triton is not installed"):
        compiled(**leaves, **others, backend="triton")
    assert torch.equal(compiled(**leaves, **others)[0], before)


def test_states_that_a_graph_kept_are_read_by_who_made_them():
    leaves, others = draw(37, CALLS["causal, angles, state"])
    expected = gradients(linear_attention, leaves, others)[2:]
    compiled = torch.compile(linear_attention, backend="aot_eager", fullgraph=True)
    outputs = compiled(**leaves, **others)
    torch.manual_seed(1)
    goal = sum((x * torch.randn(x.shape)).sum() for x in outputs)
    with hla.use_backend("triton"):
        found = torch.autograd.grad(goal, list(leaves.values()))
    check_alike(found, expected)


def loss(q, k, v):
    return linear_attention(q, k, v, causal=False)[0].square().sum()


def dual(function):
    def call(q, k, v):
        with forward_ad.dual_level():
            return function(forward_ad.make_dual(q, q), k, v)

    return call


TRANSFORMS = {
    "grad": torch.func.grad(loss),
    "jvp": lambda q, k, v: torch.func.jvp(loss, (q, k, v), (q, k, v)),
    "dual": dual(loss),
}


@pytest.mark.parametrize("chosen", [("q", "k", "v"), ("q",), ("k", "v", "key_mask"), ("q_angles",)])
def test_vmap_is_one_call_after_another(chosen):
    leaves, others = draw(9, CALLS["angles and padding"])
    plain = {**leaves, **others}
    for name in ("q_angles", "k_angles"):
        plain[name] = plain[name][:1]
    tensors = {name: x for name, x in plain.items() if isinstance(x, torch.Tensor)}
    rest = {name: x for name, x in plain.items() if name not in tensors}
    many = {name: torch.stack([tensors[name].roll(i, -1) for i in range(3)], 1) for name in chosen}
    if "q_angles" in chosen:
        many["k_angles"] = many["q_angles"]

    def call(mapped):
        return linear_attention(**{**tensors, **mapped}, **rest)[0]

    found = torch.func.vmap(call, in_dims=(dict.fromkeys(many, 1),))(many)
    wanted = torch.stack([call({name: x[:, i] for name, x in many.items()}) for i in range(3)])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    grads = [
        torch.autograd.grad(out.square().sum(), leaves["q"], retain_graph=True)[0]
        for out in (found, wanted)
    ]
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mapped", ["q", "key_mask", "segments", "angles"])
@pytest.mark.parametrize("causal", [True, False])
def test_vmap_of_single_rows_shares_what_is_not_mapped(mapped, causal):
    size, n = 3, 12
    whole = {name: torch.randn(size, 1, 2, n, 4) for name in "qkv"} | {
        "key_mask": torch.rand(size, 1, n) < 0.7,
        "segments": (torch.rand(size, 1, n) < 0.3).long().cumsum(-1),
        "angles": torch.rand(size, 1, n),
    }
    names = ("q", "k", "v") if mapped == "q" else ("q", "k", "v", mapped)

    def call(angles, **tensors):
        return linear_attention(
            **tensors, q_angles=angles, k_angles=angles, causal=causal, feature_map="relu"
        )[0]

    many = {name: x if name in names else x[0] for name, x in whole.items()}
    dims = {name: 0 if name in names else None for name in whole}
    found = torch.func.vmap(lambda x: call(**x), in_dims=(dims,))(many)
    for i in range(size):
        one = {name: x[i] if name in names else x for name, x in many.items()}
        assert relative_error(found[i], call(**one)) <= 1e-6


def test_vmap_carries_states():
    leaves, others = draw(9, CALLS["causal, angles, state"])
    q = torch.stack([leaves["q"], leaves["q"].flip(-1)])

    def call(q):
        return linear_attention(**{**leaves, "q": q}, **others)

    out, state = torch.func.vmap(call)(q)
    for i in range(2):
        wanted, last = call(q[i])
        torch.testing.assert_close(out[i], wanted, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(state[i], last, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_other_derivatives_are_refused(name):
    shape = (2, 2, 9, 4)
    function = TRANSFORMS[name]
    for attempt in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
        with pytest.raises(RuntimeError, match="reverse-mode gradients only"):
            attempt(*(torch.randn(shape) for _ in range(3)))


def test_a_graph_compiled_before_refuses_dual_numbers():
    tensors = [torch.randn(2, 2, 9, 4)] * 3
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    compiled(*tensors)
    with pytest.raises(RuntimeError, match="reverse-mode gradients only"):
        dual(compiled)(*tensors)


def test_second_derivatives_are_refused():
    """Also where autograd would take the first ones for constants: those of a sum."""
    leaves, others = draw(9, CALLS["causal"])
    for reduce in (torch.sum, lambda x: x.square().sum()):
        out, _ = linear_attention(**leaves, **others)
        with pytest.raises(RuntimeError, match="first derivatives only"):
            torch.autograd.grad(reduce(out), leaves["q"], create_graph=True)
    mapped = torch.func.vmap(lambda q, k, v: linear_attention(q, k, v, causal=True)[0])
    rows = [torch.rand(2, 1, 1, 5, 4, requires_grad=True) for _ in range(3)]
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(mapped(*rows).sum(), rows, create_graph=True)
    compiled = torch.compile(linear_attention, backend="aot_eager", fullgraph=True)
    out, _ = compiled(**leaves, **others)
    (first,) = torch.autograd.grad(out.square().sum(), leaves["q"], create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.square().sum().backward()
