"""attn_implementation on unmodified models: padding, causality, gradients, the formula."""

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface

from tests.integrations.stock_models import (
    FIELDS,
    FITS,
    PAIRS,
    padded,
    run,
    stock_model,
    tokens,
)
from tests.reference import REFERENCES

TEXT = [(kind, name) for kind, name in PAIRS if kind != "vit"]


def exact_enough(kind, name):
    """Pads turn every rotation further; the pseudo-inverse multiplies what that rounds."""
    model = stock_model(kind, name)
    return model.double() if (kind, name) == ("modernbert", "nystrom") else model


@pytest.mark.parametrize(("kind", "name"), TEXT)
def test_padding_on_either_side_changes_nothing(kind, name):
    model, ids = exact_enough(kind, name), tokens(2, 11)
    with torch.no_grad():
        alone = run(kind, model, ids)
        for before, after in ((5, 0), (0, 6), (3, 2)):
            wide, mask, positions = padded(ids, before, after)
            logits = run(kind, model, wide, mask, positions)
            if kind == "bart":
                before, after = after, before  # its decoder reads the row backwards
            found = logits[:, before : logits.shape[1] - after]
            torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("kind", "name"), TEXT)
def test_rows_of_different_length_do_not_see_each_other(kind, name):
    model = exact_enough(kind, name)
    long, short = tokens(1, 13), tokens(1, 8, seed=3)
    row, mask, positions = padded(short, 0, 5)
    ids, mask = torch.cat((long, row)), torch.cat((torch.ones_like(long), mask))
    positions = torch.cat((torch.arange(13)[None], positions))
    with torch.no_grad():
        both, alone = run(kind, model, ids, mask, positions), run(kind, model, long)
        lone = run(kind, model, short)
    torch.testing.assert_close(both[:1], alone, atol=1e-5, rtol=1e-5)
    at = slice(5, 13) if kind == "bart" else slice(0, 8)
    torch.testing.assert_close(both[1:, at], lone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_gradients_reach_every_weight_and_are_finite(kind, name):
    model = stock_model(kind, name).train()
    if kind == "vit":
        model(torch.randn(2, 3, 16, 16)).logits.square().sum().backward()
    else:
        ids, mask, positions = padded(tokens(2, 9), 0, 3)
        run(kind, model, ids, mask, positions)[:, :9].square().sum().backward()
    heads = ("q_proj", "k_proj", "v_proj", "query", "key", "value", "c_attn", "Wqkv")
    checked = 0
    for parameter, weight in model.named_parameters():
        if weight.grad is not None:
            assert weight.grad.isfinite().all(), parameter
        if parameter.endswith("weight") and parameter.split(".")[-2] in heads:
            assert weight.grad is not None, parameter
            assert weight.grad.abs().max() > 0, parameter
            checked += 1
    assert checked >= 2


CAUSAL_PAIRS = [(k, n) for k, n in PAIRS if k in ("gpt2", "llama", "qwen3", "mixtral", "bart")]


@pytest.mark.parametrize(("kind", "name"), CAUSAL_PAIRS)
def test_later_tokens_change_nothing_before_them(kind, name):
    model, ids = stock_model(kind, name), tokens(2, 12)
    changed = ids.clone()
    changed[:, 7:] = (ids[:, 7:] - 4 + 11) % 56 + 4
    with torch.no_grad():
        if kind == "bart":
            rows = [model(input_ids=ids, decoder_input_ids=x).logits for x in (ids, changed)]
        else:
            rows = [model(x).logits for x in (ids, changed)]
    torch.testing.assert_close(rows[0][:, :7], rows[1][:, :7], atol=1e-6, rtol=1e-6)
    assert (rows[0][:, 7:] - rows[1][:, 7:]).abs().max() > 1e-2


@pytest.mark.parametrize("name", FITS["vit"])
def test_an_image_model_runs_with_its_own_horizon(name):
    image = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        logits = stock_model("vit", name)(image).logits
        softmax = stock_model("vit", "eager")(image).logits
    assert logits.isfinite().all()
    assert (logits - softmax).abs().max() > 1e-3


def as_reference(name):
    """The O(n²) formula under a name of its own, with a mask function as small as can be."""

    def attend(module, query, key, value, attention_mask, is_causal=None, **kwargs):
        causal = bool(module.is_causal)
        fields = dict(FIELDS.get(name, {}))
        if name == "cosformer":
            fields["cos_horizon"] = 24
        out = REFERENCES[name](
            query.double(), key.double(), value.double(), causal=causal, key_mask=attention_mask,
            **fields,
        )  # fmt: skip
        return out.to(query.dtype).transpose(1, 2).contiguous(), None

    def mask(attention_mask=None, **kwargs):
        return attention_mask

    AttentionInterface.register(f"reference_{name}", attend)
    AttentionMaskInterface.register(f"reference_{name}", mask)
    return f"reference_{name}"


FORMULA = [(k, n) for k, n in PAIRS if k in ("bert", "gpt2", "llama", "modernbert")]


@pytest.mark.parametrize(("kind", "name"), FORMULA)
def test_logits_are_those_of_the_formula(kind, name):
    model = stock_model(kind, name).double()
    ids, mask, positions = padded(tokens(2, 13), 4, 0)
    with torch.no_grad():
        found = run(kind, model, ids, mask, positions)[:, 4:]
        model.set_attn_implementation(as_reference(name))
        expected = run(kind, model, ids, mask, positions)[:, 4:]
        model.set_attn_implementation("sdpa")
        softmax = run(kind, model, ids, mask, positions)[:, 4:]
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-7)
    assert (found - softmax).abs().max() > 1e-2


