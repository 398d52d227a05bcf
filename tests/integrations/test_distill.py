"""Attention transfer: what is fitted, to what, and what stays as it was."""

import copy

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

import hf_linear_attn as hla
from hf_linear_attn.integrations.distill import transfer_attention
from tests.conftest import OWN, TINY, VARIANTS

LLAMA = {
    **TINY, "num_attention_heads": 4, "num_key_value_heads": 2, "norm_type": "rmsnorm",
    "qk_norm": True, "mlp_type": "glu", "position_embedding_type": "rope", "attention_bias": False,
}  # fmt: skip
FITTED = [name for name in VARIANTS if name != "softmax"]


def pair(kind="cosformer", head="ForMaskedLM", student=None, **fields):
    """A teacher with a softmax in every layer, and a student with the same weights."""
    fields = {**(LLAMA if head == "ForCausalLM" else TINY), **fields}
    config_class = VARIANTS[kind][0]
    name = config_class.__name__.removesuffix("Config") + head
    torch.manual_seed(0)
    old = config_class(**fields, layer_attention="softmax")
    teacher = getattr(hla, name)(old)
    torch.manual_seed(1)
    new = getattr(hla, name)(config_class(**fields, **OWN.get(kind, {}), **(student or {})))
    new.load_state_dict(teacher.state_dict(), strict=False)
    return teacher.eval(), new.eval()


def text(count=4, rows=4, length=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 100, (count, rows, length), generator=generator)
    return [{"input_ids": batch} for batch in ids]


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def changed(model, before):
    return {name for name, tensor in model.state_dict().items() if not tensor.equal(before[name])}


def learn(teacher, student, batches=None, **keywords):
    keywords = {"steps": 12, "learning_rate": 1e-2, **keywords}
    batches = text() if batches is None else batches
    return transfer_attention(teacher, student, batches, **keywords)


@pytest.mark.parametrize("kind", FITTED)
def test_the_loss_falls_and_only_attention_moves(kind):
    teacher, student = pair(kind)
    old, before = weights(teacher), weights(student)
    result = learn(teacher, student, evaluation=text(2, seed=5))
    assert all(result.after[i] < 0.95 * result.before[i] for i in (0, 1))
    assert not changed(teacher, old)
    parts = ["q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias"]
    parts += {"nystrom": ["mechanism.conv.weight"], "transnormer": ["mechanism.rotary.theta"]}.get(
        kind, []
    )
    moved = {f"model.layers.{i}.self_attn.{part}" for i in (0, 1) for part in parts}
    assert changed(student, before) == moved
    assert student.lm_head.weight.data_ptr() == student.model.embed_tokens.weight.data_ptr()


def test_projections_move_as_named_with_their_norms():
    for trained, parts in (("vo", ["v_proj", "o_proj"]), ("q", ["q_proj", "q_norm"])):
        teacher, student = pair(head="ForCausalLM")
        before = weights(student)
        result = learn(teacher, student, trained=trained)
        moved = {f"model.layers.{i}.self_attn.{part}.weight" for i in (0, 1) for part in parts}
        assert changed(student, before) == moved
        assert result.trained == trained


def test_layers_that_are_alike_are_left_alone():
    teacher, student = pair(
        "linear_transformer", "ForCausalLM", num_hidden_layers=3, hidden_dropout_prob=0.0,
        student={"layer_attention": ["softmax", "linear_transformer", "softmax"]},
    )  # fmt: skip
    # A dropout is no part of what a layer computes at rest.
    student.model.config.attention_probs_dropout_prob = 0.1
    before = weights(student)
    result = learn(teacher, student)
    assert result.left_alone == [0, 2]
    assert result.mechanisms == {1: ("softmax", "linear_transformer")}
    assert list(result.losses) == list(result.before) == list(result.after) == [1]
    assert all(name.startswith("model.layers.1.self_attn.") for name in changed(student, before))


def test_the_loss_is_that_of_the_teachers_hidden_states():
    teacher, student = pair()
    (batch,) = text(1)
    result = learn(teacher, student, [batch], steps=1, warmup_share=0.0)
    _, student = pair()
    states = teacher(**batch, output_hidden_states=True).hidden_states
    tokens = {"key_mask": None, "query_positions": None, "query_segments": None}
    for i in (0, 1):
        # Behind a post-norm block stands what enters the next one.
        new, old = (m.model.layers[i].self_attn(states[i], tokens)[0] for m in (student, teacher))
        wanted = ((new - old).norm() / old.norm()) ** 2
        assert result.before[i] == pytest.approx(wanted.item(), rel=1e-5)
        assert result.losses[i] == [pytest.approx(wanted.item(), rel=1e-5)]


