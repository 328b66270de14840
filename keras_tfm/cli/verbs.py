"""The verbs for a trained task: evaluate, predict, export; and the demo."""

import argparse
import itertools
import json
from inspect import signature

from keras_tfm.cli.console import say
from keras_tfm.cli.numbers import length, number, positive, seed, whole
from keras_tfm.cli.options import add_columns, add_verb, columns_of, warn_of_untrained


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
    _add_decoding(evaluate)

    predict = add_verb(verbs, "predict", run_predict, "answer a line for each line read")
    _add_task_folder(predict)
    predict.epilog = INPUTS
    predict.formatter_class = argparse.RawDescriptionHelpFormatter
    predict.add_argument(
        "--input",
        default="-",
        metavar="FILE",
        help="a text file, or one as for train (see below), or - for standard input (default)",
    )
    add_columns(predict, "names or numbers from 0 of a table's columns, those of train or all but the label")
    predict.add_argument(
        "--whole", action="store_true", help="read all of it as one text, and print the answer as it is"
    )
    _add_decoding(predict)

    export = add_verb(
        verbs, "export", run_export, "write a trained task as one SavedModel: text in, answers out"
    )
    _add_task_folder(export)
    export.add_argument("--out", required=True, metavar="DIR", help="a new folder for the SavedModel")
    export.add_argument("--overwrite", action="store_true", help="replace DIR if it exists")
    _add_decoding(export)

    convert = add_verb(
        verbs, "convert", run_convert, "a folder of Hugging Face's to a task's, or a task's to one of theirs"
    )
    convert.add_argument("source", metavar="FOLDER", help="a folder of Hugging Face's, or a RUN")
    target = convert.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", metavar="RUN", help="the task folder to write")
    target.add_argument("--to-huggingface", metavar="DIR", help="the folder to write for transformers")
    convert.add_argument("--overwrite", action="store_true", help="replace what exists")

    quantize = add_verb(
        verbs,
        "quantize",
        run_quantize,
        "write a trained task with its weights in 8 bits, a quarter of the size",
    )
    _add_task_folder(quantize)
    quantize.add_argument("--out", required=True, metavar="RUN", help="the task folder to write")
    quantize.add_argument("--overwrite", action="store_true", help="replace what exists")


def _add_task_folder(verb):
    verb.add_argument("task_folder", metavar="RUN", help="the folder that train wrote")


# Options: the fields of `DecodingOptions` that they set, which numbers they take, and their help.
DECODING = (
    ("--beam", "beam_size", whole(1, 1_000), "search with N beams"),
    ("--length-penalty", "length_penalty", number("[-100, 100]"), "of beams, above 1 for longer texts"),
    ("--max-new-tokens", "max_new_tokens", length, "write no more than N tokens"),
    ("--temperature", "temperature", number("(0, 1000]"), "sample, the sharper the lower"),
    ("--top-k", "top_k", positive, "sample among the N likeliest tokens; contrastive search: its candidates"),
    ("--top-p", "top_p", number("(0, 1]"), "sample among the likeliest tokens of this probability together"),
    ("--seed", "seed", seed, "of sampling"),
    ("--contrastive-alpha", "contrastive_alpha", number("[0, 1]"), "contrastive search: shun likeness"),
)


# The epilogue of predict's help.
INPUTS = """\
FILE, plain or .gz or .xz, by the RUN's task; labels in it are passed over, and may be missing:
  translate, summarize   lines, or a .tsv, .csv or .jsonl file, or tfds:NAME[/CONFIG][:VERSION]#SPLIT
  classify               lines (a tab between two texts), or a .tsv, .csv or .jsonl file
  tag                    lines, or CoNLL columns
  answer                 lines: question, tab, context; or JSON in SQuAD's format
  choose                 lines: text, tab, choice, tab, choice, ...; or a .jsonl file
  generate, masked-lm, sentence-vectors   lines; of a folder those of its text files
  classify-images        an image, or a folder of images, or of such folders

Each of these gets one line. It is empty where a text is blank or cannot be answered; which, and why, is
told on standard error.
"""
MOST_TOLD = 20  # inputs without an answer that are told one by one


