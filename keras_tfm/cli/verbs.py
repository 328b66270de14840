"""The verbs for a trained task: evaluate, predict, export; and the demo."""

import json

from keras_tfm.cli.console import say
from keras_tfm.cli.options import add_columns, add_verb, columns_of


def add_demo(verbs):
    """keras-tfm demo."""
    demo = add_verb(
        verbs, "demo", run_demo, "learn to read dates in 30+ languages, end to end, in a few minutes"
    )
    demo.add_argument(
        "--out",
        default="saved_models/dates-transformer",
        metavar="DIR",
        help="where the SavedModel goes, replacing an earlier one (default: %(default)s)",
    )


def add_asking(verbs):
    """keras-tfm evaluate, predict and export."""
    evaluate = add_verb(verbs, "evaluate", run_evaluate, "print one JSON line of a trained task's metrics")
    _add_task_folder(evaluate)
    evaluate.add_argument("--data", nargs="+", required=True, metavar="FILE", help="as for its train")
    add_columns(evaluate)

    predict = add_verb(verbs, "predict", run_predict, "answer a line for each line read")
    _add_task_folder(predict)
    predict.add_argument(
        "--input", default="-", metavar="FILE", help="a text file, or - for standard input (default)"
    )

    export = add_verb(
        verbs, "export", run_export, "write a trained task as one SavedModel: text in, answers out"
    )
    _add_task_folder(export)
    export.add_argument("--out", required=True, metavar="DIR", help="a new folder for the SavedModel")
    export.add_argument("--overwrite", action="store_true", help="replace DIR if it exists")

    convert = add_verb(
        verbs, "convert", run_convert, "a folder of Hugging Face's to a task's, or a task's to one of theirs"
    )
    convert.add_argument("source", metavar="FOLDER", help="a folder of Hugging Face's, or a RUN")
    target = convert.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", metavar="RUN", help="the task folder to write")
    target.add_argument("--to-huggingface", metavar="DIR", help="the folder to write for transformers")
    convert.add_argument("--overwrite", action="store_true", help="replace what exists")


def _add_task_folder(verb):
    verb.add_argument("task_folder", metavar="RUN", help="the folder that train wrote")


def run_evaluate(options):
    """evaluate: one JSON line."""
    task = _load(options)
    if not hasattr(task, "evaluate"):
        raise ValueError(f"{options.task_folder}: the task {task.name!r} has no measure")
    print(json.dumps(task.evaluate(task.read_examples(options.data, columns_of(options, (2, 3))))))


def run_predict(options):
    """predict: a line in, a line out."""
    from keras_tfm.data.sources import read_lines

    task = _load(options)
    lines = list(read_lines(options.input))
    truncated = task.count_truncated(lines)
    if truncated:
        say(f"{truncated} of {len(lines)} lines exceed {task.config.max_length} tokens and are cut there")
    for answer in task.predict(lines):
        print(task.as_line(answer))


def run_export(options):
    """export: a SavedModel folder."""
    from keras_tfm.training.folder import refuse_existing

    refuse_existing(options.out, options.overwrite, "pass --overwrite")
    _load(options).export(options.out, overwrite=options.overwrite)
    say(f"the SavedModel stands in {options.out}")


def run_convert(options):
    """convert: from Hugging Face's folders to RUNs, or back."""
    from keras_tfm import tasks
    from keras_tfm.training.folder import refuse_existing

    target = options.out or options.to_huggingface
    refuse_existing(target, options.overwrite, "pass --overwrite")
    if options.out:
        tasks.from_huggingface(options.source).save(target, options.overwrite)
    else:
        task = tasks.load(options.source)
        if not hasattr(task, "save_huggingface"):
            raise ValueError(f"{options.source}: transformers has no counterpart of the task {task.name!r}")
        try:
            task.save_huggingface(target, options.overwrite)
        except TypeError as error:  # a model that is of no known family
            raise ValueError(str(error)) from None
    say(f"the converted folder stands in {target}")


def run_demo(options):
    """demo: dates written out -> ISO 8601, from training to answers of the SavedModel alone."""
    from keras_tfm.demo import run

    if not run(options.out):
        raise SystemExit(1)


def _load(options):
    from keras_tfm import tasks

    return tasks.load(options.task_folder)
