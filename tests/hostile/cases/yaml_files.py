"""Files of settings: YAML that is none, that would run code, or that says something else."""

from tests.hostile.case import Case
from tests.hostile.given import folder, symlink, write

_LAUGHS = "\n".join(
    ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
)
_MARK = "import os; os.mkdir('run')"

_CONTENTS: list[tuple[str, str, str, str | bytes, str]] = [
    ("python-object", "mlm", "a Python tag that would call a function", "seed: !!python/object/apply:os.mkdir [run]\n", "could not determine a constructor for the tag"),
    ("python-name", "clm", "a Python tag that names a function", "seed: !!python/name:os.system\n", "bad.yaml, line 1: not readable as YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'"),
    ("python-exec", "glue", "a Python tag that would run code", f'seed: !!python/object/apply:exec ["{_MARK}"]\n', "bad.yaml, line 1: not readable as YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/apply:exec'"),
    ("python-module", "lra", "a Python tag that would import a module", "seed: !!python/module:antigravity\n", "bad.yaml, line 1: not readable as YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/module:antigravity'"),
    ("python-tuple", "mlm", "a Python tuple", "seed: !!python/tuple [1, 2]\n", "bad.yaml, line 1: not readable as YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/tuple'"),
    ("own-tag", "mlm", "a tag of one's own", "seed: !vault secret\n", "bad.yaml, line 1: not readable as YAML: could not determine a constructor for the tag '!vault'"),
    ("laughs", "mlm", "anchors that unfold to ten thousand million items", _LAUGHS, "bad.yaml, line 5: not readable as YAML: it unfolds to more than 100,000 values"),
    ("laughs-value", "mlm", "the same as the value of a field", _LAUGHS.replace("\na9:", "\nmodel:"), "bad.yaml, line 5: not readable as YAML: it unfolds to more than 100,000 values"),
    ("laughs-list", "glue", "the same as a list of names", _LAUGHS.replace("\na9: &a9", "\nclass_names:"), "bad.yaml, line 5: not readable as YAML: it unfolds to more than 100,000 values"),
    ("recursive-anchor", "mlm", "an anchor that holds itself", "model: &m {hidden_size: *m}\n", "bad.yaml, line 1: not readable as YAML: it unfolds to more than 100,000 values"),
    ("recursive-list", "mlm", "a list that holds itself", "train_file: &f [*f]\n", "bad.yaml, line 1: not readable as YAML: it unfolds to more than 100,000 values"),
    ("unknown-anchor", "clm", "an alias without an anchor", "seed: *none\n", "bad.yaml, line 1: not readable as YAML: found undefined alias 'none'"),
    ("merge-of-text", "mlm", "a merge key over text", "model:\n  <<: text\n", "bad.yaml, line 2: not readable as YAML: expected a mapping or list of mappings for merging, but found scalar"),
    ("twice", "mlm", "a key that stands twice", "seed: 1\nseed: 2\n", "bad.yaml, line 2: not readable as YAML: 'seed' is given more than once"),
    ("twice-inside", "mlm", "a key that stands twice in `model`", "model:\n  hidden_size: 32\n  hidden_size: 64\n", "bad.yaml, line 3: not readable as YAML: 'hidden_size' is given more than once"),
    ("list", "glue", "a list instead of fields", "- seed\n- 1\n", "bad.yaml: expected `field: value` lines, got a list"),
    ("text", "lra", "a word instead of fields", "seed\n", "bad.yaml: expected `field: value` lines, got a str"),
    ("number", "mlm", "a number instead of fields", "42\n", "bad.yaml: expected `field: value` lines, got a int"),
    ("numeric-key", "mlm", "a number as a key", "1: 2\n", "bad.yaml: expected the name of a field, got the key 1"),
    ("list-key", "mlm", "a list as a key", "[a, b]: 2\n", "bad.yaml, line 1: not readable as YAML: found unhashable key"),
    ("null-key", "clm", "nothing as a key", "~: 2\n", "bad.yaml: expected the name of a field, got the key None"),
    ("tab", "mlm", "a tab as indentation", "model:\n\thidden_size: 32\n", "bad.yaml, line 2: not readable as YAML: found character '\\t' that cannot start any token"),
    ("binary", "mlm", "bytes that are no text", b"\x00\x01\x02\xff\xfe", "configuration file 'bad.yaml' cannot be read: 'utf-8' codec can't decode byte 0xff in position 3: invalid start byte"),
    ("control", "mlm", "a control character", "seed: 1\x07\n", 'bad.yaml: not readable as YAML: unacceptable character #x0007: special characters are not allowed in "<unicode string>", position 7'),
    ("latin1", "glue", "Latin-1 instead of UTF-8", "run_name: caf\u00e9\n".encode("latin-1"), "configuration file 'bad.yaml' cannot be read: 'utf-8' codec can't decode byte 0xe9 in position 13: invalid continuation byte"),
    ("utf16", "lra", "UTF-16 with its mark", "seed: 1\n".encode("utf-16"), "configuration file 'bad.yaml' cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ("nul", "mlm", "a NUL", "seed: \x00\n", 'bad.yaml: not readable as YAML: unacceptable character #x0000: special characters are not allowed in "<unicode string>", position 6'),
    ("open-quote", "mlm", "a quote that is never closed", 'run_name: "mine\n', "bad.yaml, line 2: not readable as YAML: found unexpected end of stream"),
    ("open-bracket", "clm", "a bracket that is never closed", "train_file: [a, b\n", "bad.yaml, line 2: not readable as YAML: expected ',' or ']', but got '<stream end>'"),
    ("deep", "mlm", "brackets two thousand deep", "seed: " + "[" * 2_000 + "]" * 2_000 + "\n", "bad.yaml: not readable as YAML: it is nested too deeply"),
    ("two-documents", "mlm", "two documents in one file", "seed: 1\n---\nseed: 2\n", "bad.yaml, line 2: not readable as YAML: but found another document"),
    ("json-lines", "glue", "JSON lines", '{"seed": 1}\n{"seed": 2}\n', "bad.yaml, line 2: not readable as YAML: expected '<document start>', but found '{'"),
    ("markdown", "mlm", "a page of Markdown", "# Title\n\n**bold**: yes\n", "bad.yaml, line 3: not readable as YAML: expected alphabetic or numeric character, but found '*'"),
    ("date", "mlm", "a date for a number", "seed: 2024-01-01\n", "bad.yaml: seed: got datetime.date(2024, 1, 1), expected a whole number"),
    ("bytes-tag", "mlm", "binary data for text", "run_name: !!binary aGVsbG8=\n", "bad.yaml: run_name: got b'hello', expected text or null; put it in quotes"),
    ("base-60", "mlm", "a number to base 60", "seed: 1:30\n", "bad.yaml, line 1: not readable as YAML: '1:30' would be 90; write that, or quotes around a text"),
    ("octal", "clm", "a number with a zero before it", "max_steps: 010\n", "bad.yaml, line 1: not readable as YAML: '010' would be 8; write that, or quotes around a text"),
    ("bool-tag", "mlm", "a word that is tagged as true or false", "group_by_length: !!bool maybe\n", "bad.yaml, line 1: not readable as YAML: 'maybe' cannot be read as !!bool"),
    ("timestamp-tag", "clm", "a word that is tagged as a date", "seed: 1\nrun_name: !!timestamp foo\n", "bad.yaml, line 2: not readable as YAML: 'foo' cannot be read as !!timestamp"),
    ("int-tag", "glue", "nothing that is tagged as a whole number", "seed: !!int ''\n", "bad.yaml, line 1: not readable as YAML: '' cannot be read as !!int"),
    ("float-tag", "lra", "nothing that is tagged as a number", "learning_rate: !!float ''\n", "bad.yaml, line 1: not readable as YAML: '' cannot be read as !!float"),
    ("set-tag", "mlm", "a list that is tagged as a set", "train_file: !!set [a, b]\n", "bad.yaml, line 1: not readable as YAML: a sequence cannot be read as !!set"),
    ("map-tag", "mlm", "a list that is tagged as a mapping", "model: !!map [1, 2]\n", "bad.yaml, line 1: not readable as YAML: a sequence cannot be read as !!map"),
    ("character", "clm", "the number of no character", 'run_name: "\\UFFFFFFFF"\n', "bad.yaml, line 1: not readable as YAML: Python int too large to convert to C int"),
    ("set", "mlm", "a set for a list", "train_file: !!set {a, b}\n", "bad.yaml: train_file: got {…}, expected a list or null"),
    ("unknown-key", "clm", "a key that is misspelt", "lerning_rate: 1e-3\n", "bad.yaml: unknown key 'lerning_rate'; did you mean 'learning_rate'?"),
    ("key-of-another", "mlm", "a key of another recipe", "listops_train: 10\n", "bad.yaml: unknown key 'listops_train'; did you mean 'do_train'?"),
    ("dunder-key", "mlm", "a key that is a method", "__post_init__: 1\n", "bad.yaml: unknown key '__post_init__'"),
    ("nested", "mlm", "fields inside a field", "training:\n  seed: 1\n", "bad.yaml: unknown key 'training'; did you mean 'streaming'?"),
    ("list-value", "mlm", "a list for a number", "seed: [1, 2]\n", "bad.yaml: seed: got [1, 2], expected a whole number"),
    ("mapping-value", "mlm", "a mapping for a number", "learning_rate: {from: 1, to: 2}\n", "bad.yaml: learning_rate: got {'from': 1, 'to': 2}, expected a number"),
    ("null-value", "mlm", "nothing for a number", "learning_rate:\n", "bad.yaml: learning_rate: got None, expected a number"),
    ("text-value", "glue", "a word for a number", "max_length: long\n", "bad.yaml: max_length: got 'long', expected a whole number"),
    ("fraction", "mlm", "half a block", "block_size: 16.5\n", "bad.yaml: block_size: got 16.5, expected a whole number"),
    ("infinite-int", "mlm", "infinity for a whole number", "block_size: .inf\n", "bad.yaml: block_size: got inf, expected a whole number"),
    ("nan-int", "mlm", "not a number for a whole number", "block_size: .nan\n", "bad.yaml: block_size: got nan, expected a whole number"),
    ("yes-int", "mlm", "yes for a whole number", "block_size: yes\n", "bad.yaml: block_size: got True, expected a whole number"),
    ("huge-int", "mlm", "a number of five thousand digits", "block_size: " + "9" * 5000 + "\n", "bad.yaml, line 1: not readable as YAML: '99999999999999999999999999999999999...' cannot be read as !!int: Exceeds the limit (4300 digits)…"),
    ("model-list", "mlm", "a list for `model`", "model: [hidden_size, 32]\n", "bad.yaml: model: got ['hidden_size', 32], expected a mapping or null"),
    ("model-text", "clm", "text for `model`", "model: hidden_size=32\n", "bad.yaml: model: got 'hidden_size=32', expected a mapping or null"),
    ("model-numbers", "mlm", "a number as a field of `model`", "model: {1: 2}\n", "model: got the key 1, expected the name of a field"),
    ("tasks-list", "glue", "a list for `tasks`", "tasks: [rte]\n", "bad.yaml: tasks: got ['rte'], expected a mapping or null"),
    ("tasks-number", "glue", "a number for a task's settings", "tasks: {custom: 3}\nseeds: '1'\n", "tasks: custom: expected `field: value` lines, got 3"),
    ("lra-task-list", "lra", "a list for the task", "task: [listops, text]\n", "task: got ['listops', 'text'], expected one of listops, text, retrieval, image, pathfinder, pathx, all"),
    ("lra-preset-number", "lra", "a number for the preset", "preset: 3\n", "preset: got 3, expected one of official, nystromformer"),
    ("lra-suite-mapping", "lra", "a mapping for the suite", "task: all\nsuite: {listops: 1}\n", "bad.yaml: suite: got {'listops': 1}, expected a list or null"),
    ("output-list", "lra", "a list for the output folder", "output_dir: [a, b]\n", "bad.yaml: output_dir: got ['a', 'b'], expected text or null"),
]  # fmt: skip

CASES = [
    Case(f"yaml-{name}", program, given, says, ("--config", "config.yaml", "bad.yaml"), (write("bad.yaml", content),))
    for name, program, given, content, says in _CONTENTS
] + [
    Case("yaml-missing", "mlm", "a file that is not there", "configuration file 'none.yaml' does not exist", ("--config", "none.yaml")),
    Case("yaml-unreadable", "mlm", "a file that cannot be read", "Input/output error", ("--config", "bad.yaml"), (symlink("bad.yaml", "/proc/self/mem"),)),
    Case("yaml-folder", "lra", "a folder instead of a file", "configuration file 'configs' cannot be read: [Errno 21] Is a directory: 'configs'", ("--config", "configs"), (folder("configs"),)),
    Case("yaml-long-name", "glue", "a name of five thousand letters", "configuration file 'aaa…", ("--config", "a" * 5000)),
    Case("yaml-no-name", "mlm", "no name at all", "argument --config: expected at least one argument", ("--config",)),
    Case("yaml-empty-name", "mlm", "an empty name", "configuration file '.' cannot be read: [Errno 21] Is a directory: '.'", ("--config", "")),
]  # fmt: skip
