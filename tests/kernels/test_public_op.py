"""The public op on Triton: eager, in graphs, under transforms; refused where there is no kernel."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

pytest.importorskip("triton")

import hf_linear_attn as hla
from hf_linear_attn.kernels import decode, passes
from hf_linear_attn.ops import FEATURE_MAPS, linear_attention
from hf_linear_attn.ops.feature_maps import FeatureMap
from hf_linear_attn.ops.linear_attention_op import (
    keeps_states,
    linear_attention_backward_op,
    linear_attention_op,
)
from tests.errors import relative_error
from tests.kernels import formula
from tests.kernels.calls import TOLERANCE, Call, wide

pytestmark = pytest.mark.kernels

NAMES = ("q", "k", "v", "state", "q_angles", "k_angles", "key_mask", "segments")


@pytest.fixture
def ran(monkeypatch):
    """Names of the kernels' passes that ran, in order."""
    names = []
    for module, name in ((passes, "forward_pass"), (passes, "backward_pass"), (decode, "decode")):
        run = getattr(module, name)

        def spied(*arguments, _run=run, _name=name):
            names.append(_name)
            return _run(*arguments)

        monkeypatch.setattr(module, name, spied)
    return names


def arguments(call, x):
    """Leaves that need gradients, and the other keywords of the public op."""
    keywords = {name: t for name, t in zip(NAMES, x, strict=True) if t is not None}
    leaves = {name: keywords.pop(name) for name in NAMES[:4] if name in keywords}
    for name in ("q", "k", "v"):
        # Laid out as projections leave them: heads behind the sequence.
        leaves[name] = leaves[name].transpose(1, 2).contiguous().transpose(1, 2)
    leaves = {name: t.detach().requires_grad_() for name, t in leaves.items()}
    keywords |= {
        "causal": call.causal, "feature_map": call.feature_map, "normalize": call.normalize
    }  # fmt: skip
    return leaves, keywords


def gradients(function, leaves, keywords):
    """Outputs of a function, and the gradients of a function of all of them."""
    outputs = [x for x in function(**leaves, **keywords) if x is not None]
    torch.manual_seed(1)
    loss = sum((x.float() * torch.randn(x.shape)).sum() for x in outputs)
    return [*outputs, *torch.autograd.grad(loss, list(leaves.values()))]


def check_alike(found, expected, tolerance=5e-6):
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in expected]
    for a, b in zip(found, expected, strict=True):
        assert relative_error(a, b) <= tolerance


SMALL = {"length": 34, "heads": 1, "groups": 1, "D": 8, "Dv": 6}
CALLS = {
    "causal, angles, mask, state": Call(**SMALL, mask=True, state=True),
    "causal, states not kept": Call(**{**SMALL, "heads": 2}, cos=False, save=False),
    "no normaliser": Call(**SMALL, feature_map="elu", normalize=False, cos=False, state=True),
    "bidirectional": Call(**SMALL, causal=False, mask=True, feature_map="elu_plus_one"),
    "packed": Call(**SMALL, causal=False, packed=True),
    "causal, packed, bf16": Call(**SMALL, packed=True, dtype=torch.bfloat16),
}


@pytest.fixture(params=list(CALLS))
def call(request):
    return CALLS[request.param]


def test_both_backends_are_the_formula(call, ran):
    x = call.inputs()
    leaves, keywords = arguments(call, x)
    keywords["recompute_states"] = not call.save
    found = gradients(linear_attention, leaves, {**keywords, "backend": "triton"})
    assert ran == ["forward_pass", "backward_pass"]
    tolerance = TOLERANCE[call.dtype]
    expected = gradients(linear_attention, leaves, {**keywords, "backend": "torch"})
    check_alike(found, expected, tolerance)
    out, _ = formula.linear_attention(wide(x), call.settings())
    assert relative_error(found[0], out) <= tolerance
    assert len(ran) == 2


