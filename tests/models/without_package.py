"""A program for processes that lack the package: it loads exported models and checks what they say.

    python without_package.py FOLDER…

Each folder, or name on the Hub, has an `expected.pt` where EXPECTED says: {"auto": class,
"inputs": …, "logits": …, "text": prompt or None}. Imports nothing of this repository.
"""

import os
import sys


class _Refuse:
    """The package cannot be found, wherever it is installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_linear_attn":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def load(name, path, **options):
    import transformers

    loader = getattr(transformers, name)
    return loader.from_pretrained(path, trust_remote_code=True, **options).eval()


def scores(output):
    import torch

    if "start_logits" in output:
        return torch.stack((output.start_logits, output.end_logits), -1)
    return output.logits if "logits" in output else output.last_hidden_state


def check(path, expected):
    import torch
    from transformers import AutoTokenizer

    model = load(expected["auto"], path, dtype="auto")
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    found = scores(model(**expected["inputs"]))
    assert found.dtype == expected["logits"].dtype
    assert torch.equal(found, expected["logits"]), path
    if expected.get("text") is not None:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=True)
        assert tokenizer(expected["text"])["input_ids"] == expected["ids"]
        run_pipeline(path, expected, tokenizer)
    return model


def run_pipeline(path, expected, tokenizer):
    import torch
    from transformers import pipeline

    if expected["auto"] == "AutoModelForMaskedLM":
        run = pipeline("fill-mask", model=path, trust_remote_code=True, device="cpu")
        assert [x["token"] for x in run(expected["text"])] == expected["answer"]
        return
    run = pipeline("text-generation", model=path, trust_remote_code=True, device="cpu")
    options = {"max_new_tokens": 8, "do_sample": False}
    [answer] = run(expected["text"], return_full_text=False, **options)
    inputs = tokenizer([expected["text"]], return_tensors="pt")
    both = [run.model.generate(**inputs, **options, use_cache=use) for use in (True, False)]
    assert torch.equal(*both)
    assert both[0][0].tolist() == expected["answer"]
    new = both[0][0][inputs["input_ids"].shape[1] :]
    assert answer["generated_text"] == tokenizer.decode(new, skip_special_tokens=True)


def refuse_package():
    sys.meta_path.insert(0, _Refuse())
    try:
        import hf_linear_attn  # noqa: F401
    except ModuleNotFoundError:
        return
    raise AssertionError("the package is there")


if __name__ == "__main__":
    refuse_package()
    import torch

    torch.set_num_threads(1)
    for given in sys.argv[1:]:
        table = torch.load(os.path.join(os.environ.get("EXPECTED", given), "expected.pt"))
        for path, expected in table.items():
            check(path, expected)
            sys.stdout.write(f"equal {path}\n")
    assert "hf_linear_attn" not in sys.modules
