"""The task that a run's arguments choose: of the table, with the columns named, or a custom one."""

from dataclasses import replace

from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.tasks import LabelForm, Task, find_task


def task_of(args: TaskArguments) -> Task:
    """The one task of a run, with the columns that were named.

    Raises:
        ValueError: several tasks.
    """
    (name,) = args.task_names()
    task = _custom(args) if name == "custom" else find_task(name)
    if args.text_column:
        pair = ((args.text_pair_column,),) if args.text_pair_column else task.text_columns[1:]
        task = replace(task, text_columns=((args.text_column,), *pair))
    elif args.text_pair_column:
        raise ValueError("--text_pair_column needs --text_column beside it")
    if args.label_column and name != "custom":
        usual: LabelForm = next(iter(task.label_columns.values()))
        form = task.label_columns.get(args.label_column, usual)
        task = replace(task, label_columns={args.label_column: form})
    return task


def _custom(args: TaskArguments) -> Task:
    regression = args.problem == "regression"
    metrics = ("pearson", "spearmanr") if regression else ("accuracy",)
    labels = tuple(args.class_names) if args.class_names else None
    return Task(
        "custom",
        "A task of your own",
        (("",),),  # named by text_column
        () if regression else labels,
        tuple(args.metrics) if args.metrics else metrics,
        label_columns={str(args.label_column): "names"},
        submissions={"test": "predictions.tsv"},
        submits_names=not regression,
    )