def _add_decoding(verb):
    group = verb.add_argument_group("for tasks that write text (default: the likeliest token at each step)")
    for option, name, kind, text in DECODING:
        group.add_argument(option, dest=name, type=kind, metavar="N", help=text)


def _decoding(options, method):
    """The options of decoding that were given; ValueError where a task's `method` does not decode."""
    given = {option: name for option, name, *_ in DECODING if getattr(options, name) is not None}
    takes = (parameter.kind is parameter.VAR_KEYWORD for parameter in signature(method).parameters.values())
    if given and not any(takes):
        raise ValueError(f"{', '.join(given)}: {options.verb} of {method.__self__.name!r} decodes no text")
    return {name: getattr(options, name) for name in given.values()}


def run_evaluate(options):
    """evaluate: one JSON line."""
    task = _load(options.task_folder)
    if not hasattr(task, "evaluate"):
        raise ValueError(f"{options.task_folder}: the task {task.name!r} has no measure")
    if not hasattr(task, "read_examples"):
        raise ValueError(f"{options.task_folder}: evaluate reads texts; {task.name!r} is measured in Python")
    decoding = _decoding(options, task.evaluate)
    examples = task.read_examples(options.data, columns_of(options, (2, 3)))
    print(json.dumps(task.evaluate(examples, **decoding)))


def run_predict(options):
    """predict: a line for each line, or example, of a file; or a text for all of it."""
    from keras_tfm.data.sources import read_lines

    task = _load(options.task_folder)
    decoding = _decoding(options, task.predict)
    if options.whole:
        examples, places = ["\n".join(read_lines(options.input))], ["the text"]
    else:
        examples, places = task.read_inputs(options.input, columns_of(options, (1, 2, 3)))
    reasons = task.refusals(examples, **decoding)
    reasons |= {row: "it is blank" for row, x in enumerate(examples) if isinstance(x, str) and not x.strip()}
    if options.whole and reasons:
        raise ValueError(f"the text gets no answer: {reasons[0]}")
    answered = [example for row, example in enumerate(examples) if row not in reasons]
    truncated = task.count_truncated(answered) if hasattr(task, "count_truncated") else 0
    if truncated:
        say(f"{truncated} of {len(examples)} texts exceed {task.config.max_length} tokens and are cut there")
    for row, reason in itertools.islice(sorted(reasons.items()), MOST_TOLD):
        say(f"{places[row]} gets an empty line: {reason}")
    if len(reasons) > MOST_TOLD:
        say(f"{len(reasons) - MOST_TOLD:,} more get an empty line")
    answers = iter(task.predict(answered, **decoding))
    for row in range(len(examples)):
        answer = "" if row in reasons else next(answers)
        is_text = options.whole and isinstance(answer, str)
        print(answer if row in reasons or is_text else task.as_line(answer))


def run_export(options):
    """export: a SavedModel folder."""
    from keras_tfm.training.folder import refuse_existing

    refuse_existing(options.out, options.overwrite, "pass --overwrite")
    task = _load(options.task_folder)
    task.export(options.out, overwrite=options.overwrite, **_decoding(options, task.export_endpoints))
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
        task = _load(options.source)
        if not hasattr(task, "save_huggingface"):
            raise ValueError(f"{options.source}: transformers has no counterpart of the task {task.name!r}")
        try:
            task.save_huggingface(target, options.overwrite)
        except TypeError as error:  # a model that is of no known family
            raise ValueError(str(error)) from None
    say(f"the converted folder stands in {target}")


def run_quantize(options):
    """quantize: a RUN with weights in 8 bits."""
    from keras_tfm.training.folder import refuse_existing

    refuse_existing(options.out, options.overwrite, "pass --overwrite")
    task = _load(options.task_folder, quantization="int8")
    task.save(options.out, options.overwrite, task.is_trained)
    say(f"the task with weights in 8 bits stands in {options.out}")


def run_demo(options):
    """demo: dates written out -> ISO 8601, from training to answers of the SavedModel alone."""
    from keras_tfm.demo import run

    if not run(options.out):
        raise SystemExit(1)


def _load(folder, quantization=None):
    from keras_tfm import tasks

    task = tasks.load(folder, quantization)
    warn_of_untrained(task, folder)
    return task
