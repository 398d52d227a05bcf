"""Saved models to start from: damaged, dangerous, or those of something else."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.case import Case, Maker
from tests.hostile.given import (
    change_bytes,
    change_json,
    change_weights,
    copy,
    folder,
    remove,
    symlink,
    write,
    write_json,
)

_MODEL = ("--model_name_or_path", "saved")
_NAME = "model.layers.0.self_attn.q_proj.weight"
_WEIGHTS = "saved/model.safetensors"
_INDEX = "saved/model.safetensors.index.json"
_ADAPTER = {"peft_type": "LORA", "target_modules": ["q_proj"], "base_model_name_or_path": "base"}


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        import os

        return os.mkdir, ("run",)


def _start(settings: str = "mlm") -> tuple[Maker, ...]:
    """A sound model, and settings that leave its fields alone."""
    return (copy(settings),) if settings == "lra" else (copy(settings), _without_model_fields)


def _without_model_fields(at: Path, _: Path) -> None:
    import yaml

    settings = yaml.safe_load((at / "config.yaml").read_text())
    settings.pop("model", None)
    (at / "config.yaml").write_text(yaml.safe_dump(settings))


def _saved(
    name: str,
    given: str,
    says: str,
    *damage: Maker,
    program: str = "mlm",
    model: str | None = None,
    argv: tuple[str, ...] = (),
    works: bool = False,
) -> Case:
    model = model or {"glue": "classifier"}.get(program, program)
    return Case(
        f"saved-{name}", program, given, says, (*_MODEL, *argv), (*_start(model), *damage), works
    )


def _nan(tensors: dict[str, Any]) -> None:
    tensors[_NAME][0, 0] = float("nan")


def _all_nan(tensors: dict[str, Any]) -> None:
    for tensor in tensors.values():
        tensor.fill_(float("nan"))


def _first_missing(tensors: dict[str, Any]) -> None:
    del tensors[min(tensors)]


def _infinite(tensors: dict[str, Any]) -> None:
    tensors["model.embed_tokens.weight"][3] = float("inf")


def _missing(tensors: dict[str, Any]) -> None:
    del tensors[_NAME]


def _extra(tensors: dict[str, Any]) -> None:
    tensors["model.layers.7.self_attn.q_proj.weight"] = tensors[_NAME].clone()


def _wrong_shape(tensors: dict[str, Any]) -> None:
    tensors[_NAME] = tensors[_NAME][:8].clone()


def _eight_bits(tensors: dict[str, Any]) -> None:
    import torch

    for name, tensor in tensors.items():
        tensors[name] = tensor.to(torch.float8_e4m3fn)


def _pickled(at: Path, _: Path) -> None:
    (at / "saved/model.safetensors").unlink()
    (at / "saved/pytorch_model.bin").write_bytes(pickle.dumps(_Evil()))


def _pickled_tensors(at: Path, _: Path) -> None:
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(at / "saved/model.safetensors"), at / "saved/pytorch_model.bin")
    (at / "saved/model.safetensors").unlink()


def _behind_a_link(at: Path, _: Path) -> None:
    (at / _WEIGHTS).rename(at / "blob")
    (at / _WEIGHTS).symlink_to("../blob")


def _shard_elsewhere(name: str) -> Maker:
    """The first shard of the index is read from another place."""

    def make(at: Path, store: Path) -> None:
        import json

        index = json.loads((at / _INDEX).read_text())
        first = sorted(set(index["weight_map"].values()))[0]
        (at / "outside.safetensors").write_bytes((at / "saved" / first).read_bytes())
        index["weight_map"] = {
            key: name.format(at=at) if file == first else file
            for key, file in index["weight_map"].items()
        }
        (at / _INDEX).write_text(json.dumps(index))

    return make


def _config(name: str, given: str, says: str, program: str = "mlm", **fields: Any) -> Case:
    return _saved(
        f"config-{name}", given, says, change_json("saved/config.json", **fields), program=program
    )


_HALF: Callable[[bytes], bytes] = lambda b: b[: len(b) // 2]  # noqa: E731
_HEADER_HUGE: Callable[[bytes], bytes] = lambda b: (2**63).to_bytes(8, "little") + b[8:]  # noqa: E731

CASES = [
    _saved("nan", "weights that are no numbers", "model_name_or_path saved: model.layers.0.self_attn.q_proj.weight holds 1 values that are NaN or infinite, so that nothing can be computed from it; take a checkpoint from…", change_weights(_nan)),
    _saved("nan-causal", "weights that are no numbers", "model_name_or_path saved: model.layers.0.self_attn.q_proj.weight holds 1 values that are NaN or infinite, so that nothing can be computed from it; take a checkpoint from…", change_weights(_nan), program="clm"),
    _saved("nan-classifier", "weights that are no numbers", "model_name_or_path saved: model.layers.0.self_attn.q_proj.weight holds 1 values that are NaN or infinite, so that nothing can be computed from it; take a checkpoint from…", change_weights(_nan), program="glue"),
    _saved("infinite", "infinite weights", "model_name_or_path saved: model.embed_tokens.weight holds 32 values that are NaN or infinite, so that nothing can be computed from it; take a checkpoint from before its training diverged.", change_weights(_infinite)),
    _saved("missing", "a missing tensor", "model_name_or_path saved: its weights lack model.layers.0.self_attn.q_proj.weight, which its config asks for; save the model again or choose another one", change_weights(_missing)),
    _saved("missing-causal", "a missing tensor", "model_name_or_path saved: its weights lack model.layers.0.self_attn.q_proj.weight, which its config asks for; save the model again or choose another one", change_weights(_missing), program="clm"),
    _saved("missing-classifier", "a missing tensor", "model_name_or_path saved: its weights lack model.layers.0.self_attn.q_proj.weight, which its config asks for; save the model again or choose another one", change_weights(_missing), program="glue"),
    _saved("extra", "a tensor that the model has no place for", "model_name_or_path saved: its weights hold model.layers.7.self_attn.q_proj.weight, which its config has no place for; save the model again or choose another one", change_weights(_extra)),
    _saved("shape", "a tensor of another shape", "model_name_or_path saved cannot be loaded: model.layers.0.self_attn.q_proj.weight is (8, 32), and its config asks for (32, 32); save the model again or choose another one", change_weights(_wrong_shape)),
    _saved("shape-classifier", "a tensor of another shape", "model_name_or_path saved cannot be loaded: model.layers.0.self_attn.q_proj.weight is (8, 32), and its config asks for (32, 32); save the model again or choose another one", change_weights(_wrong_shape), program="glue"),
    _saved("pickle", "a pickle that would make a folder", "model_name_or_path saved holds pytorch_model.bin and no model.safetensors. A pickle is a program and is not read here; if you trust it, let Transformers make safetensors of it: load the model with its own class and from_pretrained, and save it with save_pretrained.", _pickled),
    _saved("pickle-tensors", "a pickle of tensors instead of safetensors", "model_name_or_path saved holds pytorch_model.bin and no model.safetensors. A pickle is a program and is not read here; if you trust it, let Transformers make safetensors of it: load the model with its own class and from_pretrained, and save it with save_pretrained.", _pickled_tensors, program="clm"),
    _saved("pickle-adapter", "an adapter that is a pickle", "model_name_or_path saved holds adapter_model.bin and no adapter_model.safetensors. A pickle is a program and is not read here; if you trust it, let Transformers make safetensors of it", write_json("saved/adapter_config.json", _ADAPTER), write("saved/adapter_model.bin", pickle.dumps(_Evil()))),
    _saved("adapter-missing", "an adapter's config without its weights", "model_name_or_path: saved/adapter_model.safetensors is missing; save the model again or choose another one", write_json("saved/adapter_config.json", _ADAPTER), program="glue"),
    _saved("adapter-config", "an adapter's config that is cut off", "model_name_or_path: saved/adapter_config.json is not readable JSON; save the model again or choose another one", write("saved/adapter_config.json", "{"), program="clm"),
    _saved("junk-beside-shards", "a file of junk beside sound shards", "model_name_or_path: saved/model.safetensors is damaged or cut off; save the model again or choose another one", write(_WEIGHTS, b"junk" * 5), model="sharded"),
    _saved("float8", "weights of eight bits", "model_name_or_path: saved/model.safetensors holds lm_head.bias as F8_E4M3; expected one of F64, F32, F16, BF16; save the model again or choose another one", change_weights(_eight_bits)),
    _config("dtype-float8", "a dtype in which nothing can be computed", "model_name_or_path saved: dtype is 'float8_e4m3fn'; expected one of float64, float32, float16, bfloat16.", dtype="float8_e4m3fn"),
    _saved("pickle-renamed", "a pickle under the name of safetensors", "model_name_or_path: saved/model.safetensors is damaged or cut off; save the model again or choose another one", write(_WEIGHTS, pickle.dumps(_Evil()))),
    _saved("no-weights", "no weights", "model_name_or_path saved holds no model.safetensors: not a saved model, or one without its weights", remove(_WEIGHTS)),
    _saved("weights-cut", "weights that are cut off", "model_name_or_path: saved/model.safetensors is damaged or cut off; save the model again or choose another one", change_bytes(_WEIGHTS, _HALF)),
    _saved("weights-cut-classifier", "weights that are cut off", "model_name_or_path: saved/model.safetensors is damaged or cut off; save the model again or choose another one", change_bytes(_WEIGHTS, _HALF), program="glue"),
    _saved("weights-empty", "an empty file of weights", "model_name_or_path: saved/model.safetensors is damaged or cut off; save the model again or choose another one", write(_WEIGHTS, b"")),
    _saved("weights-pointer", "a pointer of Git LFS instead of weights", "model_name_or_path: saved/model.safetensors is damaged or cut off; save the model again or choose another one", write(_WEIGHTS, "version https://git-lfs.github.com/spec/v1\n"), program="clm"),
    _saved("weights-header", "a header longer than the file", "model_name_or_path: saved/model.safetensors is damaged or cut off; save the model again or choose another one", change_bytes(_WEIGHTS, _HEADER_HUGE)),
    _saved("weights-folder", "a folder instead of the weights", "model_name_or_path saved holds no model.safetensors: not a saved model, or one without its weights", remove(_WEIGHTS), folder(_WEIGHTS)),
    _saved("weights-device", "a device instead of the weights", "model_name_or_path saved holds no model.safetensors: not a saved model, or one without its weights", remove(_WEIGHTS), symlink(_WEIGHTS, "/dev/zero")),
    _saved("shard-above", "a shard above the folder", "model_name_or_path: saved/model.safetensors.index.json names '../outside.safetensors', which is no .safetensors file beside it; save the model again or choose another one", _shard_elsewhere("../outside.safetensors"), model="sharded"),
    _saved("shard-absolute", "a shard at an absolute place", "model_name_or_path: saved/model.safetensors.index.json names '…/outside.safetensors', which is no .safetensors file beside it; save the model again or choose another one", _shard_elsewhere("{at}/outside.safetensors"), model="sharded"),
    _saved("shard-nul", "a shard whose name has a NUL", "model_name_or_path: saved/model.safetensors.index.json names 'a\\x00.safetensors', which is no .safetensors file beside it; save the model again or choose another one", _shard_elsewhere("a\0.safetensors"), model="sharded"),
    _saved("shard-missing", "a shard that is missing", "model_name_or_path: saved/none.safetensors is missing; save the model again or choose another one", _shard_elsewhere("none.safetensors"), model="sharded"),
    _saved("shard-pickle", "a shard that is a pickle", "model_name_or_path: saved/model.safetensors.index.json names 'pytorch_model.bin', which is no .safetensors file beside it; save the model again or choose another one", _shard_elsewhere("pytorch_model.bin"), write("saved/pytorch_model.bin", pickle.dumps(_Evil())), model="sharded"),
    _saved("shard-empty-name", "a shard without a name", "model_name_or_path: saved/model.safetensors.index.json names '', which is no .safetensors file beside it; save the model again or choose another one", _shard_elsewhere(""), model="sharded"),
    _saved("index-list", "an index that is a list", "model_name_or_path: saved/model.safetensors.index.json is damaged: it holds no mapping; save the model again or choose another one", write_json(_INDEX, ["a"]), model="sharded"),
    _saved("index-broken", "an index that is cut off", "model_name_or_path: saved/model.safetensors.index.json is not readable JSON; save the model again or choose another one", change_bytes(_INDEX, _HALF), model="sharded"),
    _saved("index-numbers", "an index of numbers", "model_name_or_path: saved/model.safetensors.index.json names 1, which is no .safetensors file beside it; save the model again or choose another one", write_json(_INDEX, {"weight_map": {"a": 1}}), model="sharded"),
    _saved("index-short", "an index without its metadata", "model_name_or_path saved cannot be loaded: 'NoneType' object does not support item assignment", change_json(_INDEX, metadata=None), model="sharded"),
    _saved("index-empty", "an index of nothing", "model_name_or_path: saved/model.safetensors.index.json is damaged: it has no weight_map; save the model again or choose another one", write_json(_INDEX, {"weight_map": {}}), model="sharded"),
    _saved("no-config", "no config.json", "model_name_or_path saved holds no config.json: not a saved model", remove("saved/config.json")),
    _saved("config-unreadable", "a config.json that cannot be read", "model_name_or_path: saved/config.json cannot be read (Input/output error); save the model again or choose another one", remove("saved/config.json"), symlink("saved/config.json", "/proc/self/mem")),
    _saved("config-empty", "an empty config.json", "model_name_or_path: saved/config.json is not readable JSON; save the model again or choose another one", write("saved/config.json", "")),
    _saved("config-list", "a config.json that is a list", "model_name_or_path: saved/config.json is damaged: it holds no mapping; save the model again or choose another one", write("saved/config.json", "[]"), program="clm"),
    _saved("generation-cut", "settings of generation that are cut off", "model_name_or_path: saved/generation_config.json is not readable JSON, so that what it sets for generation would be lost; save or download it again, or delete it if nothing of it is wanted", write("saved/generation_config.json", '{"temperature": 0.3'), program="clm"),
    _saved("config-cut", "a config.json that is cut off", "model_name_or_path: saved/config.json is not readable JSON; save the model again or choose another one", change_bytes("saved/config.json", _HALF), program="glue"),
    _saved("config-binary", "a config.json that is binary", "model_name_or_path: saved/config.json is not readable JSON; save the model again or choose another one", write("saved/config.json", b"\x80\x81\x00")),
    _config("type", "an unknown model type", "model_name_or_path saved: The checkpoint you are trying to load has model type `cosfomer` but Transformers does not recognize this architecture. This could be because of…", model_type="cosfomer"),
    _config("type-null", "no model type", "model_name_or_path saved: The checkpoint you are trying to load has model type `None` but Transformers does not recognize this architecture. This could be because of an…", model_type=None),
    _config("type-list", "a list for the model type", "model_name_or_path saved: its config.json cannot be used (unhashable type: 'list'); put a sound one there or choose another model", model_type=["cosformer"]),
    _config("foreign", "a model of another family", "attention cosformer and model_name_or_path saved do not agree: the saved model is of type roberta; convert it first: python scripts/convert.py saved --to cosformer --output runs/converted", model_type="roberta"),
    _config("code", "code of its own", "model_name_or_path saved: it has code of its own, which is never run here", model_type="mine", auto_map={"AutoConfig": "mine.Mine"}),
    _config("huge", "a width of 10**9", "the weights of this model take 4,000,002,240.0 GB, and this machine has … GB of memory: lower the sizes among the model's fields", hidden_size=10**9),
    _config("negative", "a width of -32", "model_name_or_path saved: hidden_size is -32; it must be a number above 0.", program="clm", hidden_size=-32),
    _config("text", "a word for the width", "model_name_or_path saved: CosformerConfig: Field 'hidden_size' expected int, got str (value: 'wide')", program="glue", hidden_size="wide"),
    _config("nan", "an epsilon that is no number", "norm_eps is nan; it must be a number above 0.", norm_eps=float("nan")),
    _config("unknown", "an unknown field", "model_name_or_path saved: CosformerConfig has no field 'hiden_size'. Did you mean 'hidden_size'?", program="clm", hiden_size=32),
    _config("layers", "more layers than there are weights", "model_name_or_path saved: its weights lack model.layers.1.attention_norm.bias, model.layers.1.attention_norm.weight, model.layers.1.mlp.down_proj.bias and 13 more, which…", num_hidden_layers=2),
    _config("layers-huge", "10**9 layers", "num_hidden_layers is 1000000000; it must be 10000 at most.", num_hidden_layers=10**9),
    _config("vocabulary", "a vocabulary of another size", "model_name_or_path saved cannot be loaded: lm_head.bias is (261,), and its config asks for (300,); save the model again or choose another one", vocab_size=300),
    _config("vocabulary-small", "a vocabulary below the tokenizer's", "the model has a vocabulary of 100 and the tokenizer of 261: raise vocab_size of the model or choose another tokenizer", vocab_size=100),
    _config("vocabulary-huge", "a vocabulary of 10**12", "model_name_or_path saved: vocab_size is 1000000000000; it must be 2147483647 at most.", vocab_size=10**12),
    _config("labels", "names of classes that are a list", "model_name_or_path saved: CosformerConfig: Field 'id2label' with value ['a', 'b'] doesn't match any type in (dict[int, str], dict[str, str], <class 'NoneType'>)…", program="glue", id2label=["a", "b"]),
    _config("labels-count", "three classes on weights for two", "task and model do not agree: the classes of saved are 3 (0, 1, 2), those of the task are 2 (0, 1); choose another model, or pass --new_head to keep its encoder alone", program="glue", id2label={"0": "0", "1": "1", "2": "2"}, label2id={"0": 0, "1": 1, "2": 2}),
    _config("dtype", "an unknown dtype", "model_name_or_path saved: dtype is 'float7'; expected one of float64, float32, float16, bfloat16.", dtype="float7"),
    _config("quantization", "an unknown quantisation", "model_name_or_path saved has a quantization_config: packed weights cannot be trained; take the model before it was quantised", quantization_config={"quant_method": "magic"}),
    _config("attn", "an unknown implementation", "model_name_or_path saved: CosformerConfig has no field '_attn_implementation'.", _attn_implementation="magic"),
    _saved("encoder", "an encoder for a causal model", "model_name_or_path saved is one of the encoders, such as masked language models; this recipe trains decoders, causal language models: choose another saved model or another recipe", change_json("saved/config.json", is_decoder=False), program="clm"),
    _saved("decoder", "a decoder for a masked model", "model_name_or_path saved is one of the decoders, causal language models; this recipe trains encoders, such as masked language models: choose another saved model or another recipe", program="mlm", model="clm"),
    _saved("field", "a field that the saved model has not", "hidden_size 64 would change what the saved model saved computes (it has 32); only hidden_dropout_prob, attention_probs_dropout_prob, chunk_size can be changed on a saved model", argv=("--config_overrides", "hidden_size=64")),
    _saved("attention", "another attention than the saved model's", "attention softmax and model_name_or_path saved do not agree: the saved model is of type cosformer; pass --attention cosformer, or convert it first: python…", argv=("--attention", "softmax")),
    _saved("roberta", "a RoBERTa that was not converted", "attention cosformer and model_name_or_path saved do not agree: the saved model is of type roberta; convert it first: python scripts/convert.py saved --to cosformer --output runs/converted", model="roberta"),
    Case("saved-empty", "mlm", "an empty folder", "model_name_or_path saved holds no config.json: not a saved model", _MODEL, (folder("saved"),)),
    Case("saved-file", "clm", "a file", "model_name_or_path text.txt is a file; give the folder of a saved model", ("--model_name_or_path", "text.txt")),
    Case("saved-nowhere", "mlm", "a folder that is not there", "model_name_or_path ./none is neither a folder with a saved model nor a model that can be reached on the Hub", ("--model_name_or_path", "./none")),
    Case("saved-nul", "mlm", "a name with a NUL", "nul.yaml: model_name_or_path: got 'a\\x00b', expected text without a NUL", ("--config", "config.yaml", "nul.yaml"), (write_json("nul.yaml", {"model_name_or_path": "a\0b"}),)),
    Case("saved-newline", "glue", "a name with a line end", "model_name_or_path a b is neither a folder with a saved model nor a model that can be reached on the Hub", ("--model_name_or_path", "a\nb")),
    Case("saved-empty-name", "mlm", "an empty name", "model_name_or_path: got an empty text; leave it out, or name one", ("--model_name_or_path", "")),
    Case("saved-hub-dots", "clm", "a name on the Hub that climbs", "model_name_or_path ../../../models/none is neither a folder with a saved model nor a model that can be reached on the Hub", ("--model_name_or_path", "../../../models/none")),
    Case("saved-hub-slashes", "mlm", "a name on the Hub with three parts", "model_name_or_path a/b/c is neither a folder with a saved model nor a model that can be reached on the Hub", ("--model_name_or_path", "a/b/c")),
    Case("saved-hub-url", "mlm", "an address instead of a name", "model_name_or_path https://example.org/model is neither a folder with a saved model nor a model that can be reached on the Hub", ("--model_name_or_path", "https://example.org/model")),
    Case("saved-hub-long", "glue", "a name on the Hub of five thousand letters", "[Errno 36] File name too long: 'aaa…", ("--model_name_or_path", "a" * 5000)),
    Case("saved-lra", "lra", "a model of another recipe", "model_name_or_path saved is of type cosformer; expected a model that this recipe has saved, linear_attn_lra", _MODEL, _start("mlm")),
    Case("saved-lra-missing", "lra", "a model that is not there", "model_name_or_path ./none cannot be read: Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start or end with '-' or '.' and the maximum length is 96: './none'.", ("--model_name_or_path", "./none")),
    Case("saved-lra-config", "lra", "a config.json that is cut off", "model_name_or_path: saved/config.json is not readable JSON; save the model again or choose another one", _MODEL, (*_start("mlm"), change_bytes("saved/config.json", _HALF))),
    Case("saved-lra-pickle", "lra", "a pickle instead of weights", "model_name_or_path saved holds pytorch_model.bin and no model.safetensors. A pickle is a program and is not read here; if you trust it, let Transformers make safetensors of it: load the model with its own class and from_pretrained, and save it with save_pretrained.", _MODEL, (*_start("lra"), _pickled)),
    Case("saved-lra-nan", "lra", "weights that are no numbers", "model_name_or_path saved: cls holds 16 values that are NaN or infinite, so that nothing can be computed from it; take a checkpoint from before its training diverged.", _MODEL, (*_start("lra"), change_weights(_all_nan))),
    Case("saved-lra-missing-tensor", "lra", "a missing tensor", "model_name_or_path saved: its weights lack cls, which its config asks for; save the model again or choose another one", _MODEL, (*_start("lra"), change_weights(_first_missing))),
    # Unusual, and right: how the cache of the Hub lays its files.
    _saved("symlinks", "weights behind a symbolic link", "Saved in run", _behind_a_link, works=True),
]  # fmt: skip
