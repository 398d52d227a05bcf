"""Models in torch.compile and torch.export. The label is a reported case.

Graphs are traced with "aot_eager"; the tests that let Inductor write code as well are slow.
"""

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn.models.token_layout import packed_segments, padding_mask, token_keywords
from tests.conftest import CAUSAL_VARIANTS, OWN, TINY, VARIANTS
from tests.errors import relative_error

KINDS = [*VARIANTS, "hybrid"]
LIMIT = 200
SIZES = ((2, 64), (2, 65), (2, 1), (4, 130))
# Neither is 1, where what is asked is another thing than how many graphs there are.
LONG = ((2, 65), (4, 130))
INPUTS = ["plain", "padded", "positions", "packed"]
# The hybrid has the layers of cosformer and of softmax: what goes wrong in either shows in it.
WITHIN_HYBRID = ("cosformer", "softmax")
APART = [kind for kind in KINDS if kind not in WITHIN_HYBRID]


@pytest.fixture(autouse=True)
def forget_graphs():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def build(kind, **fields):
    """A trunk of one layer for each mechanism in it; keywords are config fields."""
    layers = ["cosformer", "softmax"] if kind == "hybrid" else None
    config, model, _ = VARIANTS["cosformer" if kind == "hybrid" else kind]
    count = 2 if kind in ("hybrid", "transnormer") else 1
    own = OWN.get(kind, {})
    fields = {"num_hidden_layers": count, "layer_attention": layers, **own, **fields}
    torch.manual_seed(0)
    return model(config(**{**TINY, "max_position_embeddings": LIMIT, **fields})).eval()


def batch(how, rows, length):
    """Keywords of a forward pass."""
    inputs = {"input_ids": torch.randint(5, TINY["vocab_size"], (rows, length))}
    count = torch.arange(length).repeat(rows, 1)
    if how == "padded":
        mask = (count >= length // 3).long()
        inputs["attention_mask"] = torch.cat((mask[:1], mask[1:].flip(1)))
    elif how == "positions":
        # Two documents a row, told by nothing else.
        inputs["position_ids"] = count % max(length // 2, 1)
    elif how == "packed":
        inputs["seq_idx"] = (count * 3) // length
    return inputs


def run(function, model, inputs):
    """Hidden states of real tokens, and the gradients of all parameters as one vector."""
    model.zero_grad()
    x = function(**inputs).last_hidden_state
    real = inputs.get("attention_mask", torch.ones(x.shape[:2])).bool()
    x = x[real]
    torch.manual_seed(2)
    (x * torch.randn(x.shape)).sum().backward()
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return x.detach(), torch.cat(grads)


def check_alike(compiled, model, inputs, tolerance=1e-5):
    found, expected = run(compiled, model, inputs), run(model, model, inputs)
    for a, b in zip(found, expected, strict=True):
        assert relative_error(a, b) <= tolerance


def check_compiled(kind, how, dynamic, backend="aot_eager", sizes=SIZES, **fields):
    model = build(kind, **fields)
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=backend)
    for rows, length in sizes:
        check_alike(compiled, model, batch(how, rows, length))
    # One graph for all sizes, and one each where a size is 1: the length, the number of chunks.
    # Left to itself the compiler first takes every size for a fact, then the number of rows.
    most = 2 if sizes == LONG else 3 if dynamic else 4
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= most


def test_b46_compiled_equals_eager():
    check_compiled("linear_transformer", "padded", True)


@pytest.mark.slow
def test_b46_an_operator_with_gradients_computed_again():
    check_compiled("nystrom", "padded", True, sizes=LONG)


def causal_model(kind):
    config_class, model_class, own = CAUSAL_VARIANTS[kind]
    torch.manual_seed(0)
    return model_class(config_class(**{**TINY, **own, "max_position_embeddings": LIMIT})).eval()


@pytest.mark.slow
# The hybrid decoder has the layers of linear_transformer and of softmax.
@pytest.mark.parametrize("kind", ["cosformer", "transnormer", "hybrid"])
def test_b46_decoders_with_and_without_a_cache(kind):
    model = causal_model(kind)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for use_cache in (False, True):
        for rows, length in ((2, 20), (3, 65)):
            inputs = batch("padded", rows, length)
            real = inputs["attention_mask"].bool()
            with torch.no_grad():
                found, expected = (f(**inputs, use_cache=use_cache) for f in (compiled, model))
            assert relative_error(found.logits[real], expected.logits[real]) <= 1e-5


@pytest.mark.parametrize("kind", ["transnormer", "hybrid"])
def test_a_decoder_exported_once_for_all_lengths(kind):
    model = causal_model(kind)
    tokens = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq", max=LIMIT)}
    inputs = batch("padded", 2, 130)
    program = torch.export.export(
        model, (), inputs, dynamic_shapes=dict.fromkeys(inputs, tokens), strict=False
    ).module()
    for rows, length in ((1, 1), (2, 7), (3, 64), (2, 65), (1, LIMIT)):
        inputs = batch("padded", rows, length)
        real = inputs["attention_mask"].bool()
        found, expected = (f(**inputs).logits[real] for f in (program, model))
        assert relative_error(found, expected) <= 1e-5


@pytest.mark.slow
# Padded rows are Inductor's, below, and those of a compiler that chooses.
@pytest.mark.parametrize("how", ["plain", "packed"])
@pytest.mark.parametrize("kind", APART)
def test_b46_every_mechanism_with_every_input(kind, how):
    check_compiled(kind, how, True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", APART)
def test_b46_rotated_by_positions_of_their_own(kind):
    check_compiled(kind, "positions", True, sizes=LONG, position_embedding_type="rope")


@pytest.mark.slow
@pytest.mark.parametrize("kind", APART)
def test_b46_code_written_by_inductor(kind):
    check_compiled(kind, "padded", True, "inductor", LONG)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *((kind, "padded") for kind in APART),
        *(("hybrid", how) for how in INPUTS if how != "padded"),
    ],
)
def test_b46_the_compiler_chooses_what_is_dynamic(kind, how):
    check_compiled(kind, how, None)