@pytest.mark.parametrize(("head", "side"), [("ForMaskedLM", "right"), ("ForCausalLM", "left")])
def test_pads_count_for_nothing(head, side):
    teacher, student = pair(head=head)
    (plain,) = text(1, rows=3, length=11)
    pads = (5, 0) if side == "left" else (0, 5)
    ids = nn.functional.pad(plain["input_ids"], pads, value=1)
    mask = nn.functional.pad(torch.ones(3, 11).long(), pads)
    results = [
        learn(*copy.deepcopy((teacher, student)), [batch], steps=4)
        for batch in (plain, {"input_ids": ids, "attention_mask": mask})
    ]
    for i in (0, 1):
        assert results[1].losses[i] == pytest.approx(results[0].losses[i], rel=1e-4)


@pytest.mark.parametrize("head", ["ForMaskedLM", "ForCausalLM"])
def test_packed_documents_are_like_padded_rows(head):
    teacher, student = pair(head=head)
    (batch,) = text(1, rows=2, length=9)
    ids, lengths = batch["input_ids"], (4, 9)
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    packed = {
        "input_ids": ids[mask][None],
        "seq_idx": torch.repeat_interleave(torch.tensor([0, 1]), torch.tensor(lengths))[None],
    }
    padded = {"input_ids": ids, "attention_mask": mask}
    one, other = (
        learn(*copy.deepcopy((teacher, student)), [each], steps=4) for each in (packed, padded)
    )
    for i in (0, 1):
        assert one.losses[i] == pytest.approx(other.losses[i], rel=1e-4)


def test_sixteen_bits_are_trained_in_thirty_two():
    teacher, student = pair(head="ForCausalLM")
    rounded = copy.deepcopy(student).to(torch.bfloat16)
    student, teacher = copy.deepcopy(rounded).float(), copy.deepcopy(teacher).bfloat16().float()
    # Below half a unit in the last place of bf16 a step would be lost.
    for each in (student, rounded):
        learn(teacher, each, learning_rate=1e-4)
    for name, tensor in rounded.state_dict().items():
        assert tensor.dtype == torch.bfloat16
        assert tensor.equal(student.state_dict()[name].bfloat16()), name
    teacher = teacher.bfloat16()
    result = learn(teacher, rounded)
    assert result.after[0] < 0.95 * result.before[0]


def test_dropout_and_seed_change_nothing():
    found = []
    for seed in (0, 1):
        teacher, student = pair(hidden_dropout_prob=0.5)
        teacher.train(bool(seed))
        student.train(bool(seed))
        teacher.model.layers[1].eval()
        torch.manual_seed(seed)
        result = learn(teacher, student, trained="qkvo")
        found.append((weights(student), result.losses))
        assert teacher.training == student.training == bool(seed)
        assert not teacher.model.layers[1].training
        assert teacher.model.layers[0].training == bool(seed)
    assert found[0][1] == found[1][1]
    assert all(tensor.equal(found[1][0][name]) for name, tensor in found[0][0].items())


def test_frozen_parameters_and_gradients_stay_as_they_are():
    teacher, student = pair()
    student.requires_grad_(False)
    learn(teacher, student)
    for model, wanted in ((teacher, True), (student, False)):
        assert {p.requires_grad for p in model.parameters()} == {wanted}
        assert all(p.grad is None for p in model.parameters())
        assert not any(module._forward_hooks for module in model.modules())


def test_batches_are_read_again_and_labels_left_out():
    teacher, student = pair()
    seen = []
    labelled = [{**batch, "labels": batch["input_ids"]} for batch in text(2)]
    losses = learn(
        teacher, student, labelled, steps=5, callback=lambda *call: seen.append(call)
    ).losses
    assert [step for step, _ in seen] == [1, 2, 3, 4, 5]
    assert [of_step[1] for _, of_step in seen] == losses[1]
    _, student = pair()
    assert learn(teacher, student, iter(text(2) * 3), steps=5).losses == losses


