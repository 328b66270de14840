"""Options that verbs and tasks share."""

import argparse
import dataclasses
import pathlib
import re

from keras_tfm.cli.console import say
from keras_tfm.cli.names import refuse_unknown_size
from keras_tfm.cli.numbers import number, positive, seed

PAIRS = (
    ".tsv, .csv or .jsonl (plain, .gz, .xz), two parallel text files, or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
)


def add_verb(verbs, name, run, help, check=None):
    """A parser of the verb `name`, which `run(options)` does; its description is `help`.

    `check(options)` raises ValueError for what is wrong by itself, before TensorFlow is imported.
    """
    verb = verbs.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    verb.set_defaults(run=run, check=check)
    return verb


def checks_size(family):
    """The `check` of a verb that makes models of one family; a RUN that is there may be of another."""

    def check(options):
        if not (options.resume or options.start):
            refuse_unknown_size(family, options.size)

    return check


def add_columns(group, help="names or numbers from 0 of the two columns"):
    """--columns A,B of tables; `columns_of` reads it."""
    group.add_argument("--columns", metavar="A,B", help=help)


def columns_of(options, counts=(2,)):
    """The columns of --columns, names or numbers, as many as one of `counts`, or None."""
    if options.columns is None:
        return None
    columns = tuple(int(name) if name.isdigit() else name for name in options.columns.split(","))
    if len(columns) not in counts:
        expected = {1: "one, A", 2: "two, A,B", 3: "three, A,B,C"}
        raise ValueError(
            f"--columns: expected {' or '.join(expected[count] for count in counts)}; got {options.columns}"
        )
    return columns


def add_run(group):
    """--out RUN and what may become of one that exists."""
    group.add_argument(
        "--out", required=True, metavar="RUN", help="the folder to write: the best model so far, always whole"
    )
    existing = group.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on from the newest checkpoint of RUN")
    existing.add_argument("--overwrite", action="store_true", help="replace RUN if it exists")


def add_epoch_batches(group, default):
    """--epoch-batches N of the tasks that part long passes; `default` is None for whole passes."""
    group.add_argument(
        "--epoch-batches",
        type=positive,
        default=default,
        metavar="N",
        help="an epoch ends after N batches where a pass over the data has more, and the next goes on from "
        f"there (default: {default or 'a whole pass'})",
    )


def add_training(group, epochs, patience, batch_tokens, learning_rate):
    """How to train, the same for every task; the arguments are its defaults."""
    minutes = number("(0, 1e6]")
    group.add_argument(
        "--epochs",
        type=positive,
        default=epochs,
        metavar="N",
        help="epochs at most, each a pass over the data and judged at its end (default: %(default)s)",
    )
    group.add_argument(
        "--minutes",
        type=minutes,
        metavar="M",
        help="stop after so long in all, resumed runs included, with the best epoch; the learning rate warms "
        "up and falls within this time",
    )
    group.add_argument(
        "--patience",
        type=positive,
        default=patience,
        metavar="N",
        help="stop after so many epochs without a better one (default: %(default)s)",
    )
    group.add_argument(
        "--batch-tokens",
        type=positive,
        default=batch_tokens,
        metavar="N",
        help="tokens of a batch at most, fewer for small files (default: %(default)s)",
    )
    group.add_argument(
        "--learning-rate",
        type=number("(0, 100]"),
        default=learning_rate,
        metavar="R",
        help="at the end of the warm-up (default: %(default)s)",
    )
    group.add_argument(
        "--precision",
        default="float32",
        choices=["float32", "mixed_bfloat16", "mixed_float16"],
        help="default: %(default)s",
    )
    group.add_argument(
        "--strategy",
        type=strategy_name,
        default="none",
        metavar="NAME",
        help="devices to train on: none (the first, default), mirrored (all GPUs), mirrored:N, multi-worker "
        "(TF_CONFIG says which), tpu[:ADDRESS]",
    )
    group.add_argument(
        "--save-minutes",
        type=minutes,
        default=10,
        metavar="M",
        help="keep a checkpoint so often, and after every epoch (default: %(default)s)",
    )
    group.add_argument(
        "--tensorboard", action="store_true", help="keep in RUN/logs, for TensorBoard, what metrics.csv holds"
    )
    group.add_argument("--seed", type=seed, default=0, metavar="N", help="default: %(default)s")
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="the same numbers from every run on GPUs too; slower there",
    )


def strategy_name(text):
    """A name of devices; `training.strategy` says later whether this machine has them."""
    if not re.fullmatch(r"none|mirrored(:[1-9]\d{0,3})?|multi-worker|tpu(:.+)?", text):
        raise argparse.ArgumentTypeError(
            f"expected none, mirrored, mirrored:N, multi-worker or tpu[:ADDRESS], got {text[:80]}"
        )
    return text


def read_changes(path, config, options_of):
    """The fields of the model's `config` to change, from a JSON file; {} where `path` is None.

    `options_of` are the fields that options set, {field: option}. ValueError, naming the file, for these, for
    unknown fields and for values that are none.
    """
    from keras_tfm.training.safetensors import read_json

    changes = read_json(path) if path else {}
    for field, option in options_of.items():
        if field in changes:
            raise ValueError(f"{path}: expected fields that no option sets, got {field}, see {option}")
    try:
        type(config).from_json({**dataclasses.asdict(config), **changes})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return changes


def warn_of_untrained(task, folder):
    """Say so where the training in `folder` has not ended an epoch yet."""
    if not task.is_trained:
        say(f"{folder}: no epoch of its training has ended yet; its weights are those that it began with")


def is_huggingface(folder):
    """Whether a folder is one of Hugging Face's, by its config.json."""
    from keras_tfm.training.safetensors import CheckpointError, read_json

    try:
        return "model_type" in read_json(pathlib.Path(folder, "config.json"))
    except CheckpointError:
        return False


def prepare(options):
    """The devices of --strategy, and `say` for one of its workers; --precision, --seed and --deterministic
    are set, and RUN may be written.
    """
    import keras
    import tensorflow as tf

    from keras_tfm.training import strategy
    from keras_tfm.training.fit import refuse_running
    from keras_tfm.training.folder import refuse_existing
    from keras_tfm.training.strategy import worker_index

    devices = strategy(options.strategy)  # before anything else makes TensorFlow choose its devices
    is_chief = worker_index(devices) == 0
    if is_chief:
        if not options.resume:
            refuse_existing(options.out, options.overwrite, "pass --resume or --overwrite")
        refuse_running(options.out)
    if options.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.config.set_dtype_policy(options.precision)
    keras.utils.set_random_seed(options.seed)
    return devices, say if is_chief else (lambda text: None)


def task_on(devices, options, load, make):
    """The task to train on `devices`: `load(folder)` of --resume or --from, or what `make()` makes.

    Of several workers the chief makes it, and all read what it has written.
    """
    import keras

    from keras_tfm.training.strategy import num_workers, sum_over_workers, worker_index

    start = options.out if options.resume else options.start
    if start is None and num_workers(devices) > 1:
        if worker_index(devices) == 0:
            make().save(options.out, options.overwrite, trained=False)
        sum_over_workers(devices, 0)  # all wait for the chief
        keras.utils.set_random_seed(options.seed)
        start = options.out
        options.overwrite = True
    with devices.scope():
        task = make() if start is None else load(start)
    if start not in (None, options.out):
        warn_of_untrained(task, start)
    sum_over_workers(devices, 0)  # the chief waits until all have read it
    return task