def test_b46_masked_lm_with_targets_trains_compiled():
    torch.manual_seed(0)
    model = hla.CosformerForMaskedLM(hla.CosformerConfig(**{**TINY, "num_hidden_layers": 1}))
    model.eval()
    inputs = batch("padded", 2, 20)
    labels = inputs["input_ids"].masked_fill(torch.rand(2, 20) < 0.5, -100)
    losses, grads = [], []
    for function in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        model.zero_grad()
        loss = function(**inputs, labels=labels).loss
        loss.backward()
        losses.append(loss.item())
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert relative_error(grads[1], grads[0]) <= 1e-5


def test_compiled_under_autocast_equals_eager_under_autocast():
    model = build("cosformer")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check_alike(compiled, model, batch("padded", 2, 65), 2e-2)


@pytest.mark.parametrize(
    ("kind", "position"), [*((kind, "learned") for kind in KINDS), ("cosformer", "rope")]
)
def test_exported_once_for_all_lengths(kind, position, tmp_path):
    check_exported(build(kind, position_embedding_type=position), tmp_path, strict=False)


@pytest.mark.slow
def test_strictly_exported_once_for_all_lengths(tmp_path):
    check_exported(build("hybrid"), tmp_path, strict=True)


def check_exported(model, folder, strict):
    inputs = batch("padded", 2, 130)
    tokens = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq", max=LIMIT)}
    program = torch.export.export(
        model, (), inputs, dynamic_shapes=dict.fromkeys(inputs, tokens), strict=strict
    )
    torch.export.save(program, folder / "model.pt2")
    loaded = torch.export.load(folder / "model.pt2").module()
    for rows, length in ((1, 1), (2, 7), (3, 64), (2, 65), (1, LIMIT)):
        inputs = batch("padded", rows, length)
        real = inputs["attention_mask"].bool()
        found, expected = (f(**inputs).last_hidden_state[real] for f in (loaded, model))
        assert relative_error(found, expected) <= 1e-5


