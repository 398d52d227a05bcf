"""What the fork server imports, so that its processes need not."""

import gc
import os
from contextlib import suppress
from importlib import import_module

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import accelerate.utils.fsdp_utils
import datasets
import deepspeed
import matplotlib.figure
import torch
import torch.distributed.fsdp
import transformers.pipelines

import hf_linear_attn
from tests.recipes.mlm_recipe import MLM

# Imported by newer releases when ZeRO begins, and it brings all of Inductor along.
with suppress(ModuleNotFoundError):
    import_module("deepspeed.runtime.zero.muon.muon_optimizer")
datasets.disable_progress_bars()
torch.set_num_threads(1)
# All of this stays to the end: the collector of a fork need not look at it, nor copy its pages.
gc.collect()
gc.freeze()

__all__ = [
    "MLM",
    "accelerate",
    "datasets",
    "deepspeed",
    "hf_linear_attn",
    "matplotlib",
    "torch",
    "transformers",
]