def test_an_open_choice_does_not_take_the_interpreter(ran):
    if torch.get_default_device().type != "cpu":
        pytest.skip("on a GPU an open choice takes the kernels")
    call = CALLS["no normaliser"]
    gradients(linear_attention, *arguments(call, call.inputs()))
    assert ran == []


@pytest.mark.parametrize("kept", [True, False])
def test_the_backward_pass_runs_where_the_forward_pass_ran(kept, ran):
    call = CALLS["causal, angles, mask, state"]
    leaves, keywords = arguments(call, call.inputs())
    keywords["recompute_states"] = not kept
    expected = gradients(linear_attention, leaves, {**keywords, "backend": "torch"})
    with hla.use_backend("triton"):
        out, state = linear_attention(**leaves, **keywords)
    torch.manual_seed(1)
    with hla.use_backend("torch"):
        loss = sum((x * torch.randn(x.shape)).sum() for x in (out, state))
        found = torch.autograd.grad(loss, list(leaves.values()))
        assert ran == ["forward_pass", "backward_pass"]
        out, _ = linear_attention(**leaves, **keywords)
    with hla.use_backend("triton"):
        torch.autograd.grad(out.sum(), leaves["q"])
    assert len(ran) == 2
    check_alike(found, expected[2:])


def test_gradients_of_what_wants_them(ran):
    """Frozen keys, an output that is summed (a gradient of stride 0), a final state alone."""
    call = CALLS["causal, angles, mask, state"]
    leaves, keywords = arguments(call, call.inputs())
    leaves["k"].requires_grad_(False)
    for used, names in ((0, ("q", "v", "state")), (1, ("v", "state"))):
        wanted = [leaves[name] for name in names]
        found, expected = (
            torch.autograd.grad(
                linear_attention(**leaves, **keywords, backend=b)[used].sum(), wanted
            )
            for b in ("triton", "torch")
        )
        check_alike(found, expected)
    assert ran.count("backward_pass") == 2


# --- graphs ---


def compiled_op(**options):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch.compile(linear_attention, backend="aot_eager", fullgraph=True, **options)


def test_b46_compiled_is_eager(call, ran):
    leaves, keywords = arguments(call, call.inputs())
    keywords["recompute_states"] = not call.save
    expected = gradients(linear_attention, leaves, {**keywords, "backend": "torch"})
    with hla.use_backend("triton"):
        found = gradients(compiled_op(), leaves, keywords)
    assert ran == ["forward_pass", "backward_pass"]
    check_alike(found, expected, TOLERANCE[call.dtype])
    for x, leaf in zip(found[-len(leaves) :], leaves.values(), strict=True):
        assert x.stride() == torch.empty_like(leaf).stride()