def test_a_compiled_model_follows_the_backend():
    model = build("cosformer")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    inputs = batch("padded", 2, 9)
    before = compiled(**inputs).last_hidden_state
    with (
        hla.use_backend("triton"),
        pytest.raises(ValueError, match=r"not for the device 'cpu'|Triton is not installed"),
    ):
        compiled(**inputs)
    assert torch.equal(compiled(**inputs).last_hidden_state, before)


@pytest.mark.parametrize("how", [pytest.param("compiled", marks=pytest.mark.slow), "exported"])
def test_a_graph_refuses_positions_beyond_the_horizon(how):
    model = build("cosformer", cos_horizon=16)
    good, bad = batch("padded", 2, 16), batch("plain", 2, 16)
    bad["attention_mask"] = torch.ones_like(bad["input_ids"])
    if how == "compiled":
        graph = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    else:
        tokens = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")}
        shapes = dict.fromkeys(good, tokens)
        graph = torch.export.export(model, (), good, dynamic_shapes=shapes).module()
    graph(**good)
    graph(**bad)
    bad = {name: torch.nn.functional.pad(x, (0, 1), value=1) for name, x in bad.items()}
    with pytest.raises(RuntimeError, match="outside cosFormer's horizon"):
        graph(**bad)


def compile_function(function):
    return torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.full((2, 6), 2), "other values than 1 and 0"),
        (torch.ones(2, 1, 6, 6, dtype=torch.bool).tril(), "not padding .times causality. alone"),
        (torch.full((2, 1, 6, 6), -3.0), "between 0 and -1e4"),
    ],
)
def test_a_graph_refuses_masks_that_are_not_padding(mask, message):
    with pytest.raises(RuntimeError, match=message):
        compile_function(padding_mask)(mask, 2, 6)


@pytest.mark.parametrize(
    ("boundaries", "message"),
    [([0, 7, 12], "over the end of a row"), ([0, 6, 11], "ascend"), ([0, 6, 6, 12], None)],
)
def test_a_graph_refuses_boundaries_that_do_not_fit(boundaries, message):
    def documents(boundaries):
        return packed_segments(None, None, boundaries, (2, 6), restarts=True)

    boundaries = torch.tensor(boundaries)
    if message is None:
        assert torch.equal(compile_function(documents)(boundaries), documents(boundaries))
    else:
        with pytest.raises(RuntimeError, match=message):
            compile_function(documents)(boundaries)


def test_a_graph_refuses_documents_that_come_back():
    def keywords(segments):
        return token_keywords(None, None, segments, (1, 4), segments.device)["query_positions"]

    compiled = compile_function(keywords)
    assert compiled(torch.tensor([[3, 3, 0, 0]])).tolist() == [[0, 1, 0, 1]]
    with pytest.raises(RuntimeError, match="not contiguous"):
        compiled(torch.tensor([[0, 1, 1, 0]]))


def test_a_graph_refuses_types_no_table_holds():
    model = build("softmax", type_vocab_size=2)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    inputs = batch("plain", 2, 6)
    compiled(**inputs, token_type_ids=torch.ones_like(inputs["input_ids"]))
    with pytest.raises(RuntimeError, match="outside type_vocab_size"):
        compiled(**inputs, token_type_ids=torch.full_like(inputs["input_ids"], -1))


@pytest.mark.slow
def test_b46_blocks_with_dropout_are_traced_in_parts():
    """Lengths that are a multiple of the block, and ones that are not."""
    model = build("transnormer", attention_probs_dropout_prob=0.1).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (7, 8):
        inputs = batch("plain", 2, length)
        found, expected = [], []
        for function, into in ((compiled, found), (model, expected)):
            torch.manual_seed(3)
            into.append(function(**inputs).last_hidden_state)
        assert relative_error(found[0], expected[0]) <= 1e-5
