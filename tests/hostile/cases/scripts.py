"""The scripts: what is converted, exported, compared and measured."""

from typing import Any

from tests.hostile.case import Case, Maker
from tests.hostile.cases.checkpoints import (
    _HALF,
    _missing,
    _nan,
    _pickled,
    _pickled_tensors,
    _shard_elsewhere,
    _wrong_shape,
)
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

_WEIGHTS, _CONFIG = "saved/model.safetensors", "saved/config.json"
_GENERATION, _HALF_SETTINGS = "saved/generation_config.json", '{"temperature": 0.3'
_ROBERTA = "roberta.encoder.layer.0.attention.self.query.weight"


def _convert(
    name: str,
    given: str,
    says: str,
    *damage: Maker,
    argv: tuple[str, ...] = (),
    model: str = "roberta",
) -> Case:
    line = ("saved", "--to", "cosformer", "--output", "run", *argv)
    return Case(f"convert-{name}", "convert", given, says, line, (copy(model), *damage))


def _export(
    name: str,
    given: str,
    says: str,
    *damage: Maker,
    argv: tuple[str, ...] = ("--output", "run"),
    model: str = "mlm",
) -> Case:
    return Case(f"export-{name}", "export", given, says, ("saved", *argv), (copy(model), *damage))


def _grid(name: str, given: str, says: str, content: str | bytes, *argv: str) -> Case:
    line = ("--config", "grid.yaml", "--output_dir", "run", *argv)
    return Case(f"ablate-{name}", "ablate", given, says, line, (write("grid.yaml", content),))


_GOOD = """title: a grid
config: config.yaml
metric: {key: eval_loss, label: loss}
axes:
  - name: attention
    values:
      - {name: softmax, arguments: {attention: softmax}}
"""


def _set(name: str, value: Any) -> Maker:
    def change(tensors: dict[str, Any]) -> None:
        tensors[name][0, 0] = value

    return change_weights(change)


def _drop(name: str) -> Maker:
    def change(tensors: dict[str, Any]) -> None:
        del tensors[name]

    return change_weights(change)


def _cut(name: str) -> Maker:
    def change(tensors: dict[str, Any]) -> None:
        tensors[name] = tensors[name][:8].clone()

    return change_weights(change)


