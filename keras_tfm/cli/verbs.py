"""Verbs for trained tasks, except `predict`: evaluate, export, convert and quantize; and the demo."""

import argparse
import dataclasses
import functools
import json
import shutil
import sys
from inspect import signature
from typing import Annotated, Any

from keras_tfm.asking import ASKED, Asking
from keras_tfm.cli.columns import add_table_options, as_trained, check_columns, layout_of
from keras_tfm.cli.console import quiet_tensorflow, say, tell_untrained, uncollected
from keras_tfm.cli.explained import ERROR_COLUMNS, class_lines, confusion_lines, write_errors
from keras_tfm.cli.generated import add_options, flag_of, given, in_flags
from keras_tfm.cli.outputs import refuse_file, refuse_folder
from keras_tfm.cli.refusals import refuse_missing, task_in
from keras_tfm.cli.tables import check_suffix, new_table
from keras_tfm.configs import Between, Config, Count, Length, Option, kinds_of

Share = Annotated[float, Between(0, 1, is_above=True)]


@dataclasses.dataclass(frozen=True)
class Decoding(Config):
    """How texts are generated: by default as a published model says, else the likeliest token each time."""

    beam_size: Annotated[
        Annotated[int, Between(1, 1_000)] | None, Option("beam search with N beams", flag="--beam")
    ] = None
    length_penalty: Annotated[
        Annotated[float, Between(-100, 100)] | None,
        Option("length penalty of beam search: above 0 favours longer texts"),
    ] = None
    early_stopping: Annotated[
        bool, Option("end beam search as soon as N texts are complete, even if others could become likelier")
    ] = False
    max_new_tokens: Annotated[Length | None, Option("generate at most N tokens")] = None
    temperature: Annotated[
        Annotated[float, Between(0, 1_000, is_above=True)] | None,
        Option("sample at this temperature; lower is more predictable"),
    ] = None
    top_k: Annotated[
        Count | None, Option("sample among the N likeliest tokens; candidates of contrastive search")
    ] = None
    top_p: Annotated[
        Share | None, Option("sample among the likeliest tokens that have this probability together")
    ] = None
    min_p: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Option("sample among the tokens with at least this share of the likeliest one's probability"),
    ] = None
    typical_p: Annotated[
        Share | None,
        Option("sample among the tokens nearest the entropy that have this probability together"),
    ] = None
    seed: Annotated[Annotated[int, Between(0, 2**31, is_open=True)] | None, Option("seed of sampling")] = None
    contrastive_alpha: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Option("contrastive search: weight of the penalty for repetition"),
    ] = None


def add_demo(group: Any, add_verb: Any) -> None:
    """keras-tfm demo."""
    demo = add_verb(
        group, "demo", run_demo, "train, test and export a small translator of dates, in a few minutes"
    )
    demo.add_argument(
        "--out",
        default="saved_models/dates-transformer",
        metavar="FOLDER",
        help="folder for the SavedModel; an earlier one is replaced (default: %(default)s)",
    )
    demo.add_argument(
        "--run",
        dest="run_folder",
        default="runs/dates",
        metavar="RUN",
        help="folder for the trained task; an earlier one is replaced (default: %(default)s)",
    )


def add_evaluate(group: Any, add_verb: Any) -> None:
    """keras-tfm evaluate."""
    evaluate = add_verb(
        group, "evaluate", run_evaluate, "print the metrics of a trained task as one line of JSON"
    )
    add_task_folder(evaluate)
    evaluate.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="FILE",
        help="test data, in a format that `train` of this task reads",
    )
    evaluate.add_argument(
        "--columns",
        metavar="A,B",
        help="a table's columns, by names or numbers from 0 (default: as in the training, if the table has "
        "these names)",
    )
    add_table_options(evaluate)
    evaluate.add_argument(
        "--features",
        metavar="RUN",
        help="of generate-images: also compare made pictures with the data, by the features of this RUN, a "
        "classifier of images for example",
    )
    explained = evaluate.add_argument_group(
        "explanation",
        "Classes are explained on standard error (tag, and what classifies texts, images, videos, points).",
    )
    explained.add_argument(
        "--errors",
        metavar="FILE",
        help="write the worst rows by their loss, 1,000 at most, to a .csv, .tsv (quoted) or .jsonl table",
    )
    explained.add_argument(
        "--plot", metavar="FILE", help="draw which class is taken for which: .png, .svg or .pdf"
    )
    explained.add_argument(
        "--calibration",
        action="store_true",
        help="also print the expected calibration error, from 0 to 1: how far confidence is from accuracy",
    )
    evaluate.add_argument(
        "--overwrite", action="store_true", help="replace files of --errors and --plot that exist"
    )
    add_decoding(evaluate)


