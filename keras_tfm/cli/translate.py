"""`keras-tfm train translate`."""

from keras_tfm.cli.console import say
from keras_tfm.cli.options import (
    PAIRS,
    add_columns,
    add_run,
    add_training,
    add_verb,
    columns_of,
    positive,
    prepare_keras,
    read_changes,
)


def add(tasks):
    """Add the task to those that `train` knows."""
    translate = add_verb(tasks, "translate", run, "train a model that maps a line of text to a line of text")
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
    model.add_argument("--family", default="transformer", help="transformer (default) or recurrent")
    model.add_argument("--size", default="small", help="a size of the family (default: %(default)s)")
    model.add_argument(
        "--config", metavar="FILE", help='JSON with fields of the size to change, {"dropout": 0.3}'
    )
    model.add_argument(
        "--vocabulary",
        type=positive,
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
        type=positive,
        default=128,
        metavar="N",
        help="tokens of a source or target; longer pairs are left out, and counted (default: %(default)s)",
    )
    training = translate.add_argument_group("training")
    add_training(training, epochs=30, patience=5, batch_tokens=4096, learning_rate=1e-3)
    training.add_argument(
        "--label-smoothing", type=float, default=0.1, metavar="S", help="default: %(default)s"
    )


def run(options):
    """train translate: a RUN folder from files of pairs."""
    from keras_tfm.data.sources import read_pairs
    from keras_tfm.tasks import Translator
    from keras_tfm.training import strategy
    from keras_tfm.training.folder import refuse_existing

    if options.strategy == "multi-worker":
        raise ValueError("--strategy multi-worker: several workers cannot write one RUN yet; use mirrored.")
    refuse_existing(options.out, options.resume or options.overwrite, "pass --resume or --overwrite")
    devices = strategy(options.strategy)  # before anything else makes TensorFlow choose its devices
    prepare_keras(options)
    pairs = read_pairs(options.train, columns_of(options))
    validation = read_pairs(options.valid, columns_of(options)) if options.valid else None
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
