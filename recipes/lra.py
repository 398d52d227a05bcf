"""Train and test a classifier on Long Range Arena.

    accelerate launch recipes/lra.py
    accelerate launch recipes/lra.py --task image --data_dir data/cifar-10-batches-py
    accelerate launch recipes/lra.py --task all --preset nystromformer --data_dir data \
        --attention nystrom --output_dir runs/lra

Without arguments it does what `recipes/configs/lra/tiny-cpu.yaml` says: a small cosFormer on short
ListOps expressions that it draws itself, in less than a minute on a CPU. With a task the settings
are those of the preset, `recipes/configs/lra/<preset>/<task>.yaml`; `--config` files and the
command line go over them. The same command again goes on where the run stopped.

Every task trains on its training split, keeps the checkpoint that is best on the validation split,
and tests that one, once. `--task all` runs the tasks of the preset one after the other and prints
their table beside the published results of the same protocol.
"""

import os
from pathlib import Path

from hf_linear_attn.training.lra.suite import carry_out_all, read_runs
from hf_linear_attn.training.program import run_program

RECIPE = os.path.relpath(__file__)
CONFIGS = Path(RECIPE).parent / "configs" / "lra"


def main(argv: list[str]) -> None:
    """One run, or one a task."""
    runs, base = read_runs(argv, CONFIGS)
    carry_out_all(runs, base, RECIPE, CONFIGS)


if __name__ == "__main__":
    run_program(main)
