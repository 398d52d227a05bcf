"""The configs of the classification recipe: they are read, explained, and fit their tasks."""

from pathlib import Path

import pytest
import yaml

from hf_linear_attn.training.glue.arguments import GlueArguments
from hf_linear_attn.training.glue.suite import settings_of
from hf_linear_attn.training.glue.tasks import GLUE_TASKS, TASKS
from hf_linear_attn.training.model_setup import build_config, check_block_size
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_checks import check_training_arguments

CONFIGS = Path(__file__).parents[2] / "recipes" / "configs"
FILES = sorted((CONFIGS / "glue").glob("*.yaml"))
TYPES = tuple(GlueArguments.__annotations__.values())


def parse(file: Path, **layers) -> GlueArguments:
    return GlueArguments(*RecipeParser(TYPES).parse_recipe(["--config", str(file)], **layers))


def test_all_configs_are_there():
    assert [file.name for file in FILES] == [
        "base.yaml", "sst2-small.yaml", "suite-cpu.yaml", "tiny-cpu.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_config_is_accepted_for_every_task_that_it_names(file):
    args = parse(file)
    names = {*args.task.task_names(), *(args.task.tasks or {})}
    for name in names:
        mine = parse(file, under=settings_of(args, name), over={"task": name, "tasks": None})
        check_training_arguments(mine.training, predicts=True)
        check_block_size(build_config(mine.model).settle(), mine.task.max_length, "max_length")
        assert mine.training.report_to == []
        assert mine.training.ddp_find_unused_parameters is False


def test_the_base_config_names_every_small_task():
    tasks = yaml.safe_load((CONFIGS / "glue" / "base.yaml").read_text())["tasks"]
    assert set(tasks) <= set(TASKS)
    assert {"cola", "mrpc", "stsb", "rte", "wnli"} <= set(tasks)
    assert parse(CONFIGS / "glue" / "suite-cpu.yaml").task.task_names() == GLUE_TASKS
