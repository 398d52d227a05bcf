"""Nyström attention with its pseudo-inverse on Triton; what has no kernel is refused."""

import pytest
import torch
from torch.autograd import forward_ad

pytest.importorskip("triton")

import hf_linear_attn as hla
from hf_linear_attn.kernels import pseudo_inverse
from hf_linear_attn.ops.nystrom_attention import nystrom_attention
from tests.errors import relative_error

pytestmark = pytest.mark.kernels

LENGTH, LANDMARKS = 23, 5


@pytest.fixture
def sizes(monkeypatch):
    """Shapes of the matrices that the kernel inverted."""
    found = []
    run = pseudo_inverse.pseudo_inverse

    def spied(A, iterations):
        found.append(tuple(A.shape))
        return run(A, iterations)

    monkeypatch.setattr(pseudo_inverse, "pseudo_inverse", spied)
    return found


def draw(dtype=torch.float32, length=LENGTH):
    # Products large enough that the landmarks' weights differ.
    return [(1.5 * torch.randn(2, 2, length, 6)).to(dtype).requires_grad_() for _ in range(3)]


def gradients(function, tensors, **keywords):
    out = function(*tensors, **keywords)
    torch.manual_seed(1)
    return [out, *torch.autograd.grad((out * torch.randn(out.shape)).sum(), tensors)]


def keywords(kind):
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, :4] = mask[1, 3:] = False  # the second row has fewer tokens than landmarks
    ids = (torch.arange(LENGTH) * 2 // LENGTH).expand(2, -1)
    others = {"plain": {}, "padded": {"key_mask": mask}, "packed": {"segments": ids}}
    return {"num_landmarks": LANDMARKS, **others[kind]}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["plain", "padded", "packed"])
def test_both_backends_agree(kind, compiled, sizes):
    tensors, others = draw(), keywords(kind)
    wide = [x.detach().double().requires_grad_() for x in tensors]
    expected = gradients(nystrom_attention, wide, **others)
    torch._dynamo.reset()
    function = torch.compile(nystrom_attention, backend="aot_eager", fullgraph=True)
    with hla.use_backend("triton"):
        found = gradients(function if compiled else nystrom_attention, tensors, **others)
    assert sizes
    assert all(shape[-2:] == (LANDMARKS, LANDMARKS) for shape in sizes)
    for a, b in zip(found, expected, strict=True):
        assert relative_error(a, b) <= 2e-5


def test_16_bits_and_autocast(sizes):
    tensors = draw(torch.bfloat16)

    def cast(*tensors, **others):
        with torch.autocast(tensors[0].device.type, dtype=torch.bfloat16):
            return nystrom_attention(*tensors, **others)

    expected = gradients(nystrom_attention, tensors, num_landmarks=LANDMARKS)
    with hla.use_backend("triton"):
        found = gradients(cast, tensors, num_landmarks=LANDMARKS)
    assert sizes
    for a, b in zip(found, expected, strict=True):
        assert relative_error(a, b) <= 1e-3


def test_rows_of_few_tokens_need_no_inverse(sizes):
    tensors = draw(length=LANDMARKS)
    with hla.use_backend("triton"):
        found = nystrom_attention(*tensors, num_landmarks=LANDMARKS)
    assert sizes == []
    assert torch.equal(found, nystrom_attention(*tensors, num_landmarks=LANDMARKS))


@pytest.mark.parametrize(
    ("reason", "landmarks", "dtype"),
    [("up to 64 rows", 65, torch.float32), ("got torch.float64", 5, torch.float64)],
)
def test_what_the_kernel_does_not_do_is_refused(reason, landmarks, dtype, sizes):
    tensors = draw(dtype)
    with hla.use_backend("triton"), pytest.raises(ValueError, match=f"asked for, but .*{reason}"):
        nystrom_attention(*tensors, num_landmarks=landmarks)
    assert torch.isfinite(nystrom_attention(*tensors, num_landmarks=landmarks)).all()
    assert sizes == []


def under_vmap(q, k, v):
    return torch.func.vmap(lambda q: nystrom_attention(q, k, v, num_landmarks=LANDMARKS))(q[None])


def under_forward_mode(q, k, v):
    with forward_ad.dual_level():
        return nystrom_attention(forward_ad.make_dual(q, q), k, v, num_landmarks=LANDMARKS)


@pytest.mark.parametrize("transform", [under_vmap, under_forward_mode])
def test_transforms_are_pytorch_s(transform, sizes):
    tensors = [x.detach() for x in draw()]
    transform(*tensors)
    with hla.use_backend("triton"), pytest.raises(ValueError, match="reverse-mode gradients only"):
        transform(*tensors)
    assert sizes == []
