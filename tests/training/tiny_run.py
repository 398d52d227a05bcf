"""A tiny masked-LM run, for the tests of the trainer and of what it leaves behind."""

import numpy as np
from datasets import Dataset
from transformers import TrainingArguments, set_seed

import hf_linear_attn as hla
from hf_linear_attn.training.collators import MaskedLMCollator, mask_once
from hf_linear_attn.training.trainer import MaskedLMTrainer


def rows(count: int, length: int = 12) -> Dataset:
    random = np.random.default_rng(0)
    ids = random.integers(5, 40, (count, length))
    # Ragged rows, so that padding and different numbers of targets are part of every test.
    return Dataset.from_list(
        [{"input_ids": r[: length - i % 5].tolist()} for i, r in enumerate(ids)]
    )


def make_trainer(folder, tokenizer, train=None, evaluation=None, *, dropout=0.0, seed=0, **args):
    settings = {
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": seed,
        **args,
    }
    arguments = TrainingArguments(output_dir=str(folder), **settings)
    set_seed(seed)
    config = hla.CosformerConfig(
        vocab_size=261,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        initializer_range=0.2,
    )
    model = hla.CosformerForMaskedLM(config)
    collator = MaskedLMCollator(tokenizer, probability=0.3, seed=seed)
    train = rows(24) if train is None else train
    if evaluation is None:
        evaluation = mask_once(rows(7), collator)
    return MaskedLMTrainer(
        model, arguments, collator, train, evaluation, tokenizer, unigram_loss=3.0
    )