def test_b46_one_graph_for_lengths_and_backends(ran):
    compiled = compiled_op(dynamic=True)
    for length, name in ((7, "triton"), (5, "torch"), (33, "triton")):
        call = Call(**{**SMALL, "length": length, "heads": 2})
        leaves, keywords = arguments(call, call.inputs())
        expected = gradients(linear_attention, leaves, {**keywords, "backend": "torch"})
        with hla.use_backend(name):
            check_alike(gradients(compiled, leaves, keywords), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert ran == ["forward_pass", "backward_pass"] * 2


def test_a_graph_s_backward_pass_may_run_elsewhere(ran):
    """It computes the states again: none of another layout are there."""
    call = CALLS["causal, angles, mask, state"]
    leaves, keywords = arguments(call, call.inputs())
    expected = gradients(linear_attention, leaves, {**keywords, "backend": "torch"})
    compiled = compiled_op()
    with hla.use_backend("triton"):
        outputs = compiled(**leaves, **keywords)
    torch.manual_seed(1)
    loss = sum((x * torch.randn(x.shape)).sum() for x in outputs)
    with hla.use_backend("torch"):
        check_alike(torch.autograd.grad(loss, list(leaves.values())), expected[2:])
    assert ran == ["forward_pass"]


def test_an_argument_holds_in_the_backward_pass_of_a_graph(ran):
    call = CALLS["no normaliser"]
    leaves, keywords = arguments(call, call.inputs())
    compiled = compiled_op()
    with hla.use_backend("torch"):
        gradients(compiled, leaves, {**keywords, "backend": "triton"})
    assert ran == ["forward_pass", "backward_pass"]


def positional(call, x, *, save=False, backend="triton"):
    leaves, _ = arguments(call, x)
    tensors = [leaves.get(name, t) for name, t in zip(NAMES, x, strict=True)]
    return (*tensors, call.feature_map, call.causal, call.normalize, 64, 1e-6, save, backend)


@pytest.mark.parametrize("check", ["schema", "autograd_registration", "faketensor"])
def test_operators_keep_the_rules_of_operators(call, check):
    short = Call(**{**vars(call), "length": 5, "mask": False})
    args = positional(short, short.inputs())
    torch.library.opcheck(linear_attention_op, args, test_utils=f"test_{check}")
    with torch.no_grad():
        out, final, total, rest, states = linear_attention_op(*args)
    assert states.numel() == 0
    rounds = short.normalize and short.dtype == torch.bfloat16
    args = [x.detach() if torch.is_tensor(x) else x for x in args[:13]]
    args = (
        torch.randn_like(out), torch.randn_like(final) if short.causal else None, out,
        total if short.normalize else None, rest if rounds else None, None, *args, "triton",
    )  # fmt: skip
    torch.library.opcheck(linear_attention_backward_op, args, test_utils=f"test_{check}")


def test_states_of_another_layout_are_never_kept():
    call = CALLS["no normaliser"]
    x = call.inputs()
    assert not keeps_states(x.q.device)
    with pytest.raises(RuntimeError, match="keep the states of the PyTorch backend"):
        linear_attention_op(*positional(call, x, save=True))


def test_exported(ran):
    call = Call(**SMALL)
    leaves, keywords = arguments(call, call.inputs())

    class Op(torch.nn.Module):
        def forward(self, q, k, v):
            return linear_attention(q, k, v, **keywords)

    program = torch.export.export(Op(), (), leaves).module()
    expected = gradients(linear_attention, leaves, {**keywords, "backend": "torch"})
    with hla.use_backend("triton"):
        check_alike(gradients(program, leaves, {}), expected)
    assert ran == ["forward_pass", "backward_pass"]


# --- transforms, regions ---


def test_vmap(ran):
    call = Call(**{**SMALL, "length": 9, "state": True})
    leaves, keywords = arguments(call, call.inputs())
    many = torch.stack([leaves["q"], leaves["q"].flip(-1)]).detach().requires_grad_()

    def one(q):
        return linear_attention(**{**leaves, "q": q}, **keywords)

    with hla.use_backend("triton"):
        found = torch.func.vmap(one)(many)
        (grad,) = torch.autograd.grad(found[0].square().sum(), many)
    assert ran == ["forward_pass", "backward_pass"]
    with hla.use_backend("torch"):
        wanted = [torch.stack(x) for x in zip(*[one(q) for q in many], strict=True)]
    check_alike(found, wanted)
    check_alike([grad], torch.autograd.grad(wanted[0].square().sum(), many))


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(reentrant, ran):
    call = Call(**SMALL)
    leaves, keywords = arguments(call, call.inputs())

    def forward(q, k, v):
        return linear_attention(q, k, v, **keywords)[0]

    def again(**leaves):
        return (checkpoint(forward, *leaves.values(), use_reentrant=reentrant),)

    with hla.use_backend("torch"):
        expected = gradients(lambda **leaves: (forward(**leaves),), leaves, {})
    with hla.use_backend("triton"):
        if reentrant:
            # Reentrant checkpointing has `backward` alone.
            (out,) = again(**leaves)
            torch.manual_seed(1)
            (out * torch.randn(out.shape)).sum().backward()
            found = [out, *(x.grad for x in leaves.values())]
        else:
            found = gradients(again, leaves, {})
    assert ran == ["forward_pass", "forward_pass", "backward_pass"]
    check_alike(found, expected)


def test_autocast_does_not_reach_the_sums():
    call = Call(**SMALL)
    leaves, keywords = arguments(call, call.inputs())
    keywords["backend"] = "triton"
    expected = gradients(linear_attention, leaves, keywords)
    with torch.autocast(leaves["q"].device.type, dtype=torch.bfloat16):
        for a, b in zip(gradients(linear_attention, leaves, keywords), expected, strict=True):
            assert torch.equal(a, b)


# --- what has no kernel ---


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("of one dtype of float32, bfloat16, float16; got torch.float64", lambda t: t.double()),
        ("head sizes go up to 256", lambda t: t.repeat(1, 1, 1, 40)),
        ("the tensors are on", lambda t: t.to("meta")),
    ],
)
def test_an_explicit_choice_of_what_has_no_kernel(reason, change, ran):
    call = CALLS["bidirectional"]
    leaves, keywords = arguments(call, call.inputs())
    leaves = {name: change(x) for name, x in leaves.items()}
    with pytest.raises(ValueError, match=f"backend='triton' was asked for, but.*{reason}"):
        linear_attention(**leaves, **keywords, backend="triton")
    assert ran == []


