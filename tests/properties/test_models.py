"""Random small models of every family and head keep what every model promises.

Each config of `models()` must build: a refusal is a failure here.
"""

import copy
import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import relative_error
from tests.properties.choices import evenly
from tests.properties.examples import examples
from tests.properties.model_cases import FIRST_WORD, models, output_of, rows

TOLERANCE = 1e-8
FEW_BITS = [torch.float32, torch.bfloat16, torch.float16]
AT_PADS = {"nan": torch.nan, "inf": torch.inf, "large": 6e4}


def inputs_of(case, model, batch, mask):
    """input_ids, and token_type_ids where the model has types."""
    inputs = {"input_ids": batch.ids(mask, model.config)}
    if model.config.type_vocab_size and batch.seed % 2:
        inputs["token_type_ids"] = batch.ids(mask, model.config, types=True)
    return inputs


def mask_in_form(mask, form, causal):
    """A padding mask as callers pass it."""
    if form != "4d":
        return mask.to({"bool": torch.bool, "long": torch.long, "float": torch.float32}[form])
    length = mask.shape[1]
    pairs = mask[:, None, None, :].expand(-1, 1, length, length)
    return pairs & torch.ones(length, length, dtype=torch.bool).tril() if causal else pairs


def gradients(model, loss):
    """Those of all parameters in a row; zeros where there are none."""
    parameters = list(model.parameters())
    found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([x.flatten() for x in found])


@examples(250)
@given(
    case=models(),
    batch=rows(),
    form=evenly(["bool", "long", "float", "4d"]),
)
def test_a_row_in_a_batch_is_the_row_alone(case, batch, form):
    """Pads and batch-mates change neither outputs nor gradients."""
    model, mask = case.build(), batch.mask()
    if case.head == "ForMultipleChoice" and form == "4d":
        form = "bool"
    inputs = inputs_of(case, model, batch, mask)
    attention_mask = mask_in_form(mask, form, case.is_decoder)
    together = output_of(model, case.head, **inputs, attention_mask=attention_mask)
    loss_together = loss_alone = torch.zeros((), dtype=torch.float64)
    for i, real in enumerate(mask):
        row = {name: x[i : i + 1, real] for name, x in inputs.items()}
        alone = output_of(model, case.head, **row)[0]
        found = (
            together[i, real]
            if together.shape[1] == mask.shape[1] and alone.ndim > 1
            else (together[i])
        )
        assert relative_error(found, alone, scale=1e-3) <= TOLERANCE
        upstream = torch.randn_like(alone)
        loss_together = loss_together + (found * upstream).sum()
        loss_alone = loss_alone + (alone * upstream).sum()
    wanted = gradients(model, loss_alone)
    assert relative_error(gradients(model, loss_together), wanted, scale=1e-3) <= TOLERANCE


def real_outputs(case, model, mask, **inputs):
    """Answers at real tokens, or one of each row."""
    with torch.no_grad():
        out = output_of(model, case.head, **inputs, attention_mask=mask.long())
    return out[mask] if out.ndim == 3 and out.shape[1] == mask.shape[1] else out


@examples(200)
@given(
    case=models(),
    batch=rows(),
    dtype=evenly([torch.float64, *FEW_BITS]),
    at_pads=evenly(["words", *AT_PADS]),
)
def test_what_stands_at_pads_changes_no_bit(case, batch, dtype, at_pads):
    model, mask = case.build(dtype), batch.mask()
    ids = batch.ids(mask, model.config)
    if at_pads == "words" or case.head == "ForMultipleChoice":
        words = model.config.vocab_size - FIRST_WORD
        other = torch.where(mask, ids, FIRST_WORD + (ids + 1 - FIRST_WORD) % words)
        pair = [{"input_ids": ids}, {"input_ids": other}]
    else:
        embeds = model.get_input_embeddings()(ids)
        other = embeds.masked_fill(~mask[..., None], AT_PADS[at_pads])
        pair = [{"inputs_embeds": embeds}, {"inputs_embeds": other}]
    one, two = (real_outputs(case, model, mask, **inputs) for inputs in pair)
    assert torch.isfinite(one).all()
    assert torch.equal(one, two)


@examples(150)
@given(case=models(), batch=rows(), dtype=evenly(FEW_BITS))
def test_a_model_in_fewer_bits_is_the_model(case, batch, dtype):
    """In fp32 to the tolerance; half the bits, through norms of two numbers, leave the type."""
    model, mask = case.build(dtype), batch.mask()
    ids = batch.ids(mask, model.config)
    found = real_outputs(case, model, mask, input_ids=ids)
    assert found.dtype == dtype
    assert torch.isfinite(found).all()
    if dtype == torch.float32:
        wide = copy.deepcopy(model).double()
        wanted = real_outputs(case, wide, mask, input_ids=ids)
        assert relative_error(found, wanted, scale=1e-3) <= 1e-4


LANGUAGE_HEADS = ["Model", "ForMaskedLM", "ForCausalLM", "ForTokenClassification"]


@examples(150)
@given(case=models(["Model", "ForCausalLM", "ForTokenClassification"], decoder=True), batch=rows())
def test_the_future_does_not_leak(case, batch):
    model, mask = case.build(), batch.mask()
    inputs = inputs_of(case, model, batch, mask)
    before = output_of(model, case.head, **inputs, attention_mask=mask.long())
    t = batch.seed % mask.shape[1]
    changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
    ids, vocab = changed["input_ids"], model.config.vocab_size
    ids[:, t + 1 :] = FIRST_WORD + (ids[:, t + 1 :] + 1 - FIRST_WORD) % (vocab - FIRST_WORD)
    after = output_of(model, case.head, **changed, attention_mask=mask.long())
    seen = mask[:, : t + 1]
    assert relative_error(after[:, : t + 1][seen], before[:, : t + 1][seen], 1e-3) <= TOLERANCE


@examples(150)
@given(
    case=models(LANGUAGE_HEADS),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    form=evenly(["position_ids", "seq_idx", "cu_seq_lens"]),
)
def test_packed_documents_are_documents_alone(case, lengths, form):
    model = case.build()
    total = sum(lengths)
    edges = torch.tensor([0, *itertools.accumulate(lengths)])
    ids = torch.randint(FIRST_WORD, model.config.vocab_size, (1, total))
    within = torch.cat([torch.arange(n) for n in lengths])[None]
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    packing = {
        "position_ids": {"position_ids": within},
        "seq_idx": {"seq_idx": document},
        "cu_seq_lens": {"cu_seq_lens_q": edges, "cu_seq_lens_k": edges},
    }[form]
    packed = output_of(model, case.head, input_ids=ids, **packing)[0]
    for start, stop in itertools.pairwise(edges.tolist()):
        alone = output_of(model, case.head, input_ids=ids[:, start:stop])[0]
        assert relative_error(packed[start:stop], alone, scale=1e-3) <= TOLERANCE
