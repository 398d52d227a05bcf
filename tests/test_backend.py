"""What is asked for is honoured or refused; an open choice takes what there is."""

import logging
import re
import threading

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from hf_linear_attn import backend
from hf_linear_attn.backend import choose_backend, resolve_backend, use_backend
from hf_linear_attn.kernels import starting
from hf_linear_attn.ops import RecurrentDecoder, kernel_modules, linear_attention
from hf_linear_attn.ops.linear_attention_op import keeps_states


def qkv(**kind):
    return [torch.randn(1, 2, 5, 4, **kind) for _ in range(3)]


def test_the_nearest_choice_holds(monkeypatch):
    assert resolve_backend(None, "cuda") == "automatic"
    # Nobody wants the interpreter without having asked for it.
    assert resolve_backend(None, "cpu") == "torch"
    monkeypatch.setenv("HF_LINEAR_ATTN_BACKEND", "triton")
    assert resolve_backend(None, "cpu") == "triton"
    with use_backend("torch"):
        assert resolve_backend(None, "cuda") == "torch"
        assert resolve_backend("triton", "cuda") == "triton"
        with use_backend("triton"):
            assert resolve_backend(None, "cpu") == "triton"
        assert resolve_backend(None, "cpu") == "torch"
    assert resolve_backend(None, "cuda") == "triton"


def test_names_that_do_not_exist_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="backend is 'cuda'; accepted: 'torch', 'triton'"):
        resolve_backend("cuda", "cpu")
    with pytest.raises(ValueError, match="backend is 'automatic'"), use_backend("automatic"):
        pass
    monkeypatch.setenv("HF_LINEAR_ATTN_BACKEND", "cuda")
    with pytest.raises(ValueError, match="HF_LINEAR_ATTN_BACKEND is 'cuda'"):
        resolve_backend(None, "cpu")


def test_an_open_choice_says_once_why_it_fell_back(caplog, monkeypatch):
    monkeypatch.setattr(backend, "_logged", set())
    caplog.set_level(logging.INFO, logger="hf_linear_attn.backend")
    for _ in range(2):
        assert choose_backend(None, "cuda", lambda: "there is none for this") == "torch"
        assert choose_backend(None, "cuda", lambda: None) == "triton"
    assert [record.getMessage() for record in caplog.records] == [
        "linear attention runs on backend 'torch', device 'cuda': there is none for this",
        "linear attention runs on backend 'triton', device 'cuda'",
    ]


def test_an_explicit_choice_is_honoured_or_refused():
    def unasked():
        raise AssertionError

    assert choose_backend("torch", "cuda", unasked) == "torch"
    assert choose_backend("triton", "cpu", lambda: None) == "triton"
    with pytest.raises(ValueError, match=r"asked for, but it rains\. Use backend='torch'"):
        choose_backend("triton", "cuda", lambda: "it rains")


def test_a_machine_without_a_gpu_refuses_kernels():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"Triton is not installed|not for the device 'cpu'"):
        linear_attention(q, k, v, causal=True, backend="triton")


class Nested(torch.autograd.Function):
    """A backward pass in a backward pass, …: the deepest ones go to another thread."""

    @staticmethod
    def forward(ctx, x, depth, found):
        ctx.depth, ctx.found = depth, found
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.found.append((threading.get_ident(), resolve_backend(None, "cuda")))
        if ctx.depth:
            with torch.enable_grad():
                x = torch.ones((), requires_grad=True)
                Nested.apply(x, ctx.depth - 1, ctx.found).backward()
        return grad, None, None


def test_the_backward_pass_of_another_thread_is_inside_of_the_block():
    """As that of a GPU is."""
    found = []
    out = Nested.apply(torch.ones((), requires_grad=True), 65, found)
    with use_backend("triton"):
        out.backward()
    assert len({thread for thread, _ in found}) > 1
    first_elsewhere = next(name for thread, name in found if thread != threading.get_ident())
    assert first_elsewhere == "triton"


def why_not(*tensors):
    return kernel_modules.why_no_kernel(tensors, lambda support: None)


def test_tensors_without_memory_have_no_kernel():
    with FakeTensorMode():
        fakes = qkv()
    assert why_not(*qkv(), None) is None
    assert "fake tensors" in why_not(*fakes)
    reasons = []

    def traced(x):
        reasons.append(why_not(torch.ones(2)))
        return x + 1

    make_fx(traced)(torch.ones(2))
    assert "tracers" in reasons[0]


def test_tensors_of_two_devices_have_no_kernel():
    q, k, _ = qkv()
    assert why_not(q, k, torch.ones(2, device="meta")) == "the tensors are on cpu and meta"


def test_a_gpu_on_which_triton_does_not_start_has_no_kernel(monkeypatch):
    why = "no C compiler"
    monkeypatch.setattr(starting, "why_triton_does_not_start", lambda: why)
    assert why_not(*qkv()) is None
    assert why_not(*qkv(device="meta")) == why


def test_code_that_came_with_a_model_has_no_kernels(monkeypatch):
    monkeypatch.setattr(kernel_modules, "IS_PACKAGE", False)
    q, k, v = qkv()
    with pytest.raises(ValueError, match="kernels are part of the installed package"):
        linear_attention(q, k, v, causal=True, backend="triton")


def test_a_recurrent_decoder_is_pytorch_s():
    with use_backend("triton"), pytest.raises(ValueError, match="a RecurrentDecoder is PyTorch's"):
        RecurrentDecoder(torch.zeros(1, 2, 4, 5), 2)


def test_graphs_keep_states_where_one_backend_alone_can_run():
    assert keeps_states(torch.device("cpu"))
    assert not keeps_states(torch.device("cuda"))
    assert not keeps_states(torch.device("meta"))


@pytest.mark.parametrize("version", ["3.4.0", "3.8.1+git1a2b"])
def test_an_older_triton_has_no_kernels(version, monkeypatch):
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(triton, "__version__", version)
    with pytest.raises(ValueError, match=rf"Triton {re.escape(version)} is older than 3\.9"):
        linear_attention(*qkv(), causal=True, backend="triton")


def test_the_interpreter_asked_for_too_late_is_named(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ValueError, match="where Python starts with TRITON_INTERPRET=1"):
        linear_attention(*qkv(), causal=True, backend="triton")
