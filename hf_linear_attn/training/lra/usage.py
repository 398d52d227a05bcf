"""Python lines for the model card: from an input of a task to the model's logits.

Each text has its imports, an empty line, and the lines that make `ids`.
"""

from hf_linear_attn.integrations.model_card import Loading
from hf_linear_attn.training.lra.tasks import LraTask

_LOGITS = """
logits = model({arguments}).logits
print(logits, model.config.id2label[int(logits.argmax())])"""

_LISTOPS = """
import torch
from hf_linear_attn.training.lra.symbols import listops_ids

ids = torch.tensor([listops_ids("[MAX 2 9 ]").tolist()])"""

_TEXT = """
import torch
from hf_linear_attn.training.lra.symbols import byte_ids

ids = torch.tensor([byte_ids("A fine film.".encode())[:{length}].tolist()])"""

_PAIR = """
import torch
from hf_linear_attn.training.lra.symbols import byte_ids
from torch.nn.utils.rnn import pad_sequence

papers = ["The text of a paper.", "The text of another one."]
towers = [torch.tensor(byte_ids(text.encode())[:{length}].tolist()) for text in papers]
ids = pad_sequence(towers, batch_first=True)[None]  # (1, 2, bytes); 0 is padding"""

_IMAGE = """
import numpy as np
import torch
from PIL import Image
from hf_linear_attn.training.lra.images import grey

picture = Image.radial_gradient("L").resize((32, 32))  # or Image.open("picture.png")
pixels = grey(np.asarray(picture.convert("RGB")))
ids = torch.from_numpy(pixels.reshape(1, -1)).long()"""

_SCENE = """
import numpy as np
import torch
from PIL import Image

picture = Image.radial_gradient("L").resize(({side}, {side}))  # or Image.open("picture.png")
pixels = np.array(picture.convert("L"))
ids = torch.from_numpy(pixels.reshape(1, -1)).long()"""

_ALONE = "input_ids=ids"


def loading(task: LraTask, max_length: int) -> Loading:
    """How the card says a model is loaded, and brought from an input to logits.

    Args:
        task: of the model.
        max_length: the model's longest input in symbols.
    """
    code, kind, arguments = {
        "listops": (_LISTOPS, "an expression", _ALONE),
        "text": (_TEXT, "a text", _ALONE),
        "retrieval": (_PAIR, "two texts", "input_ids=ids, attention_mask=(ids != 0).long()"),
        "image": (_IMAGE, "a picture", _ALONE),
        "pathfinder": (_SCENE, "a picture", _ALONE),
        "pathx": (_SCENE, "a picture", _ALONE),
    }[task.name]
    side = 128 if task.name == "pathx" else 32
    imports, _, making = code.strip().partition("\n\n")
    lines = making.format(length=max_length, side=side) + _LOGITS.format(arguments=arguments)
    return Loading(
        "AutoModelForSequenceClassification",
        has_tokenizer=False,
        imports=imports,
        code=lines,
        input_kind=kind,
    )
