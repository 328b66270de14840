"""`keras-tfm train generate`."""

import codecs
import dataclasses

from keras_tfm.cli.numbers import length, positive
from keras_tfm.cli.options import (
    add_epoch_batches,
    add_run,
    add_training,
    add_verb,
    checks_size,
    is_huggingface,
    prepare,
    read_changes,
    task_on,
)


def add(tasks):
    """Add the task to those that `train` knows."""
    text = "train a language model on plain text, which continues texts"
    generate = add_verb(tasks, "generate", run, text, checks_size("gpt2"))
    data = generate.add_argument_group("data")
    data.add_argument(
        "--train", nargs="+", required=True, metavar="FILE", help="plain text (or .gz, .xz), a document each"
    )
    data.add_argument(
        "--valid", nargs="+", metavar="FILE", help="texts that judge the epochs (default: hold some out)"
    )
    data.add_argument(
        "--separator",
        metavar="TEXT",
        help=r"what stands between the documents of a file: \n\n for a blank line (default: one document)",
    )
    add_run(data)
    model = generate.add_argument_group("model")
    model.add_argument(
        "--from",
        dest="start",
        metavar="RUN",
        help="go on from a task folder, or from a folder of Hugging Face's",
    )
    model.add_argument("--size", help="a size of GPT-2 (default: tiny, 4 layers 128 wide)")
    model.add_argument(
        "--config", metavar="FILE", help='JSON with fields of the size to change, {"dropout": 0.0}'
    )
    model.add_argument(
        "--tokenizer", choices=["bytes", "characters"], help="byte-level pairs (default), or characters"
    )
    model.add_argument(
        "--vocabulary",
        type=positive,
        metavar="N",
        help="tokens at most, fewer for small files (default: 8000)",
    )
    model.add_argument(
        "--max-length", type=length, metavar="N", help="tokens of a block, and of prompt and continuation"
    )
    training = generate.add_argument_group("training")
    add_training(training, epochs=20, patience=5, batch_tokens=8192, learning_rate=1e-3)
    add_epoch_batches(training, 500)


def run(options):
    """train generate: a RUN folder from plain text."""
    from keras_tfm.data.blocks import read_texts
    from keras_tfm.tasks import TextGenerator

    devices, tell = prepare(options)
    changes = {} if options.resume or options.start else changes_of(options)
    separator = options.separator and codecs.decode(options.separator.encode("latin-1", "backslashreplace"),
                                                    "unicode_escape")  # fmt: skip
    texts = read_texts(options.train, separator)
    validation = read_texts(options.valid, separator) if options.valid else None
    tell(f"{len(texts):,} documents of {sum(map(len, texts)):,} characters read")

    def make():
        return TextGenerator.from_texts(
            texts,
            options.size or "tiny",
            options.vocabulary or 8_000,
            options.tokenizer or "bytes",
            separator,
            **changes,
        )

    generator = task_on(devices, options, load, make)
    if options.resume:
        refuse_another_model(options, generator)
    tell(f"{generator.model.count_params():,} weights, {generator.tokenizer.vocabulary_size:,} tokens")
    history = generator.fit(
        texts,
        validation,
        epochs=options.epochs,
        minutes=options.minutes,
        batch_tokens=options.batch_tokens,
        epoch_batches=options.epoch_batches,
        learning_rate=options.learning_rate,
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


def load(folder):
    """The task of a RUN, or of a folder of Hugging Face's."""
    from keras_tfm.tasks import TextGenerator

    if is_huggingface(folder):
        generator = TextGenerator.from_huggingface(folder)
        if generator.tokenizer is None:
            raise ValueError(f"{folder}: expected a tokenizer, tokenizer.json or vocab.json; there is none")
        return generator
    return TextGenerator.load(folder)


def changes_of(options, config=None):
    """The fields that options change in a model's `config`, by default that of --size."""
    from keras_tfm.models import GPT2

    config = config or GPT2.config_of_size(options.size or "tiny")
    changes = read_changes(options.config, config, {"vocabulary_size": "--vocabulary"})
    return changes | ({"max_length": options.max_length} if options.max_length else {})


def refuse_another_model(options, generator):
    """Raise ValueError, naming the fields, where the options ask for another model than `generator`'s."""
    from keras_tfm.training.checkpoint import refuse_changes

    backbone = generator.model.backbone
    then, now = dataclasses.asdict(backbone.config), changes_of(options, backbone.config)
    if options.size:
        size = dataclasses.asdict(backbone.config_of_size(options.size))
        now = {name: size[name] for name in ("num_layers", "dim", "num_heads")} | now
    refuse_changes(now, {name: then.get(name) for name in now})
