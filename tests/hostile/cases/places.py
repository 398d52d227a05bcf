"""Where a run is to live: files, folders of something else, names that cannot be one."""

import os

from tests.hostile.case import Case
from tests.hostile.given import folder, symlink, write, write_json

_UPLOAD = ("--push_to_hub", "--hub_model_id")

CASES = [
    Case("place-file", "mlm", "a file", "output_dir text.txt is a file; choose a folder", ("--output_dir", "text.txt")),
    Case("place-under-file", "clm", "a folder below a file", "output_dir text.txt/run cannot be created: …/text.txt is a file", ("--output_dir", "text.txt/run")),
    Case("place-foreign", "glue", "a folder of something else", "output_dir mine is not empty and has no run.yaml, so it is not a run's folder; put a sound copy in its place if it was one, or choose another output_dir (nothing was changed)", ("--output_dir", "mine"), (write("mine/notes.md", "mine"),)),
    Case("place-foreign-lra", "lra", "a folder of something else", "output_dir mine is not empty and has no run.yaml, so it is not a run's folder; put a sound copy in its place if it was one, or choose another output_dir (nothing was changed)", ("--output_dir", "mine"), (write("mine/notes.md", "mine"),)),
    Case("place-tables", "glue", "a folder with a table of one's own, for several runs", "output_dir mine holds results.csv, and no run of this program; it writes files of these names, so give yours other names or another place, or choose another output_dir (nothing was changed)", ("--output_dir", "mine", "--seeds", "1,2"), (write("mine/results.csv", "mine"),)),
    Case("place-nul", "mlm", "a name with a NUL", "nul.yaml: output_dir: got 'a\\x00b', expected text without a NUL", ("--config", "config.yaml", "nul.yaml"), (write_json("nul.yaml", {"output_dir": "a\0b"}),)),
    Case("place-long", "clm", "a name of five thousand letters", "output_dir aaa…", ("--output_dir", "a" * 5000)),
    Case("place-empty", "mlm", "an empty name", "output_dir . is not empty and has no run.yaml, so it is not a run's folder; put a sound copy in its place if it was one, or choose another output_dir (nothing was changed)", ("--output_dir", "")),
    Case("place-loop", "glue", "a link that leads to itself", 'output_dir loop is a link that leads nowhere; choose a folder', ("--output_dir", "loop"), (symlink("loop", "loop"),)),
    Case("place-dangling", "mlm", "a link that leads nowhere", 'output_dir link is a link that leads nowhere; choose a folder', ("--output_dir", "link"), (symlink("link", "none/none"),)),
    Case("place-device", "lra", "a device", "output_dir /dev/null is a file; choose a folder", ("--output_dir", "/dev/null")),
    Case("place-proc", "mlm", "a place where nothing can be made", "[Errno 2] No such file or directory: '/proc/run'", ("--output_dir", "/proc/run")),
    Case("place-fifo", "mlm", "a pipe", "output_dir pipe is a file; choose a folder", ("--output_dir", "pipe"), (lambda at, _: os.mkfifo(at / "pipe"),)),
    Case("place-data", "mlm", "a folder with data of one's own", "output_dir mine holds a data.json that no run has written, or that was changed since, and a run writes its own there; give that file another name or place, or choose another output_dir (nothing was changed)", ("--output_dir", "mine"), (write_json("mine/data.json", [{"text": "a corpus"}]),)),
    Case("place-arguments", "clm", "settings of one's own in the output folder", "output_dir mine holds a run.yaml that no run has written, or that was changed since, and a run writes its own there; give that file another name or place, or choose another output_dir (nothing was changed)", ("--config", "config.yaml", "mine/run.yaml", "--output_dir", "mine"), (write("mine/run.yaml", "# mine\nseed: 7\n"),)),
    Case("place-run-list", "mlm", "a run whose run.yaml is a list", "old/run.yaml is damaged, so it is not known which run this is; put a sound copy in its place to go on (the same command with another output_dir writes an equal one there…", ("--output_dir", "old"), (write("old/run.yaml", "- a\n"), write("old/model.safetensors", "x"))),
    Case("place-run-tag", "clm", "a run whose run.yaml has a Python tag", "old/run.yaml is damaged, so it is not known which run this is; put a sound copy in its place to go on (the same command with another output_dir writes an equal one there…", ("--output_dir", "old"), (write("old/run.yaml", "seed: !!python/object/apply:os.mkdir [run]\n"), write("old/model.safetensors", "x"))),
    Case("place-run-binary", "glue", "a run whose run.yaml is binary", "old/run.yaml is damaged, so it is not known which run this is; put a sound copy in its place to go on (the same command with another output_dir writes an equal one there…", ("--output_dir", "old"), (write("old/run.yaml", b"\x00\xff"), write("old/model.safetensors", "x"))),
    Case("place-run-folder", "mlm", "a folder instead of run.yaml", "output_dir old is not empty and has no run.yaml, so it is not a run's folder; put a sound copy in its place if it was one, or choose another output_dir (nothing was changed)", ("--output_dir", "old"), (folder("old/run.yaml"), write("old/model.safetensors", "x"))),
    Case("place-run-laughs", "mlm", "a run whose run.yaml unfolds to ten thousand million items", "old/run.yaml is damaged, so it is not known which run this is; put a sound copy in its place to go on (the same command with another output_dir writes an equal one there…", ("--output_dir", "old"), (write("old/run.yaml", "a0: &a0 [a, a, a, a, a, a, a, a, a, a]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))), write("old/model.safetensors", "x"))),
    Case("place-hub-plain", "mlm", "a name on the Hub without its user", "push_to_hub needs hub_model_id as user/name, which the model card gives for loading the model; got 'model'", (*_UPLOAD, "model")),
    Case("place-hub-dots", "clm", "a name on the Hub that climbs", "hub_model_id: got '../me/model', which the Hub refuses: …", (*_UPLOAD, "../me/model")),
    Case("place-hub-space", "mlm", "a name on the Hub with a space", "hub_model_id: got 'me/my model', which the Hub refuses: …", (*_UPLOAD, "me/my model")),
    Case("place-hub-newline", "glue", "a name on the Hub with a line end", "hub_model_id: got 'me/my\\nmodel', which the Hub refuses: …", (*_UPLOAD, "me/my\nmodel")),
    Case("place-hub-git", "mlm", "a name on the Hub that ends in .git", "hub_model_id: got 'me/model.git', which the Hub refuses: …", (*_UPLOAD, "me/model.git")),
    Case("place-hub-parts", "lra", "a name on the Hub with three parts", "hub_model_id: got 'me/my/model', which the Hub refuses: …", (*_UPLOAD, "me/my/model")),
]  # fmt: skip
