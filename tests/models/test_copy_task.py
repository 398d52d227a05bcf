"""The copy test: what no model can do that only counts tokens.

Sequences [x; x], some of the second half hidden: the answer stands 32 positions earlier.
"""

import torch

from tests.conftest import VARIANTS

VOCABULARY, LENGTH, MASK = 32, 64, 2


def draw(batch, generator):
    x = torch.randint(3, VOCABULARY, (batch, LENGTH // 2), generator=generator)
    ids = torch.cat((x, x), 1)
    hidden = torch.rand(batch, LENGTH, generator=generator) < 0.3
    hidden[:, : LENGTH // 2] = False
    return ids.masked_fill(hidden, MASK), ids.masked_fill(~hidden, -100)


def build(variant):
    torch.manual_seed(0)
    config_class, _, model_class = VARIANTS[variant]
    config = config_class(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=256, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0,
        norm_position="pre", pad_token_id=1, initializer_range=0.08,
        # Frequencies of 1 to 3 rad a token: lower ones cannot tell a token from its neighbour.
        position_embedding_type="rope", rope_parameters={"rope_theta": 0.33},
    )  # fmt: skip
    return model_class(config)


def accuracy(model, generator):
    ids, labels = draw(256, generator)
    chosen = labels != -100
    with torch.no_grad():
        guess = model(input_ids=ids).logits.argmax(-1)
    return (guess == labels)[chosen].float().mean().item()


def train(model, steps=200):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        ids, labels = draw(32, generator)
        model(input_ids=ids, labels=labels, sparse_prediction=True).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return accuracy(model.eval(), generator)


def silence_attention(model):
    for layer in model.model.layers:
        layer.self_attn.mechanism.register_forward_hook(lambda m, a, out: (out[0] * 0, out[1]))
    return model


def test_every_mechanism_learns_to_copy(variant):
    assert train(build(variant)) >= 0.95


def test_nothing_is_copied_without_attention(variant):
    assert train(silence_attention(build(variant))) <= 0.10
