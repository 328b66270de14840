"""`keras-tfm train masked-lm`."""

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

DOCUMENTS = (
    "text (plain, .gz, .xz), a paragraph a line and blank lines between documents, or folders of .txt files"
)


def add(tasks):
    """Add the task to those that `train` knows."""
    masked = add_verb(
        tasks,
        "masked-lm",
        run,
        "pre-train an encoder on documents: masked words, pairs of texts",
        checks_size("bert"),
    )
    data = masked.add_argument_group("data")
    data.add_argument("--train", nargs="+", required=True, metavar="FILE", help=DOCUMENTS)
    data.add_argument(
        "--valid",
        nargs="+",
        metavar="FILE",
        help="documents that judge the epochs (default: hold out 2 %% of --train, at most 500)",
    )
    add_run(data)
    model = masked.add_argument_group("model")
    model.add_argument(
        "--from",
        dest="start",
        metavar="RUN",
        help="go on from a task folder, or from a folder of Hugging Face's",
    )
    model.add_argument("--size", help="a size of BERT (default: mini, 4 layers 256 wide)")
    model.add_argument(
        "--config", metavar="FILE", help='JSON with fields of the size to change, {"dropout": 0.0}'
    )
    model.add_argument(
        "--vocabulary",
        type=positive,
        metavar="N",
        help="pieces at most, fewer for small files (default: 8000)",
    )
    model.add_argument(
        "--tokenizer", metavar="FOLDER", help="one that is there: tokenizer.json, or vocab.txt of BERT's"
    )
    model.add_argument("--cased", action="store_true", help="keep capitals and accents apart")
    model.add_argument("--max-length", type=length, metavar="N", help="tokens of a row (default: 128)")
    model.add_argument(
        "--pairs",
        choices=["next", "order", "none"],
        help="of two texts learn whether one follows (next, default), which is first (order), or nothing",
    )
    model.add_argument(
        "--masking", choices=["token", "word", "span"], help="what is masked at once (default: token)"
    )
    training = masked.add_argument_group("training")
    add_training(training, epochs=40, patience=5, batch_tokens=4096, learning_rate=1e-3)
    add_epoch_batches(training, 500)
    training.add_argument(
        "--drawings",
        type=positive,
        metavar="N",
        help="draw masks and pairs so often, 1 is static masking (default: anew in every epoch)",
    )


def run(options):
    """train masked-lm: a RUN folder from documents."""
    from keras_tfm.data.bert_tokenizer import BERTTokenizer
    from keras_tfm.data.documents import read_documents
    from keras_tfm.tasks import MaskedLanguageModel, MaskedLanguageModelConfig

    devices, tell = prepare(options)
    changes = {} if options.resume or options.start else changes_of(options)
    documents = read_documents(options.train)
    validation = read_documents(options.valid) if options.valid else None
    tell(f"{len(documents):,} documents read")

    def make():
        chosen = {"max_length": options.max_length, "pairs": options.pairs, "masking": options.masking}
        config = MaskedLanguageModelConfig(**{k: value for k, value in chosen.items() if value is not None})
        size = options.size or "mini"
        if options.tokenizer:
            tokenizer = BERTTokenizer.from_huggingface(options.tokenizer)
            return MaskedLanguageModel.from_tokenizer(tokenizer, size, config, **changes)
        return MaskedLanguageModel.from_documents(
            documents, size, options.vocabulary or 8_000, not options.cased, config, **changes
        )

    task = task_on(devices, options, load, make)
    if options.resume:
        refuse_another_model(options, task)
    tell(f"{task.model.count_params():,} weights, {task.tokenizer.vocabulary_size:,} pieces")
    task.fit(
        documents,
        validation,
        epochs=options.epochs,
        minutes=options.minutes,
        batch_tokens=options.batch_tokens,
        epoch_batches=options.epoch_batches,
        learning_rate=options.learning_rate,
        num_drawings=options.drawings,
        patience=options.patience,
        seed=options.seed,
        run=options.out,
        save_minutes=options.save_minutes,
        resume=options.resume,
        overwrite=options.overwrite,
        tensorboard=options.tensorboard,
    )
    tell(f"the best model stands in {options.out}; keras-tfm evaluate says how good it is")


def changes_of(options, config=None):
    """The fields that --config changes in a model's `config`, by default that of BERT's --size."""
    from keras_tfm.models import BERT

    config = config or BERT.config_of_size(options.size or "mini")
    return read_changes(options.config, config, {"vocabulary_size": "--vocabulary"})


def load(folder):
    """The task of a RUN, or of a folder of Hugging Face's."""
    from keras_tfm.tasks import MaskedLanguageModel

    if is_huggingface(folder):
        return MaskedLanguageModel.from_huggingface(folder)
    return MaskedLanguageModel.load(folder)


def refuse_another_model(options, task):
    """Raise ValueError, naming the fields, where the options ask for another model than `task`'s."""
    from keras_tfm.training.checkpoint import refuse_changes

    backbone = task.model.backbone
    then = dataclasses.asdict(backbone.config) | {
        f"--{name.replace('_', '-')}": value for name, value in dataclasses.asdict(task.config).items()
    }
    now = {"--max-length": options.max_length, "--pairs": options.pairs, "--masking": options.masking}
    now = {name: value for name, value in now.items() if value is not None}
    if options.size:
        size = dataclasses.asdict(backbone.config_of_size(options.size))
        now |= {name: size[name] for name in ("num_layers", "dim", "num_heads", "intermediate_dim")}
    now |= changes_of(options, backbone.config)
    refuse_changes(now, {name: then.get(name) for name in now})