CASES = [
    _convert("nan", "weights that are no numbers", "the checkpoint saved: roberta.encoder.layer.0.attention.self.query.weight holds 1 values that are NaN or infinite, so that nothing can be computed from it; take a…", _set(_ROBERTA, float("nan"))),
    _convert("missing", "a missing tensor", "the checkpoint saved is incomplete: it lacks roberta.encoder.layer.0.attention.self.query.weight.", _drop(_ROBERTA)),
    _convert("shape", "a tensor of another shape", "the checkpoint saved cannot be read: You set `ignore_mismatched_sizes` to `False`, thus raising an error. For details look at the above report!", _cut(_ROBERTA)),
    _convert("pickle", "a pickle that would make a folder", "saved holds pytorch_model.bin and no model.safetensors. A pickle is a program and is not read here; if you trust it, let Transformers make safetensors of it: load the model with its own class and from_pretrained, and save it with save_pretrained.", _pickled),
    _convert("pickle-tensors", "a pickle of tensors instead of safetensors", "saved holds pytorch_model.bin and no model.safetensors. A pickle is a program and is not read here; if you trust it, let Transformers make safetensors of it: load the model with its own class and from_pretrained, and save it with save_pretrained.", _pickled_tensors),
    _convert("weights-cut", "weights that are cut off", "the checkpoint saved cannot be read: its file of weights is damaged, not whole, or a pointer of Git LFS in its place (Error while deserializing header: incomplete…", change_bytes(_WEIGHTS, _HALF)),
    _convert("no-weights", "no weights", "the checkpoint saved cannot be read: Error no file named model.safetensors found in directory saved.", remove(_WEIGHTS)),
    _convert("shard-above", "a shard above the folder", "saved/model.safetensors.index.json names '../outside.safetensors'; expected the names of .safetensors files beside it. Nothing was read.", _shard_elsewhere("../outside.safetensors"), model="sharded"),
    _convert("config-cut", "a config.json that is cut off", "saved/config.json is not readable JSON; save or download the checkpoint again", change_bytes(_CONFIG, _HALF)),
    _convert("config-list", "a config.json that is a list", "saved/config.json is damaged: it holds no mapping; save or download the checkpoint again", write(_CONFIG, "[]")),
    _convert("config-type", "an unknown model type", "The checkpoint you are trying to load has model type `magic` but Transformers does not recognize this architecture. This could be because of an issue with the…", change_json(_CONFIG, model_type="magic")),
    _convert("config-code", "code of its own", 'The repository saved contains custom code…', change_json(_CONFIG, model_type="mine", auto_map={"AutoConfig": "mine.Mine"}), write("saved/mine.py", "import os; os.mkdir('run')\n")),
    _convert("generation-cut", "settings of generation that are cut off", "saved/generation_config.json is not readable JSON, so that what it sets for generation would be lost; save or download it again, or delete it if nothing of it is wanted", write(_GENERATION, _HALF_SETTINGS)),
    _convert("generation-list", "settings of generation that are a list", "saved/generation_config.json is damaged: it holds no mapping, so that…", write(_GENERATION, "[1]")),
    _convert("config-negative", "a width of -32", "hidden_size is -32; it must be a number above 0.", change_json(_CONFIG, hidden_size=-32)),
    _convert("config-text", "a word for the width", "the config.json of saved cannot be used: Validation error for field 'hidden_size': TypeError: Field 'hidden_size' expected int, got str (value: 'wide')", change_json(_CONFIG, hidden_size="wide")),
    _convert("config-zero", "no head", "num_attention_heads is 0; it must be a number above 0.", change_json(_CONFIG, num_attention_heads=0)),
    _convert("config-huge", "10**9 layers", "num_hidden_layers is 1000000000; it must be 10000 at most.", change_json(_CONFIG, num_hidden_layers=10**9)),
    _convert("config-vocabulary", "a vocabulary of 10**12", "vocab_size is 1000000000000; it must be 2147483647 at most.", change_json(_CONFIG, vocab_size=10**12)),
    _convert("config-act", "an unknown activation", "this roberta checkpoint has hidden_act='magic', for which the trunk of these models has no place; only hidden_act='gelu' can be converted.", change_json(_CONFIG, hidden_act="magic")),
    _convert("tokenizer", "a tokenizer that is cut off", "the tokenizer of saved cannot be read: Expecting property name enclosed in double quotes: line 205 column 15 (char 3517)", change_bytes("saved/tokenizer.json", _HALF)),
    _convert("tokenizer-list", "a tokenizer that is a list", "the tokenizer of saved cannot be read: 'str' object cannot be interpreted as an integer", write("saved/tokenizer.json", "[]")),
    _convert("tokenizer-settings-list", "settings of a tokenizer that are a list", "the tokenizer of saved cannot be read: 'list' object has no attribute 'get'", write("saved/tokenizer_config.json", "[]")),
    _convert("tokenizer-settings-class", "a number for the class of a tokenizer", "the tokenizer of saved cannot be read: 'int' object has no attribute …", write("saved/tokenizer_config.json", '{"tokenizer_class": 3}')),
    _convert("to", "an attention that is not known", "unknown variant 'cosfomer'; known: cosformer, transnormer, nystrom, linear_transformer, softmax. Did you mean 'cosformer'?", argv=("--to", "cosfomer")),
    _convert("positions", "-1 positions", "max_position_embeddings=-1 is below the checkpoint's 32: its table of positions can be extended and not be cut. Leave it out, or give more; shorter inputs need no shorter table.", argv=("--max_positions", "-1")),
    _convert("positions-huge", "10**30 positions", "max_position_embeddings is 1000000000000000000000000000000; it must be 2147483647 at most.", argv=("--max_positions", str(10**30))),
    _convert("overrides", "a field that is misspelt", "config_overrides: no field 'cos_horizn'. Did you mean 'cos_horizon'?", argv=("--config_overrides", "cos_horizn=3")),
    _convert("overrides-tag", "a Python tag for a value", "override 'cos_horizon', line 1: not readable as YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'", argv=("--config_overrides", "cos_horizon=!!python/name:os.system")),
    _convert("seed-huge", "a seed of 10**30", '--seed: got 1000000000000000000000000000000, expected at least 0 and below 2**32', argv=("--seed", str(10**30))),
    _convert("inside", "an output inside the source", "output saved/new lies in the source, which is never changed", argv=("--output", "saved/new")),
    _convert("taken", "an output that is there", "output mine exists and is not an empty folder; nothing is overwritten: choose another place, or remove it", write("mine/notes.md", "mine"), argv=("--output", "mine")),
    _convert("steps", "fitting without text", "--steps is for the attention transfer: add --distill FILE", argv=("--steps", "3")),
    _convert("distill-empty", "fitting on an empty file", "file 'a.txt' is empty", write("a.txt", ""), argv=("--distill", "a.txt", "--steps", "1")),
    _convert("distill-rate", "fitting at a rate that is no number", "--learning_rate: got nan, expected a number above 0", argv=("--distill", "text.txt", "--steps", "1", "--learning_rate", "nan")),
    _convert("distill-device", "fitting on a device that is not there", "--device: 'magic' cannot be used here (Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, vulkan, mps, meta, hpu, mtia…", argv=("--distill", "text.txt", "--steps", "1", "--device", "magic")),
    _convert("gguf", "a GGUF file that is none", "gguf_file='a.gguf' cannot be read: …. It is damaged, not…", write("saved/a.gguf", "GGUF"), argv=("--gguf_file", "a.gguf")),
    _convert("gguf-above", "a GGUF file above the folder", "--gguf_file ../a.gguf leads out of the checkpoint's folder; name one in it", write("a.gguf", "GGUF"), argv=("--gguf_file", "../a.gguf")),
    Case("convert-file", "convert", "a file instead of a checkpoint", "text.txt is no folder with a checkpoint: it holds no config.json", ("./text.txt", "--to", "cosformer", "--output", "run")),
    Case("convert-empty", "convert", "an empty folder", "saved is no folder with a checkpoint: it holds no config.json", ("./saved", "--to", "cosformer", "--output", "run"), (folder("saved"),)),
    Case("convert-hub", "convert", "a name on the Hub with three parts", "'a/b/c' cannot be the name of a repository; expected name or user/name, of letters, digits, '-', '_' and '.', 96 characters at most.", ("a/b/c", "--to", "cosformer", "--output", "run")),
    _export("nan", "weights that are no numbers", "the weights of saved: model.layers.0.self_attn.q_proj.weight holds 1 values that are NaN or infinite, so that nothing can be computed from it; take a checkpoint from…", change_weights(_nan)),
    _export("missing", "a missing tensor", "the weights of saved lack model.layers.0.self_attn.q_proj.weight, which its config asks for.", change_weights(_missing)),
    _export("shape", "a tensor of another shape", "the weights of saved do not fit its config: model.layers.0.self_attn.q_proj.weight is (8, 32), and (32, 32) is asked for.", change_weights(_wrong_shape)),
    _export("pickle", "a pickle that would make a folder", "saved holds pytorch_model.bin and no model.safetensors. A pickle is a program and is not read here; if you trust it, let Transformers make safetensors of it: load the model with its own class and from_pretrained, and save it with save_pretrained.", _pickled),
    _export("pickle-tensors", "a pickle of tensors instead of safetensors", "saved holds pytorch_model.bin and no model.safetensors. A pickle is a program and is not read here; if you trust it, let Transformers make safetensors of it: load the model with its own class and from_pretrained, and save it with save_pretrained.", _pickled_tensors),
    _export("pickle-adapter", "an adapter that is a pickle", "saved holds adapter_model.bin and no adapter_model.safetensors. A pickle is a program and is not read here", write_json("saved/adapter_config.json", {"peft_type": "LORA"}), write("saved/adapter_model.bin", b"x")),
    _export("weights-cut", "weights that are cut off", "the weights of saved cannot be loaded: they are damaged or cut off (…); save or download them again.", change_bytes(_WEIGHTS, _HALF)),
    _export("shard-above", "a shard above the folder", "saved/model.safetensors.index.json names '../outside.safetensors'; expected the names of .safetensors files beside it. Nothing was read.", _shard_elsewhere("../outside.safetensors"), model="sharded"),
    _export("config-cut", "a config.json that is cut off", "the config of saved cannot be loaded: It looks like the config file at 'saved/config.json' is not a valid JSON file.", change_bytes(_CONFIG, _HALF)),
    _export("config-list", "a config.json that is a list", "Unrecognized model in saved. Should have a `model_type` key in its config.json.", write(_CONFIG, "[]")),
    _export("generation-cut", "settings of generation that are cut off", "saved/generation_config.json is not readable JSON, so that what it sets for generation would be lost; save or download it again, or delete it if nothing of it is wanted", write(_GENERATION, _HALF_SETTINGS)),
    _export("generation-list", "settings of generation that are a list", "saved/generation_config.json is damaged: it holds no mapping, so that…", write(_GENERATION, "[1]")),
    _export("generation-word", "a word for a number of tokens", "saved/generation_config.json cannot be used ('<=' not supported between instances of 'str' and 'int'), so that…", write(_GENERATION, '{"max_new_tokens": "few"}')),
    _export("config-huge", "10**9 layers", "num_hidden_layers is 1000000000; it must be 10000 at most.", change_json(_CONFIG, num_hidden_layers=10**9)),
    _export("config-vocabulary", "a vocabulary of 10**12", "vocab_size is 1000000000000; it must be 2147483647 at most.", change_json(_CONFIG, vocab_size=10**12)),
    _export("config-architecture", "architectures that are numbers", "Field 'architectures' with value [3] doesn't match any type in (list[str], <class 'NoneType'>)…", change_json(_CONFIG, architectures=[3])),
    _export("foreign", "a model of Transformers", "saved is a model of type 'roberta', not one of hf_linear_attn: convert it first.", model="roberta"),
    _export("tokenizer", "a tokenizer that is cut off", "the tokenizer of saved cannot be loaded: Expecting property name enclosed in double quotes: line 205 column 15 (char 3517)", change_bytes("saved/tokenizer.json", _HALF)),
    _export("card", "a card that is not UTF-8", 'the card saved/README.md is not UTF-8 text: …', write("saved/README.md", b"\xff\xfe")),
    _export("link-page", "a page that is a link to a file elsewhere", "saved/conversion.md is a link that leads out of the folder, and what it leads to would be handed on; put a copy in its place, or remove it", symlink("saved/conversion.md", "/etc/passwd")),
    _export("link-card", "a card that is a link to a file elsewhere", "saved/README.md is a link that leads out of the folder, and what it leads to would be handed on; put a copy in its place, or remove it", symlink("saved/README.md", "../text.txt")),
    _export("run-yaml", "a run.yaml with a Python tag", "saved/run.yaml, line 1: not readable as YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'", write("saved/run.yaml", "a: !!python/name:os.system\n")),
    _export("run-yaml-binary", "a binary run.yaml", "configuration file 'saved/run.yaml' cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte", write("saved/run.yaml", b"\xff\xfe\x00")),
    _export("nowhere", "no place to write to", "give --output DIR, --push_to_hub with --hub_model_id ME/NAME, or both", argv=()),
    _export("inside", "an output inside the source", "output saved/new is inside of saved: choose a place beside it", argv=("--output", "saved/new")),
    _export("taken", "an output that is there", "output mine exists and is not an empty folder; nothing is overwritten: choose another place, or remove it", write("mine/a", "mine"), argv=("--output", "mine")),
    _export("output-file", "an output that is a file", "output text.txt exists and is not an empty folder; nothing is overwritten: choose another place, or remove it", argv=("--output", "text.txt")),
    _export("hub-name", "a name on the Hub that cannot be one", "'../me/a' cannot be the name of a repository; expected name or user/name, of letters, digits, '-', '_' and '.', 96 characters at most.", argv=("--push_to_hub", "--hub_model_id", "../me/a")),
    Case("export-file", "export", "a file instead of a model", "text.txt is a file; give the folder of a saved model.", ("text.txt", "--output", "run")),
    Case("export-empty", "export", "an empty folder", "saved holds no saved model: there is no config.json in it.", ("saved", "--output", "run"), (folder("saved"),)),
    _grid("tag", "a grid with a Python tag", "grid.yaml, line 8: not readable as YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.mkdir'", _GOOD + "arguments: !!python/object/apply:os.mkdir [run]\n"),
    _grid("list", "a grid that is a list", "grid.yaml: expected `field: value` lines, got a list", "- a\n"),
    _grid("binary", "a grid that is binary", "configuration file 'grid.yaml' cannot be read: 'utf-8' codec can't decode byte 0xff in position 1: invalid start byte", b"\x00\xff"),
    _grid("twice", "a grid with a key twice", "grid.yaml, line 8: not readable as YAML: 'title' is given more than once", _GOOD + "title: b\n"),
    _grid("no-axes", "a grid without axes", "grid.yaml: expected a list of one or more; got []", "title: a\nconfig: config.yaml\nmetric: {key: a, label: b}\naxes: []\n"),
    _grid("unknown", "a grid with an unknown field", "grid.yaml: unknown field 'axis'; did you mean 'axes'?", _GOOD + "axis: 3\n"),
    _grid("setting", "a grid with a misspelt argument", "attention softmax: settings: unknown key 'attentions'; did you mean 'attention'?", _GOOD.replace("attention: softmax}", "attentions: softmax}")),
    _grid("value", "a grid with a wrong type", "attention softmax: settings: max_steps: got 'many', expected a whole number", _GOOD.replace("attention: softmax}", "max_steps: many}")),
    _grid("config", "a grid on a file that is not there", "configuration file 'none.yaml' does not exist", _GOOD.replace("config.yaml", "none.yaml")),
    _grid("title", "a grid whose title is a list", "grid.yaml: title: got ['a'], expected text", _GOOD.replace("title: a grid", "title: [a]")),
    _grid("metric", "a metric that is a list", "grid.yaml: metric: expected key, label, greater_is_better, pattern, scale, baseline, baseline_label; got ['eval_loss']", _GOOD.replace("{key: eval_loss, label: loss}", "[eval_loss]")),
    _grid("metric-key", "a metric whose key is a list", "metric: key: got ['eval_loss'], expected text", _GOOD.replace("key: eval_loss", "key: [eval_loss]")),
    _grid("pattern-wide", "a pattern of a thousand million characters", "metric: pattern '{:1000000000}' asks for 100 characters or more; expected such as '{:.4f}'", _GOOD.replace("label: loss", "label: loss, pattern: '{:1000000000}'")),
    _grid("many", "a grid of a hundred thousand million runs", "axes: their values make 100,000,000,000 cells, expected 10,000 at most; leave values out", "title: a\nconfig: config.yaml\nmetric: {key: eval_loss, label: loss}\naxes:\n" + "".join(f"  - name: a{n}\n    values: [{', '.join(f'{{name: v{v}, arguments: {{}}}}' for v in range(10))}]\n" for n in range(11))),
    _grid("seeds", "seeds that are no numbers", "seeds: got '1,x', expected numbers with commas between, as 1,2,3", _GOOD, "--seeds", "1,x"),
    _grid("seeds-negative", "a seed below 0", "seeds: got '-1', expected numbers with commas between, as 1,2,3", _GOOD, "--seeds=-1"),
    _grid("recipe", "a recipe that is not there", "recipe: got 'nlm', expected one of clm, glue, lra, mlm; did you mean 'mlm'?", _GOOD, "--recipe", "nlm"),
    _grid("recipe-path", "a path for the recipe", "recipe: got '../scripts/ablate', expected one of clm, glue, lra, mlm", _GOOD, "--recipe", "../scripts/ablate"),
    _grid("bool-tag", "a word that is tagged as true or false", "grid.yaml, line 1: not readable as YAML: 'maybe' cannot be read as !!bool", "title: !!bool maybe\n"),
    Case("ablate-tables", "ablate", "an output folder with a table of one's own", "output_dir mine holds table.md, and no run of this program; it writes files of these names, so give yours other names or another place, or choose another output_dir (nothing was changed)", ("--config", "grid.yaml", "--output_dir", "mine"), (write("grid.yaml", _GOOD), write("mine/table.md", "mine"))),
    Case("ablate-missing", "ablate", "a grid that is not there", "configuration file 'none.yaml' does not exist", ("--config", "none.yaml")),
    Case("benchmark-suite", "benchmark", "a suite that is not known", "--suite 'ops' is unknown; did you mean 'op'?; there are op, layer, model, decode, memory, compare, quick and all", ("--suite", "ops")),
    Case("benchmark-zero", "benchmark", "no round", "--rounds is 0; it must be at least 1", ("--rounds", "0")),
    Case("benchmark-lengths", "benchmark", "lengths that are no numbers", "--lengths is 'long'; give numbers of tokens, such as 1024,4096", ("--lengths", "long")),
    Case("benchmark-length-negative", "benchmark", "a length of -1", "--lengths is '-1'; give numbers of tokens, such as 1024,4096", ("--lengths=-1",)),
    Case("benchmark-heads-huge", "benchmark", "10**9 heads", "--heads is 1000000000; it must be at least 1 and at most 1000000", ("--heads", str(10**9), "--rounds", "1", "--suite", "op", "--lengths", "64")),
    Case("benchmark-length-huge", "benchmark", "a length of 10**30", "--batch 1, --heads 12, --head_dim 64 and 1000000000000000000000000000000 tokens: one tensor takes 3,072,000,000,000,000,000,000,000.0 GB, and this machine has … GB of memory; lower them", ("--lengths", str(10**30), "--suite", "op")),
    Case("benchmark-seed", "benchmark", "a seed of 10**30", "--seed is 1000000000000000000000000000000; it must be at least 0 and at most 4294967295", ("--seed", str(10**30), "--suite", "op", "--lengths", "64")),
    Case("benchmark-device", "benchmark", "a device that is not known", "--device 'magic' is unknown; there are cpu, cuda and cuda:N", ("--device", "magic")),
    Case("benchmark-folder", "benchmark", "a folder for a file", "out is a folder; give the name of a file", ("--json", "out"), (folder("out"),)),
    Case("benchmark-docs", "benchmark", "a page from something else", "a.json is not a result of this program (TypeError: list indices must be integers or slices, not str); give a file that --json has written", ("--docs", "a.json"), (write_json("a.json", [1]),)),
    Case("benchmark-docs-binary", "benchmark", "a page from a binary file", "a.json is not a result of this program (UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte); give a file that --json has written", ("--docs", "a.json"), (write("a.json", b"\xff\x00"),)),
    Case("benchmark-docs-missing", "benchmark", "a page from a file that is not there", "[Errno 2] No such file or directory: 'none.json'", ("--docs", "none.json")),
    Case("benchmark-official", "benchmark", "official code that is not there", "--official none.py: there is no such file; give the path of cosformer.py from the authors' repository (github.com/OpenNLPLab/cosFormer)", ("--suite", "compare", "--official", "none.py")),
    Case("benchmark-official-text", "benchmark", "official code that is none", "--official a.py: it cannot be imported: SyntaxError: invalid syntax (a.py, line 1)", ("--suite", "compare", "--official", "a.py"), (write("a.py", "def ("),)),
]  # fmt: skip