def test_the_rate_rises_first_and_gradients_are_cut():
    (batch,) = text(1)
    found = {}
    for share, longest in ((0.2, 1.0), (0.0, 1.0), (0.0, 1e-4)):
        keywords = {"steps": 10, "warmup_share": share, "max_grad_norm": longest}
        found[share, longest] = learn(*pair(), [batch], **keywords).losses[0]
    warm, cold, cut = found.values()
    assert warm[0] == warm[1] != warm[2]
    assert cold[0] != cold[1]
    assert cut[0] == cold[0]
    assert cut[2:] != cold[2:]


def unlike(name):
    """Two models that do not fit, and the words for it."""
    teacher, student = pair()
    if name == "foreign":
        config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
        return BertModel(config), student, "takes models of hf_linear_attn; got BertModel"
    if name == "direction":
        return teacher, pair(head="ForCausalLM")[1], "is_decoder is False in the teacher"
    if name == "layers":
        return teacher, pair(num_hidden_layers=3)[1], "num_hidden_layers is 2 in the teacher"
    if name == "weights":
        student.model.layers[1].mlp.up_proj.weight.data[0, 0] += 1
        return teacher, student, r"layers\.1\.mlp\.up_proj\.weight differs"
    if name == "chunk":
        other = copy.deepcopy(student)
        other.model.config.chunk_size = 8
        return student, other, r"no attention to transfer.*every layer \(cosformer\)"
    if name == "adapter":
        student.model.layers[0].self_attn.k_proj = nn.Sequential(nn.Linear(32, 32))
        return teacher, student, "k_proj of layer 0 is a Sequential.*merge_and_unload"
    return teacher, copy.deepcopy(teacher), r"no attention to transfer.*every layer \(softmax\)"


@pytest.mark.parametrize(
    "name", ["foreign", "direction", "layers", "weights", "chunk", "adapter", "mechanism"]
)
def test_models_that_do_not_fit_are_refused(name):
    teacher, student, words = unlike(name)
    with pytest.raises(ValueError, match=words):
        learn(teacher, student)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"steps": 0}, "steps: got 0"),
        ({"learning_rate": -1.0}, "learning_rate: got -1.0"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm: got nan"),
        ({"warmup_share": 1.0}, "warmup_share: got 1.0"),
        ({"trained": "qx"}, "letters of 'qkvo'.*'qx'"),
        ({"trained": ""}, "letters of 'qkvo'"),
        ({"trained": "qq"}, "letters of 'qkvo', each once"),
        ({"evaluation": []}, "evaluation holds no batch"),
        ({"batches": iter(text(2))}, "batches ended after 2 of 12 steps"),
        ({"batches": []}, "batches ended after 0 of 12 steps"),
        ({"batches": text(1, length=40)}, "max_position_embeddings"),
        ({"learning_rate": 1e30}, "is no number at step [2-9]"),
        (
            {"batches": [{**text(1)[0], "attention_mask": torch.zeros(4, 16).long()}]},
            "no number on the evaluation batches.*without a token",
        ),
    ],
)
def test_after_an_error_the_student_is_as_it_was(keywords, words):
    teacher, student = pair()
    old, before = weights(teacher), weights(student)
    with pytest.raises(ValueError, match=words):
        learn(teacher, student, **{"warmup_share": 0.0, **keywords})
    assert not changed(student, before)
    assert not changed(teacher, old)
    assert not any(module._forward_hooks for module in teacher.modules())


def test_a_horizon_the_text_leaves_is_refused():
    """The student's trunk never runs here, and must not be what looks at positions."""
    teacher, student = pair(head="ForCausalLM", student={"cos_horizon": 8})
    before = weights(student)
    with pytest.raises(ValueError, match="outside cosFormer's horizon of 8 tokens"):
        learn(teacher, student)
    assert not changed(student, before)


def test_what_is_reported_is_measured_on_the_weights_that_are_kept():
    teacher, student = pair(head="ForCausalLM")
    teacher, student = teacher.bfloat16(), student.bfloat16()
    batch = text(1)[0]
    # So small that most steps are rounded away.
    result = learn(teacher, student, [batch], learning_rate=2e-5)
    again = learn(teacher, student, [batch], learning_rate=1e-30, steps=1)
    for i, loss in result.after.items():
        assert again.before[i] == pytest.approx(loss, rel=1e-6)
