"""`keras-tfm train translate`."""

import dataclasses
from typing import Any

from keras_tfm.cli.names import FAMILIES, TOKENIZERS, refuse_unknown_size
from keras_tfm.cli.numbers import length, number, positive
from keras_tfm.cli.options import (
    PAIRS,
    add_columns,
    add_run,
    add_training,
    add_verb,
    columns_of,
    prepare,
    read_changes,
    task_on,
)


def add(tasks):
    """Add the task to those that `train` knows."""
    add_task(tasks, "translate", "train a model that maps a line of text to a line of text", max_length=128)


def add_task(tasks, name, text, max_length):
    """Add the task `name`, with the `text` of its help and the default of --max-length."""
    translate = add_verb(tasks, name, run, text, check)
    translate.set_defaults(default_max_length=max_length)
    data = translate.add_argument_group("data")
    data.add_argument("--train", nargs="+", required=True, metavar="FILE", help=PAIRS)
    data.add_argument(
        "--valid",
        nargs="+",
        metavar="FILE",
        help="pairs that judge the epochs (default: hold out 2 %% of --train, at most 1,000)",
    )
    add_columns(data)
    add_run(data)
    model = translate.add_argument_group("model")
    model.add_argument(
        "--from", dest="start", metavar="RUN", help="go on from the weights and tokenizer of a task folder"
    )
    model.add_argument(
        "--family", choices=FAMILIES, help="transformer (default), recurrent, or gpt2, a decoder alone"
    )
    model.add_argument("--size", help="a size of the family (default: small, of gpt2 tiny)")
    model.add_argument(
        "--config", metavar="FILE", help='JSON with fields of the size to change, {"dropout": 0.3}'
    )
    model.add_argument(
        "--vocabulary",
        type=positive,
        metavar="N",
        help="sub-words at most, fewer for small files (default: 8000)",
    )
    model.add_argument(
        "--tokenizer", choices=TOKENIZERS, help="sentencepiece (default, lossless) or wordpiece"
    )
    model.add_argument(
        "--separate-tokenizers", action="store_true", help="one tokenizer a side instead of a joint one"
    )
    model.add_argument(
        "--max-length",
        type=length,
        metavar="N",
        help=f"tokens of a source or target; longer pairs are left out, and counted (default: {max_length})",
    )
    training = translate.add_argument_group("training")
    add_training(training, epochs=30, patience=5, batch_tokens=4096, learning_rate=1e-3)
    training.add_argument(
        "--label-smoothing", type=number("[0, 1)"), default=0.1, metavar="S", help="default: %(default)s"
    )


def check(options):
    """Refuse a size that the family has not; that of a RUN is not known yet."""
    if options.family or not (options.resume or options.start):
        refuse_unknown_size(options.family or "transformer", options.size)


def run(options):
    """train translate, or summarize: a RUN folder from files of pairs."""
    from keras_tfm.data.sources import read_pairs
    from keras_tfm.tasks import TASKS

    task_class: Any = TASKS[options.task]
    devices, tell = prepare(options)
    changes = {} if options.resume or options.start else changes_of(options)
    pairs = read_pairs(options.train, columns_of(options))
    validation = read_pairs(options.valid, columns_of(options)) if options.valid else None
    tell(f"{len(pairs.sources):,} pairs read")

    def make():
        return task_class.from_pairs(
            pairs,
            options.family or "transformer",
            options.size,
            options.vocabulary or 8_000,
            options.tokenizer or "sentencepiece",
            options.separate_tokenizers,
            options.max_length or options.default_max_length,
            **changes,
        )

    translator = task_on(devices, options, task_class.load, make)
    if options.resume:
        refuse_another_model(options, translator)
    tell(f"{translator.model.count_params():,} weights, {translator.tokenizer.vocabulary_size:,} sub-words")
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
        save_minutes=options.save_minutes,
        resume=options.resume,
        overwrite=options.overwrite,
        tensorboard=options.tensorboard,
    )
    best = min(history.get("val_token_cross_entropy", [float("nan")]))
    tell(f"best validation cross-entropy {best:.4f} nats a token; the model stands in {options.out}")


def changes_of(options, config=None):
    """The fields that --config changes in a model's `config`, by default that of --family and --size."""
    from keras_tfm.tasks.translator import FAMILIES, default_size

    family = options.family or "transformer"
    config = config or FAMILIES[family].config_of_size(options.size or default_size(family))
    set_by_options = {
        "vocabulary_size": "--vocabulary",
        "target_vocabulary_size": "--vocabulary",
        "max_length": "--max-length",
    }
    return read_changes(options.config, config, set_by_options)


def refuse_another_model(options, translator):
    """Raise ValueError, naming the fields, where the options ask for another model than `translator`'s."""
    from keras_tfm.tasks.translator import FAMILIES
    from keras_tfm.training.checkpoint import refuse_changes

    backbone = translator.model.backbone
    (family,) = (name for name, kind in FAMILIES.items() if type(backbone) is kind)
    then = dataclasses.asdict(backbone.config)
    then |= {"--family": family, "--max-length": translator.config.max_length}
    now = {"--family": options.family, "--max-length": options.max_length}
    now = {name: value for name, value in now.items() if value is not None}
    if options.size:
        size = (FAMILIES.get(options.family) or backbone).config_of_size(options.size)
        now |= {name: value for name, value in dataclasses.asdict(size).items() if "vocabulary" not in name}
    now |= changes_of(options, backbone.config)
    refuse_changes(now, {name: then.get(name) for name in now})
