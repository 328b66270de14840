"""Options that verbs and tasks share."""

import argparse
import json

PAIRS = (
    ".tsv, .csv or .jsonl (plain, .gz, .xz), two parallel text files, or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
)


def add_verb(verbs, name, run, help):
    """A parser of the verb `name`, which `run(options)` does; its description is `help`."""
    verb = verbs.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    verb.set_defaults(run=run)
    return verb


def positive(text):
    """A whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return value


def add_columns(group):
    """--columns A,B of tables; `columns_of` reads it."""
    group.add_argument("--columns", metavar="A,B", help="names or numbers from 0 of the two columns")


def columns_of(options):
    """The two columns of --columns, names or numbers, or None."""
    if options.columns is None:
        return None
    columns = tuple(int(name) if name.isdigit() else name for name in options.columns.split(","))
    if len(columns) != 2:
        raise ValueError(f"--columns: expected two, A,B; got {options.columns}")
    return columns


def add_run(group):
    """--out RUN and what may become of one that exists."""
    group.add_argument(
        "--out", required=True, metavar="RUN", help="the folder to write: the best model so far, always whole"
    )
    existing = group.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on after the last finished epoch of RUN")
    existing.add_argument("--overwrite", action="store_true", help="replace RUN if it exists")


def add_training(group, epochs, patience, batch_tokens, learning_rate):
    """How to train, the same for every task; the arguments are its defaults."""
    group.add_argument(
        "--epochs", type=positive, default=epochs, metavar="N", help="at most (default: %(default)s)"
    )
    group.add_argument("--minutes", type=float, metavar="M", help="stop after so long, with the best epoch")
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
        type=float,
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
        default="none",
        metavar="NAME",
        help="devices to train on: none (the first, default), mirrored (all GPUs), mirrored:N, tpu[:ADDRESS]",
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="default: %(default)s")


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


def prepare_keras(options):
    """Set --precision and --seed."""
    import keras

    keras.config.set_dtype_policy(options.precision)
    keras.utils.set_random_seed(options.seed)
