"""Saving, loading, tying, resizing, checkpointing, pickling."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from tests.conftest import OWN, TINY, VARIANTS


def tokens(batch=2, length=12, high=90):
    return torch.randint(3, high, (batch, length))


def fill_with_constants(model):
    with torch.no_grad():
        for i, (_, tensor) in enumerate(model.named_parameters()):
            tensor.fill_(0.25 * (i + 1))  # exact in bf16 up to 64


@pytest.mark.parametrize("position", ["learned", "lrpe"])
def test_b28_every_parameter_comes_back_as_saved(make_model, variant, tmp_path, position):
    model = make_model(position_embedding_type=position, qk_norm=True, tie_word_embeddings=False)
    fill_with_constants(model)
    saved = {k: v.clone() for k, v in model.state_dict().items()}
    model.save_pretrained(tmp_path)
    for loader in (VARIANTS[variant][2], AutoModelForMaskedLM):
        for options in ({}, {"dtype": torch.bfloat16}, {"low_cpu_mem_usage": True}):
            loaded, info = loader.from_pretrained(tmp_path, output_loading_info=True, **options)
            assert not any(info.values()), info
            assert type(loaded) is VARIANTS[variant][2]
            state = loaded.state_dict()
            assert state.keys() == saved.keys()
            for name, tensor in saved.items():
                assert torch.equal(state[name], tensor.to(state[name].dtype)), name


@pytest.mark.parametrize("position", ["learned", "rope", "lrpe"])
def test_b28_the_reloaded_function_is_the_saved_one(make_model, tmp_path, position):
    """What is not a parameter has to come back as well: LRPE's reflection is a buffer."""
    model = make_model(position_embedding_type=position)
    ids = tokens()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(input_ids=ids).logits, model(input_ids=ids).logits)


def test_lrpe_that_a_checkpoint_lacks_is_initialised(make_model, tmp_path):
    model = make_model(position_embedding_type="lrpe")
    lrpe = model.model.layers[0].self_attn.mechanism.rotary
    state = {k: v for k, v in model.state_dict().items() if ".rotary." not in k}
    model.save_pretrained(tmp_path, state_dict=state)
    loaded, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert sum(".rotary." in k for k in info["missing_keys"]) == 4
    for layer in loaded.model.layers:
        rotary = layer.self_attn.mechanism.rotary
        assert torch.equal(rotary.theta, lrpe.initial_theta())
        assert rotary.reflection.norm().item() == pytest.approx(1)


@pytest.mark.parametrize("lacking", ["theta", "reflection"])
def test_b28_half_of_lrpe_that_is_there_is_not_drawn_anew(make_model, tmp_path, lacking):
    """What is missing makes Transformers initialise the module that it belongs to."""
    model = make_model(position_embedding_type="lrpe")
    fill_with_constants(model)
    saved = model.state_dict()
    there = [name for name in saved if f".rotary.{lacking}" not in name]
    assert len(there) < len(saved)
    model.save_pretrained(tmp_path, state_dict={name: saved[name] for name in there})
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path).state_dict()
    for name, tensor in saved.items():
        assert torch.equal(loaded[name], tensor) == (name in there), name


def test_lrpe_stays_fp32_in_a_bf16_model(make_model, tmp_path):
    make_model(position_embedding_type="lrpe").save_pretrained(tmp_path)
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    rotary = loaded.model.layers[0].self_attn.mechanism.rotary
    assert {rotary.theta.dtype, rotary.reflection.dtype} == {torch.float32}
    assert loaded.lm_head.weight.dtype == torch.bfloat16
    assert torch.isfinite(loaded(input_ids=tokens()).logits).all()


def test_b28_another_head_changes_only_the_head(make_model, variant, tmp_path):
    model = make_model()
    model.save_pretrained(tmp_path)
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is VARIANTS[variant][1]
    for name, tensor in base.state_dict().items():
        assert torch.equal(tensor, model.model.state_dict()[name]), name
    base.save_pretrained(tmp_path / "base")
    again, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "base", output_loading_info=True)
    assert all(k.startswith("lm_head") for k in info["missing_keys"])
    assert not info["unexpected_keys"]
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, model.model.state_dict()[name]), name


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_logits(tmp_path):
    """Every variant; one process for all of them, for its imports take seconds."""
    ids = tokens()
    for name, (config_class, _, model_class) in VARIANTS.items():
        torch.manual_seed(0)
        model = model_class(config_class(**TINY, **OWN.get(name, {}))).eval()
        model.save_pretrained(tmp_path / name)
        torch.save((ids, model(input_ids=ids).logits), tmp_path / name / "expected.pt")
    program = (
        "import sys, torch, hf_linear_attn\n"
        "from transformers import AutoModelForMaskedLM\n"
        "torch.set_num_threads(1)\n"
        "for folder in sys.argv[1:]:\n"
        "    ids, wanted = torch.load(folder + '/expected.pt')\n"
        "    model = AutoModelForMaskedLM.from_pretrained(folder).eval()\n"
        "    assert torch.equal(model(input_ids=ids).logits, wanted), folder\n"
        "    print('equal')\n"
    )
    folders = [str(tmp_path / name) for name in VARIANTS]
    run = subprocess.run(
        [sys.executable, "-c", program, *folders], check=True, capture_output=True, text=True
    )
    assert run.stdout.split() == ["equal"] * len(VARIANTS)