def test_a_feature_map_that_the_kernels_do_not_know(monkeypatch, ran):
    square = FeatureMap(lambda x: x * x, lambda grad, x, y: grad * 2 * x, lambda x: x.square_())
    monkeypatch.setitem(FEATURE_MAPS, "square", square)
    leaves, keywords = arguments(CALLS["bidirectional"], CALLS["bidirectional"].inputs())
    keywords["feature_map"] = "square"
    with pytest.raises(ValueError, match="no kernel for feature_map='square'"):
        linear_attention(**leaves, **keywords, backend="triton")
    gradients(linear_attention, leaves, keywords)
    assert ran == []


@pytest.mark.parametrize("backend", ["triton", "torch"])
@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_an_empty_batch(backend, state, causal):
    shape = (0, 2, 5, 4)
    q, k, v = (torch.zeros(shape, requires_grad=True) for _ in range(3))
    carried = torch.zeros(0, 2, 4, 5, requires_grad=True) if state and causal else None
    out, final = linear_attention(q, k, v, causal=causal, state=carried, backend=backend)
    assert out.shape == shape
    assert (final is None) == (not causal)
    assert final is None or final.shape == (0, 2, 4, 5)
    assert torch.autograd.grad(out.sum(), k)[0].shape == shape


# --- decoding ---


def test_a_decoding_step(ran):
    call = Call(**{**SMALL, "length": 1}, state=True)
    leaves, keywords = arguments(call, call.inputs())
    with torch.no_grad():
        found = linear_attention(**leaves, **keywords, backend="triton")
        assert ran == ["decode"]
        check_alike(found, linear_attention(**leaves, **keywords, backend="torch"))
    # With gradients it is a sequence of one token.
    gradients(linear_attention, leaves, {**keywords, "backend": "triton"})
    assert ran[1:] == ["forward_pass", "backward_pass"]


@pytest.mark.parametrize("normalize", [True, False])
def test_a_final_state_may_be_changed_in_place(normalize):
    q = torch.rand(1, 1, 5, 4, requires_grad=True)
    out, state = linear_attention(q, q, q, causal=True, normalize=normalize, backend="triton")
    state.mul_(0.5)
    assert torch.autograd.grad(out.sum() + state.sum(), q)[0].isfinite().all()


def test_numbers_that_are_negated_when_they_are_read():
    q, k, v, state = (torch.rand(1, 1, n, d) for n, d in ((5, 4), (5, 4), (5, 4), (4, 5)))
    negated = torch._neg_view(-v)
    assert negated.is_neg()
    for length in (1, 5):
        parts = [x[:, :, :length] for x in (q, k, negated)]
        results = [
            linear_attention(
                *parts, causal=True, state=torch._neg_view(-state), backend=backend
            )[0]
            for backend in ("torch", "triton")
        ]  # fmt: skip
        assert relative_error(results[1], results[0]) <= 1e-6
