"""Tokenizers: broken, of another kind, of another size, or with code of their own."""

from tests.hostile.case import Case
from tests.hostile.cases.checkpoints import _HALF, _start
from tests.hostile.given import change_bytes, change_json, copy, folder, remove, write, write_json

_JSON, _CONFIG = "tok/tokenizer.json", "tok/tokenizer_config.json"


def _tokenizer(name: str, given: str, says: str, *damage: object, program: str = "mlm") -> Case:
    made = (copy({"clm": "clm"}.get(program, "mlm"), "tok"), *damage)
    return Case(f"tokenizer-{name}", program, given, says, ("--tokenizer_name", "./tok"), made)  # pyright: ignore


CASES = [
    _tokenizer("cut", "a tokenizer.json that is cut off", "tokenizer './tok' cannot be loaded: …", change_bytes(_JSON, _HALF)),
    _tokenizer("empty", "an empty tokenizer.json", "tokenizer './tok' cannot be loaded: …", write(_JSON, ""), program="clm"),
    _tokenizer("list", "a tokenizer.json that is a list", "tokenizer './tok' cannot be loaded: 'str' object cannot be interpreted as an integer", write(_JSON, "[]")),
    _tokenizer("other", "a tokenizer.json of something else", "tokenizer './tok' cannot be loaded: …", write_json(_JSON, {"a": 1})),
    _tokenizer("model", "a kind of tokenizer that is not known", "tokenizer './tok' cannot be loaded: data did not match any variant of untagged enum ModelUntagged at line 1 column 1562", change_json(_JSON, model={"type": "Magic"}), program="glue"),
    _tokenizer("binary", "a binary tokenizer.json", "tokenizer './tok' cannot be loaded: …", write(_JSON, b"\x00\xff\xfe")),
    _tokenizer("no-json", "no tokenizer.json", "tokenizer './tok' cannot be loaded: …", remove(_JSON)),
    _tokenizer("config-cut", "a tokenizer_config.json that is cut off", "tokenizer './tok' cannot be loaded: …", change_bytes(_CONFIG, _HALF)),
    _tokenizer("config-list", "a tokenizer_config.json that is a list", "tokenizer './tok' cannot be loaded: 'list' object has no attribute 'get'", write(_CONFIG, "[]")),
    _tokenizer("code", "code of its own", "tokenizer './tok' cannot be loaded: it has code of its own, which is never run here", change_json(_CONFIG, tokenizer_class="Mine", auto_map={"AutoTokenizer": ["mine.Mine", None]}), write("tok/mine.py", "import os; os.mkdir('run')\n"), remove("tok/config.json")),
    _tokenizer("no-mask", "no token for masks", "tokenizer './tok' has no mask_token; choose one of a masked model", change_json(_CONFIG, mask_token=None)),
    _tokenizer("no-pad", "no token for padding", "tokenizer './tok' has no pad_token; choose one of a masked model", change_json(_CONFIG, pad_token=None), program="glue"),
    _tokenizer("no-edges", "no token for the end of a text", "tokenizer './tok' has no token for the end of a text (eos_token) and none for its start; choose one of a language model", change_json(_CONFIG, eos_token=None, bos_token=None, cls_token=None, sep_token=None), program="clm"),
    Case("tokenizer-larger", "mlm", "more tokens than the model has", "the model has a vocabulary of 100 and the tokenizer of 261: raise vocab_size of the model or choose another tokenizer", ("--tokenizer_name", "./tok", "--config_overrides", "vocab_size=100"), (copy("mlm", "tok"),)),
    Case("tokenizer-of-model-larger", "mlm", "a saved model whose tokenizer has more tokens", "the model has a vocabulary of 261 and the tokenizer of 300: raise vocab_size of the model or choose another tokenizer", ("--model_name_or_path", "saved"), (*_start("mlm"), change_json("saved/tokenizer.json", added_tokens=[{"id": i, "content": f"<{i}>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in range(261, 300)]))),
    Case("tokenizer-of-model-cut", "clm", "a saved model whose tokenizer is cut off", "tokenizer 'saved' cannot be loaded: …", ("--model_name_or_path", "saved"), (*_start("clm"), change_bytes("saved/tokenizer.json", _HALF))),
    Case("tokenizer-of-model-missing", "glue", "a saved model without a tokenizer", "tokenizer 'saved' cannot be loaded: Couldn't instantiate the backend tokenizer from one of:", ("--model_name_or_path", "saved"), (*_start("classifier"), remove("saved/tokenizer.json"), remove("saved/tokenizer_config.json"))),
    Case("tokenizer-empty-folder", "mlm", "an empty folder", "tokenizer './tok' cannot be loaded: …", ("--tokenizer_name", "./tok"), (folder("tok"),)),
    Case("tokenizer-file", "clm", "a file", "tokenizer './text.txt' cannot be loaded: …", ("--tokenizer_name", "./text.txt")),
    Case("tokenizer-missing", "mlm", "a folder that is not there", "tokenizer './none' cannot be loaded: …", ("--tokenizer_name", "./none")),
    Case("tokenizer-nul", "glue", "a name with a NUL", "nul.yaml: tokenizer_name: got 'a\\x00b', expected text without a NUL", ("--config", "config.yaml", "nul.yaml"), (write_json("nul.yaml", {"tokenizer_name": "a\0b"}),)),
    Case("tokenizer-name", "mlm", "a name that climbs", "tokenizer '../../none' cannot be loaded: …", ("--tokenizer_name", "../../none")),
    Case("tokenizer-empty-name", "clm", "an empty name", "tokenizer_name: got an empty text; leave it out, or name one", ("--tokenizer_name", "")),
]  # fmt: skip
