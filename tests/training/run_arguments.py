"""The arguments of a run as its folder keeps them, and what lies in a folder."""

from pathlib import Path

from transformers import TrainingArguments

from hf_linear_attn.training.arguments import DataArguments, MaskingArguments, ModelArguments
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_folder import resolve_arguments

ARGUMENTS = (ModelArguments, DataArguments, MaskingArguments, TrainingArguments)


def resolved(folder: Path, *argv: str) -> dict:
    base = ["--output_dir", str(folder), "--use_cpu", "--max_steps", "6"]
    return resolve_arguments(*RecipeParser(ARGUMENTS).parse_recipe([*base, *argv]))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
