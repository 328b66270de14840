"""The command `keras-tfm`: answers go to standard output, everything else to standard error.

A mistake of the caller's is one line and exit code 2; KERAS_TFM_TRACEBACK=1 shows where it arose.
"""

import argparse
import json
import os
import sys

from keras_tfm.version import __version__

PAIRS = (
    ".tsv, .csv or .jsonl (plain, .gz, .xz), two parallel text files, or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def parser():
    """The parser of all verbs; each sets `run`, the function that does it."""
    root = Parser("keras-tfm", description="Train, ask, measure and export Transformers.")
    root.add_argument("--version", action="version", version=f"keras-tfm {__version__}")
    verbs = root.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")

    demo = _verb(
        verbs, "demo", run_demo, "learn to read dates in 30+ languages, end to end, in a few minutes"
    )
    demo.add_argument(
        "--out",
        default="saved_models/dates-transformer",
        metavar="DIR",
        help="where the SavedModel goes, replacing an earlier one (default: %(default)s)",
    )

    train = verbs.add_parser(
        "train", help="train a task on your data", description="Train a task on your data."
    )
    tasks = train.add_subparsers(title="tasks", dest="task", required=True, metavar="TASK")
    _add_train_translate(tasks)

    evaluate = _verb(verbs, "evaluate", run_evaluate, "print one JSON line of a trained task's metrics")
    evaluate.add_argument("task_folder", metavar="RUN", help="the folder that train wrote")
    evaluate.add_argument("--data", nargs="+", required=True, metavar="FILE", help=PAIRS)
    evaluate.add_argument("--columns", metavar="A,B", help="names or numbers from 0 of the two columns")

    predict = _verb(verbs, "predict", run_predict, "answer a line for each line read")
    predict.add_argument("task_folder", metavar="RUN", help="the folder that train wrote")
    predict.add_argument(
        "--input", default="-", metavar="FILE", help="a text file, or - for standard input (default)"
    )

    export = _verb(
        verbs, "export", run_export, "write a trained task as one SavedModel: text in, answers out"
    )
    export.add_argument("task_folder", metavar="RUN", help="the folder that train wrote")
    export.add_argument("--out", required=True, metavar="DIR", help="a new folder for the SavedModel")
    export.add_argument("--overwrite", action="store_true", help="replace DIR if it exists")
    return root


def _verb(verbs, name, run, help):
    verb = verbs.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    verb.set_defaults(run=run)
    return verb


def _add_train_translate(tasks):
    translate = _verb(
        tasks, "translate", run_train_translate, "train a model that maps a line of text to a line of text"
    )
    data = translate.add_argument_group("data")
    data.add_argument("--train", nargs="+", required=True, metavar="FILE", help=PAIRS)
    data.add_argument(
        "--valid",
        nargs="+",
        metavar="FILE",
        help="pairs that judge the epochs (default: hold out 2 %% of --train, at most 1,000)",
    )
    data.add_argument("--columns", metavar="A,B", help="names or numbers from 0 of the two columns")
    data.add_argument(
        "--out", required=True, metavar="RUN", help="the folder to write: the best model so far, always whole"
    )
    existing = data.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on after the last finished epoch of RUN")
    existing.add_argument("--overwrite", action="store_true", help="replace RUN if it exists")
    model = translate.add_argument_group("model")
    model.add_argument(
        "--from", dest="start", metavar="RUN", help="go on from the weights and tokenizer of a task folder"
    )
    model.add_argument("--family", default="transformer", help="transformer (default) or recurrent")
    model.add_argument("--size", default="small", help="a size of the family (default: %(default)s)")
    model.add_argument(
        "--config", metavar="FILE", help='JSON with fields of the size to change, {"dropout": 0.3}'
    )
    model.add_argument(
        "--vocabulary",
        type=_positive,
        default=8_000,
        metavar="N",
        help="sub-words at most, fewer for small files (default: %(default)s)",
    )
    model.add_argument(
        "--tokenizer", default="sentencepiece", help="sentencepiece (default, lossless) or wordpiece"
    )
    model.add_argument(
        "--separate-tokenizers", action="store_true", help="one tokenizer a side instead of a joint one"
    )
    model.add_argument(
        "--max-length",
        type=_positive,
        default=128,
        metavar="N",
        help="tokens of a source or target; longer pairs are left out, and counted (default: %(default)s)",
    )
    training = translate.add_argument_group("training")
    training.add_argument(
        "--epochs", type=_positive, default=30, metavar="N", help="at most (default: %(default)s)"
    )
    training.add_argument(
        "--minutes", type=float, metavar="M", help="stop after so long, with the best epoch"
    )
    training.add_argument(
        "--patience",
        type=_positive,
        default=5,
        metavar="N",
        help="stop after so many epochs without a better one (default: %(default)s)",
    )
    training.add_argument(
        "--batch-tokens",
        type=_positive,
        default=4096,
        metavar="N",
        help="tokens of a batch at most, fewer for small files (default: %(default)s)",
    )
    training.add_argument(
        "--learning-rate",
        type=float,
        default=1e-3,
        metavar="R",
        help="at the end of the warm-up (default: %(default)s)",
    )
    training.add_argument(
        "--label-smoothing", type=float, default=0.1, metavar="S", help="default: %(default)s"
    )
    training.add_argument(
        "--precision",
        default="float32",
        choices=["float32", "mixed_bfloat16", "mixed_float16"],
        help="default: %(default)s",
    )
    training.add_argument(
        "--strategy",
        default="none",
        metavar="NAME",
        help="devices to train on: none (the first, default), mirrored (all GPUs), mirrored:N, tpu[:ADDRESS]",
    )
    training.add_argument("--seed", type=int, default=0, metavar="N", help="default: %(default)s")


def _positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return value


def run_train_translate(options):
    """train translate: a RUN folder from files of pairs."""
    from keras_tfm.data.sources import read_pairs
    from keras_tfm.tasks import Translator
    from keras_tfm.training import strategy
    from keras_tfm.training.folder import refuse_existing

    if options.strategy == "multi-worker":
        raise ValueError("--strategy multi-worker: several workers cannot write one RUN yet; use mirrored.")
    refuse_existing(options.out, options.resume or options.overwrite, "pass --resume or --overwrite")
    devices = strategy(options.strategy)  # before anything else makes TensorFlow choose its devices
    _prepare_keras(options)
    pairs = read_pairs(options.train, _columns(options))
    validation = read_pairs(options.valid, _columns(options)) if options.valid else None
    say(f"{len(pairs.sources):,} pairs to train on")
    with devices.scope():
        if options.resume or options.start:
            translator = Translator.load(options.out if options.resume else options.start)
        else:
            changes = read_changes(options.config) if options.config else {}
            translator = Translator.from_pairs(
                pairs,
                options.family,
                options.size,
                options.vocabulary,
                options.tokenizer,
                options.separate_tokenizers,
                options.max_length,
                **changes,
            )
    say(f"{translator.model.count_params():,} weights, {translator.tokenizer.vocabulary_size:,} sub-words")
    history = translator.fit(
        pairs,
        validation,
        epochs=options.epochs,
        minutes=options.minutes,
        batch_tokens=options.batch_tokens,
        learning_rate=options.learning_rate,
        label_smoothing=options.label_smoothing,
        patience=options.patience,
        seed=options.seed,
        run=options.out,
        resume=options.resume,
        overwrite=options.overwrite,
    )
    best = min(history.get("val_token_cross_entropy", [float("nan")]))
    say(f"best validation cross-entropy {best:.4f} nats a token; the model stands in {options.out}")


def run_evaluate(options):
    """evaluate: one JSON line."""
    from keras_tfm.data.sources import read_pairs

    task = _load(options)
    print(json.dumps(task.evaluate(read_pairs(options.data, _columns(options)))))


def run_predict(options):
    """predict: a line in, a line out."""
    from keras_tfm.data.sources import read_lines

    task = _load(options)
    lines = list(read_lines(options.input))
    truncated = task.count_truncated(lines)
    if truncated:
        say(f"{truncated} of {len(lines)} lines exceed {task.config.max_length} tokens and are cut there")
    for answer in task.generate(lines):
        print(answer.replace("\n", " "))


def run_export(options):
    """export: a SavedModel folder."""
    from keras_tfm.training.folder import refuse_existing

    refuse_existing(options.out, options.overwrite, "pass --overwrite")
    _load(options).export(options.out, overwrite=options.overwrite)
    say(f"the SavedModel stands in {options.out}")


def run_demo(options):
    """demo: dates written out -> ISO 8601, from training to answers of the SavedModel alone."""
    from keras_tfm.demo import run

    if not run(options.out):
        raise SystemExit(1)


def read_changes(path):
    """The fields of a model's configuration to change, from a JSON file."""
    with open(path, encoding="utf-8") as file:
        try:
            changes = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: not a JSON file ({error})") from None
    if not isinstance(changes, dict):
        raise ValueError(f'{path}: expected a JSON object of fields, {{"dropout": 0.3}} for example')
    return changes


def _load(options):
    from keras_tfm import tasks

    return tasks.load(options.task_folder)


def _columns(options):
    if options.columns is None:
        return None
    columns = tuple(int(name) if name.isdigit() else name for name in options.columns.split(","))
    if len(columns) != 2:
        raise ValueError(f"--columns: expected two, A,B; got {options.columns}")
    return columns


def _prepare_keras(options):
    import keras

    keras.config.set_dtype_policy(options.precision)
    keras.utils.set_random_seed(options.seed)


def say(text):
    """Tell the caller on standard error."""
    print(text, file=sys.stderr, flush=True)


def quiet_tensorflow():
    """Import TensorFlow without what its libraries log while they start."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow  # noqa: F401
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def main(arguments=None):
    """Run the command; the exit code is 0, 2 for a mistake of the caller's, 130 when interrupted."""
    options = parser().parse_args(arguments)
    quiet_tensorflow()
    try:
        options.run(options)
    except (ValueError, OSError) as error:
        if os.environ.get("KERAS_TFM_TRACEBACK"):
            raise
        say(f"keras-tfm: error: {' '.join(str(error).split())}")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        say("keras-tfm: interrupted")
        raise SystemExit(130) from None
