"""The generated cards that are kept are whole, valid, and such as the recipes write them now."""

import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results

FOLDER = Path(__file__).parents[1] / "model_cards"
TEMPLATE = FOLDER / "template.md"
CARDS = sorted(path for path in FOLDER.glob("*.md") if path != TEMPLATE)


def headings(path):
    return re.findall(r"^## .*", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_there_is_one():
    assert CARDS


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_a_kept_card_is_whole_and_valid(path):
    text = path.read_text(encoding="utf-8")
    data = ModelCard(text, ignore_metadata_errors=False).data
    assert data.library_name == "transformers"
    assert data.model_name in text
    index = eval_results_to_model_index(data.model_name, data.eval_results)
    assert model_index_to_eval_results(index)[1] == data.eval_results
    assert headings(path) == headings(TEMPLATE)
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    for code in blocks:
        compile(code, str(path), "exec")
    assert "```bibtex" in text
    assert "{{" not in text


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_a_kept_card_names_no_folder_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    for place in re.findall(r'from_pretrained\("(.*?)"\)', text):
        assert not Path(place).is_absolute()
    assert not re.search(r"(?<![\w.])/(home|root|tmp|mnt|srv|Users|data)/", text)