def test_config_survives_a_round_trip(make_model, tmp_path):
    model = make_model(layer_attention=["softmax", "linear_transformer"], logit_scale=0.5)
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert type(config) is type(model.config)
    loaded, saved = (
        {k: v for k, v in c.to_dict().items() if not k.startswith("_")}
        for c in (config, model.config)
    )
    assert loaded == saved
    assert config.is_decoder is False
    assert config.norm_position == "post"


def test_the_caller_s_config_is_never_changed(make_config, variant):
    config = make_config()
    before = copy.deepcopy(config.to_dict())
    for model_class in VARIANTS[variant][1:]:
        model_class(config)
    assert config.to_dict() == before
    assert config.norm_position is None


@pytest.mark.parametrize("tied", [True, False])
def test_b30_tied_weights_are_stored_once_and_tied_again(make_model, tmp_path, tied):
    model = make_model(tie_word_embeddings=tied)
    ids = tokens()
    wanted = model(input_ids=ids).logits
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        stored = set(file.keys())
    assert len(stored & {"lm_head.weight", "model.embed_tokens.weight"}) == (1 if tied else 2)
    assert [name for name in stored if name.startswith("lm_head.") and "bias" in name] == [
        "lm_head.bias"
    ]
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(input_ids=ids).logits, wanted)
    one, other = loaded.lm_head.weight, loaded.model.embed_tokens.weight
    assert (one.data_ptr() == other.data_ptr()) is tied
    loaded.train()
    loaded(input_ids=ids, labels=ids).loss.backward()
    torch.optim.SGD(loaded.parameters(), lr=0.1).step()
    assert torch.equal(one, other) is tied


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("sizes", [(100, 105), (105, 90)])
def test_b31_resizing_the_vocabulary(make_model, tmp_path, sizes, tied):
    before, size = sizes
    model = make_model(tie_word_embeddings=tied, vocab_size=before)
    torch.nn.init.normal_(model.lm_head.bias)
    old = {k: v.clone() for k, v in model.state_dict().items()}
    model.resize_token_embeddings(size)
    head = model.lm_head
    found = (
        model.get_input_embeddings().weight.shape[0],
        head.weight.shape[0],
        head.bias.shape[0],
        model.config.vocab_size,
    )
    assert found == (size,) * 4
    assert model.model.config.vocab_size == size
    kept = min(size, before)
    for name in ("model.embed_tokens.weight", "lm_head.weight", "lm_head.bias"):
        assert torch.equal(model.state_dict()[name][:kept], old[name][:kept]), name
    ids = tokens(high=kept)
    out = model(input_ids=ids, labels=ids)
    assert torch.isfinite(out.loss)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(input_ids=ids).logits, out.logits)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_b47_gradient_checkpointing_changes_memory_only(make_model, reentrant, dropout):
    ids = tokens()
    results = []
    for checkpointing in (False, True):
        model = make_model(hidden_dropout_prob=dropout, use_cache=True).train()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        torch.manual_seed(7)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        results.append((loss, [p.grad for p in model.parameters()]))
    (plain, grads), (loss, again) = results
    assert abs(loss - plain) <= 1e-6 * abs(plain)
    for a, b in zip(again, grads, strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-7)


def test_b47_checkpointing_really_runs_the_layers_twice(make_model):
    model = make_model().train()
    calls = []
    mechanism = model.model.layers[0].self_attn.mechanism
    mechanism.register_forward_hook(lambda *_: calls.append(1))
    model.activation_checkpointing_enable()
    ids = tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    assert len(calls) == 2


def test_models_survive_pickle_and_deepcopy(make_model):
    model = make_model()
    ids = tokens()
    wanted = model(input_ids=ids).logits
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert torch.equal(twin(input_ids=ids).logits, wanted)
        assert twin.lm_head.weight.data_ptr() == twin.model.embed_tokens.weight.data_ptr()
        assert twin.lm_head.weight.data_ptr() != model.lm_head.weight.data_ptr()


def test_every_parameter_reaches_the_loss(make_model):
    model = make_model().train()
    ids = tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.slow
def test_b42_works_where_triton_does_not_exist():
    """Every variant; one process for all of them, for its imports take seconds."""
    names = [(name, c.__name__, m.__name__) for name, (c, _, m) in VARIANTS.items()]
    program = (
        "import sys, logging\n"
        "sys.modules['triton'] = None\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "import torch, hf_linear_attn as hla\n"
        "ids = torch.randint(3, 100, (2, 12))\n"
        f"models = {{name: getattr(hla, model)(getattr(hla, config)(**{TINY!r}))"
        f" for name, config, model in {names!r}}}\n"
        "for model in models.values():\n"
        "    model(input_ids=ids, labels=ids).loss.backward()\n"
        "assert not [m for m in sys.modules if m.startswith('hf_linear_attn.kernels')]\n"
        "for name, model in models.items():\n"
        "    try:\n"
        "        with hla.use_backend('triton'):\n"
        "            model(input_ids=ids)\n"
        "    except ValueError as error:\n"
        "        assert 'triton' in str(error)\n"
        "        print('refused', name)\n"
    )
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": "", "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    refused = [line.split()[1] for line in run.stdout.splitlines() if line.startswith("refused")]
    assert refused == [name for name in VARIANTS if name != "softmax"]
    assert "runs on backend 'torch', device 'cpu'" in run.stderr
