"""Exported models for tests, and processes that load them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.models.without_package import scores

ROOT = Path(__file__).parents[2]
WORDS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *(f"w{i}" for i in range(95))]
TEXT = {
    "AutoModelForMaskedLM": "w1 w2 <mask> w9 w30 w4 w17",
    "AutoModelForCausalLM": "w1 w2 w9 w30 w4 w17",
}


def tiny_tokenizer():
    """A word each for the ids of the tiny models."""
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        unk_token="<unk>", mask_token="<mask>", model_max_length=32,
    )  # fmt: skip


def expectation(model, auto, inputs, tokenizer=None):
    """What `without_package.check` compares with."""
    with torch.no_grad():
        found = {"auto": auto, "inputs": inputs, "logits": scores(model(**inputs)), "text": None}
    text = None if tokenizer is None else TEXT.get(auto)
    if text is None:
        return found
    tokens = tokenizer([text], return_tensors="pt")
    ids = tokens["input_ids"][0].tolist()
    if auto == "AutoModelForMaskedLM":
        at = ids.index(tokenizer.mask_token_id)
        answer = model(**tokens).logits[0, at].softmax(-1).topk(5).indices
    else:
        [answer] = model.generate(**tokens, max_new_tokens=8, do_sample=False, use_cache=False)
    return {**found, "text": text, "ids": ids, "answer": answer.tolist()}


def export(folder, model, auto, inputs, tokenizer=None):
    """Save a model with its code and what it says."""
    model.eval().save_pretrained(folder, with_code=True)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    torch.save({str(folder): expectation(model, auto, inputs, tokenizer)}, folder / "expected.pt")


def run_without_package(*paths, home, environment=None):
    """Run `without_package.py` in a process that has neither this repository nor its caches."""
    return _run(["tests/models/without_package.py", *map(str, paths)], home, environment)


def run_python(program, *arguments, home, environment=None):
    """Run a program in a fresh process that has the package; what it printed as JSON."""
    said = _run(["-c", program, *map(str, arguments)], home, environment)
    return json.loads(said.splitlines()[-1])


def _run(words, home, environment):
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    variables |= {"HF_HOME": str(home), "PYTHONPATH": str(ROOT) if words[0] == "-c" else ""}
    run = subprocess.run(
        [sys.executable, *words], cwd=ROOT if words[0] != "-c" else home, text=True,
        capture_output=True, env=variables | (environment or {}),
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