def add_others(group: Any, add_verb: Any) -> None:
    """keras-tfm export, convert and quantize."""
    export = add_verb(
        group, "export", run_export, "write a trained task for servers: text or images in, answers out"
    )
    add_task_folder(export)
    export.add_argument("--out", required=True, metavar="FOLDER", help="a new folder for the export")
    export.add_argument(
        "--format",
        default="saved_model",
        metavar="NAME",
        help="saved_model, or without TensorFlow: litert (once TFLite), onnx, openvino; ctranslate2 for "
        "tasks that answer texts by texts (default: %(default)s)",
    )
    export.add_argument(
        "--quantization", metavar="NAME", help="int8: weights in 8 bits, in all formats but saved_model"
    )
    export.add_argument("--overwrite", action="store_true", help="replace FOLDER if it exists")
    add_decoding(export)

    convert = add_verb(
        group,
        "convert",
        run_convert,
        "convert a folder of transformers or timm to a RUN, or a RUN to one of theirs",
    )
    convert.add_argument(
        "source", metavar="MODEL", help="a folder or hub id of transformers or timm, or a RUN"
    )
    target = convert.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", metavar="RUN", help="the RUN to write")
    target.add_argument("--to-huggingface", metavar="FOLDER", help="the folder to write for transformers")
    target.add_argument(
        "--to-timm", metavar="FOLDER", help="the folder to write for timm (image classifiers only)"
    )
    convert.add_argument("--overwrite", action="store_true", help="replace an existing folder")

    quantize = add_verb(
        group,
        "quantize",
        run_quantize,
        "write a trained task with its weights in 8 bits: a quarter of the size",
    )
    add_task_folder(quantize)
    quantize.add_argument("--out", required=True, metavar="RUN", help="the RUN to write")
    quantize.add_argument("--overwrite", action="store_true", help="replace an existing folder")


def add_task_folder(verb: argparse.ArgumentParser) -> None:
    """Add the argument RUN, the folder of a task."""
    verb.add_argument("task_folder", metavar="RUN", help="a folder that train or convert wrote")


def add_decoding(verb: argparse.ArgumentParser) -> None:
    """Add the options of text generation; `decoding_of` reads them."""
    add_options(verb.add_argument_group("decoding", Decoding.__doc__), Decoding)


def decoding_of(
    arguments: argparse.Namespace, name: str, decodes: bool, asking: Any = Asking
) -> dict[str, Any]:
    """The given options of text generation; ValueError unless what is asked of the task `name` `decodes`, or
    its `asking` has a field of that name.
    """
    options = given(arguments, Decoding)
    if not decodes and (others := options.keys() - kinds_of(asking).keys()):
        flags = ", ".join(flag_of(Decoding, name) for name in options if name in others)
        raise ValueError(f"{flags}: the task {name!r} does not generate text")
    return options


def refuse_task(arguments: argparse.Namespace) -> str:
    """The name of the task of RUN; ValueError for a folder that is none, and for options of text generation
    that the task has not, without importing it.
    """
    name = task_in(arguments.task_folder)
    if name in ASKED:
        decoding_of(arguments, name, ASKED[name].writes, type(ASKED[name].asking))
    return name


def loaded(folder: str, quantization: str | None = None) -> Any:
    """The task of a RUN."""
    task_in(folder)  # refused before TensorFlow is imported
    quiet_tensorflow()
    with uncollected():
        from keras_tfm import tasks

        task = tasks.load(folder, quantization)
    tell_untrained(task, folder)
    return task


def run_evaluate(arguments: argparse.Namespace) -> None:
    """evaluate: one JSON line, and on standard error what is behind it."""
    if arguments.errors:
        check_suffix(arguments.errors, "--errors")
    if arguments.plot:
        from keras_tfm.visualize.plots.canvas import picture_kind

        picture_kind(arguments.plot)
    for path in filter(None, (arguments.errors, arguments.plot)):
        refuse_file(path, arguments.data, arguments.overwrite)
    task_in(arguments.task_folder)
    refuse_missing(arguments.data)
    task = loaded(arguments.task_folder)
    if not hasattr(task, "measure"):
        raise ValueError(f"{arguments.task_folder}: the task {task.name!r} has no metrics")
    decoding = decoding_of(arguments, task.name, task.measures_texts)
    if arguments.features is not None:
        if not takes(task.measure, "features"):
            raise ValueError(f"--features: the task {task.name!r} makes no pictures")
        task_in(arguments.features)
        decoding["features"] = arguments.features
    if task.columns:
        as_trained(task, arguments, arguments.data[0])
        check_columns(task, arguments.columns)
    named = {"in_memory": False} if arguments.errors and takes(task.read_files, "in_memory") else {}
    examples = task.read_examples(arguments.data, layout_of(arguments.columns, arguments), **named)
    with in_flags(Decoding):
        measures, judgements = task.judged(examples, **decoding)
    try:
        explain(arguments, task, examples, judgements, measures)
    finally:  # what cannot be written or drawn costs no measure
        print(json.dumps(measures))
    if "baselines" in task.record:
        from keras_tfm.tasks.baselines import in_words

        say(f"in its training, {in_words(task.record['baselines'])}")