def test_packed_rows_are_their_documents():
    for name in FITS["gpt2"]:
        model = stock_model("gpt2", name)
        first, second = tokens(2, 6), tokens(2, 9, seed=5)
        positions = torch.cat((torch.arange(6), torch.arange(9)))[None].expand(2, -1)
        with torch.no_grad():
            packed = model(torch.cat((first, second), 1), position_ids=positions, use_cache=False)
            apart = [model(x, use_cache=False).logits for x in (first, second)]
        torch.testing.assert_close(packed.logits, torch.cat(apart, 1), atol=1e-5, rtol=1e-5)


def test_documents_named_by_their_lengths():
    model, ids = stock_model("llama", "transnormer_diag"), tokens(1, 15)
    positions = torch.cat((torch.arange(6), torch.arange(9)))[None]
    ends = torch.tensor([0, 6, 15], dtype=torch.int32)
    with torch.no_grad():
        named = model(
            ids, position_ids=positions, cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=9,
            max_length_k=9, use_cache=False,
        ).logits  # fmt: skip
        seen = model(ids, position_ids=positions, use_cache=False).logits
        apart = [model(x, use_cache=False).logits for x in (ids[:, :6], ids[:, 6:])]
    torch.testing.assert_close(named, torch.cat(apart, 1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(named, seen, atol=0, rtol=0)


def test_documents_an_encoder_is_told_of():
    """Transformers looks for restarts of positions in decoders only."""
    model, ids = stock_model("bert", "cosformer"), tokens(1, 15)
    positions = torch.cat((torch.arange(6), torch.arange(9)))[None]
    ends = torch.tensor([0, 6, 15], dtype=torch.int32)
    documents = torch.tensor([[0] * 6 + [1] * 9])
    with torch.no_grad():
        apart = torch.cat([model(x).logits for x in (ids[:, :6], ids[:, 6:])], 1)
        for told in ({"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}, {"seq_idx": documents}):
            found = model(ids, position_ids=positions, **told).logits
            torch.testing.assert_close(found, apart, atol=1e-5, rtol=1e-5)
        with pytest.raises(ValueError, match="cu_seq_lens_q and cu_seq_lens_k must be alike"):
            model(ids, cu_seq_lens_q=ends)


@pytest.mark.parametrize("name", ["cosformer", "transnormer_norm"])
def test_explicit_weights_are_what_values_are_summed_with(name):
    model, ids = stock_model("gpt2", name), tokens(1, 7)
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    assert [w.shape for w in weights] == [(1, 2, 7, 7)] * 2
    for w in weights:
        assert w.triu(1).abs().max() == 0
        sums = w.sum(-1)
        if name == "cosformer":
            # A query that ReLU leaves nothing of sees nothing.
            assert ((sums - 1).abs() < 1e-4).logical_or(sums == 0).all()


@pytest.mark.parametrize("kind", ["bert", "gpt2", "bart"])
def test_checkpointed_gradients_are_the_same(kind):
    model, ids, found = stock_model(kind, "cosformer").train(), tokens(2, 9), []
    for _ in range(2):
        model.zero_grad()
        run(kind, model, ids).square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        model.activation_checkpointing_enable()
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second, atol=0, rtol=0)


@pytest.mark.parametrize(("kind", "name"), [p for p in TEXT if p[0] in ("bert", "gpt2", "bart")])
def test_bfloat16_is_near(kind, name):
    model, (ids, mask, positions) = stock_model(kind, name), padded(tokens(2, 11), 3, 3)
    with torch.no_grad():
        expected = run(kind, model, ids, mask, positions)[mask.bool()]
        found = run(kind, model.to(torch.bfloat16), ids, mask, positions)[mask.bool()]
    assert found.dtype == torch.bfloat16
    assert (found.float() - expected).norm() / expected.norm() < 2e-2


COMPILED = [("bert", "cosformer"), ("bert", "nystrom"), ("bart", "cosformer"),
            ("gpt2", "transnormer_norm"), ("llama", "transnormer_diag")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), COMPILED)
def test_one_graph_computes_the_same(kind, name):
    model, (ids, mask, positions) = stock_model(kind, name), padded(tokens(2, 11), 3, 2)
    torch._dynamo.reset()
    graph = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        expected = run(kind, model, ids, mask, positions)
        found = run(kind, graph, ids, mask, positions)
    real = mask.bool() if kind != "bart" else mask.bool().flip(1)
    torch.testing.assert_close(found[real], expected[real], atol=1e-6, rtol=1e-6)


@pytest.mark.slow
def test_a_graph_is_made_where_a_warning_would_be_said():
    """Dropout on weights that are never formed, and a horizon nobody chose."""
    torch._dynamo.reset()
    fields = {"attention_probs_dropout_prob": 0.1, "max_position_embeddings": 4096}
    model = stock_model("bert", "cosformer", cos_horizon=None, **fields).train()
    ids = tokens(2, 9)
    found = torch.compile(model, backend="eager", fullgraph=True)(ids).logits
    torch.testing.assert_close(found, model(ids).logits, atol=1e-6, rtol=1e-6)