def takes(method: Any, name: str) -> bool:
    """Whether a method has a parameter of this `name`."""
    return name in signature(method).parameters


def explain(
    arguments: argparse.Namespace, task: Any, examples: Any, judgements: Any, measures: dict[str, Any]
) -> None:
    """Say, write and draw what is behind the measures, to which --calibration adds one; ValueError for what
    the task does not have.
    """
    for flag, part in (("--errors", "losses"), ("--plot", "confusion"), ("--calibration", "confidences")):
        if getattr(arguments, flag[2:]) and getattr(judgements, part, None) is None:
            raise ValueError(f"{flag}: the task {task.name!r} gives none here: its answers are no classes")
    if judgements is None:
        return
    for line in class_lines(judgements.counts) if judgements.counts else ():
        say(line)
    if judgements.confusion is not None:
        for line in confusion_lines(judgements.labels, judgements.confusion):
            say(line)
    if arguments.calibration:
        from keras_tfm.tasks.judgements import calibration_error

        error = calibration_error(judgements.confidences, judgements.are_right)
        measures["expected_calibration_error"] = round(error, task.digits)
    if arguments.errors:
        with new_table(arguments.errors, ERROR_COLUMNS) as write:
            write_errors(write, examples[0], judgements)
        say(f"the worst rows are in {arguments.errors}")
    if arguments.plot:
        from keras_tfm.visualize import plots

        plots.save(plots.plot_confusion(judgements.confusion, judgements.labels), arguments.plot)
        say(f"the picture is {arguments.plot}")


def run_export(arguments: argparse.Namespace) -> None:
    """export: a folder for servers."""
    from keras_tfm.export.needs import check_format
    from keras_tfm.training.folder import refuse_pattern

    refuse_folder(arguments.out, [arguments.task_folder], arguments.overwrite)
    chosen = {"format": arguments.format, "quantization": arguments.quantization}
    check_format(**chosen)
    if arguments.format == "saved_model":
        refuse_pattern(arguments.out)
    refuse_task(arguments)
    task = loaded(arguments.task_folder)
    decoding = decoding_of(arguments, task.name, task.writes_texts)
    with in_flags(Decoding):
        task.export(arguments.out, overwrite=arguments.overwrite, **chosen, **decoding)
    say(f"the export ({arguments.format}) is in {arguments.out}")


def run_convert(arguments: argparse.Namespace) -> None:
    """convert: from folders of transformers or timm to RUNs, and back."""
    from keras_tfm import tasks
    from keras_tfm.convert.folder import refuse_missing as refuse_missing_folder
    from keras_tfm.training.card import write_card

    target = arguments.out or arguments.to_huggingface or arguments.to_timm
    refuse_folder(target, [arguments.source], arguments.overwrite, as_run=bool(arguments.out))
    if arguments.out:
        refuse_missing_folder(arguments.source)
        quiet_tensorflow()
        tasks.from_huggingface(arguments.source).save(target, arguments.overwrite)
    else:
        task, library = loaded(arguments.source), "timm" if arguments.to_timm else "transformers"
        save = _timm_saver(task) if arguments.to_timm else getattr(task, "save_huggingface", None)
        if save is None:
            raise ValueError(f"{arguments.source}: {library} has no counterpart of the task {task.name!r}")
        try:
            save(target, overwrite=arguments.overwrite)
        except TypeError as error:  # a model of an unknown family
            raise ValueError(str(error)) from None
        if task.record:
            write_card(target, task.card(library))
    say(f"the converted folder is {target}")


def _timm_saver(task: Any) -> Any:
    """A function that writes an image classifier for timm; None for another task."""
    from keras_tfm.convert import save_timm
    from keras_tfm.tasks import ImageClassifier

    if not isinstance(task, ImageClassifier):
        return None
    return functools.partial(
        save_timm, task.model, preprocessing=task.preprocessing, class_names=task.class_names
    )


def run_quantize(arguments: argparse.Namespace) -> None:
    """quantize: a RUN with weights in 8 bits."""
    refuse_folder(arguments.out, [arguments.task_folder], arguments.overwrite, as_run=True)
    task = loaded(arguments.task_folder, quantization="int8")
    task.save(arguments.out, arguments.overwrite)
    say(f"the task with weights in 8 bits is in {arguments.out}")


def run_demo(arguments: argparse.Namespace) -> None:
    """demo: written dates -> ISO 8601, from training to the answers of the exported SavedModel."""
    refuse_folder(arguments.out, [arguments.run_folder], overwrite=True)
    refuse_folder(arguments.run_folder, [arguments.out], overwrite=True, as_run=True)
    quiet_tensorflow()
    from keras_tfm.demo import run

    called = sys.argv[0] if not sys.argv[0].endswith("__main__.py") else "python -m keras_tfm"
    command = "keras-tfm" if shutil.which("keras-tfm") else called
    if not run(arguments.out, arguments.run_folder, command):
        raise SystemExit(1)
