"""`keras-tfm train classify`, `tag`, `answer`, `choose`: fine-tuning an encoder, and where it starts from."""

import dataclasses
import functools

from keras_tfm.cli.masked_lm import changes_of
from keras_tfm.cli.numbers import length, number, positive, whole
from keras_tfm.cli.options import (
    add_columns,
    add_epoch_batches,
    add_run,
    add_training,
    add_verb,
    checks_size,
    columns_of,
    is_huggingface,
    prepare,
    task_on,
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A task that `train` knows: what its files are, and what `train` tells of it."""

    name: str
    task: str  # the class in keras_tfm.tasks
    help: str
    files: str
    columns: tuple[int, ...] = ()  # how many --columns may name
    epochs: int = 3
    length: int = 128  # tokens of an example, by default
    batch_tokens: int = 1_024


KINDS = (
    Kind(
        "classify",
        "TextClassifier",
        "fine-tune an encoder, or train one, to label texts or pairs of texts",
        ".tsv, .csv or .jsonl files (plain, .gz, .xz): a text, or two, and its label",
        (2, 3),
    ),
    Kind(
        "tag",
        "TokenClassifier",
        "fine-tune an encoder, or train one, to tag the words of sentences",
        "CoNLL columns (plain, .gz, .xz): a word first, its tag last, a blank line after each sentence",
        epochs=10,
    ),
    Kind(
        "answer",
        "QuestionAnswerer",
        "fine-tune an encoder, or train one, to find the answers to questions in texts",
        "JSON in SQuAD's format, 1.1 or 2.0 (plain, .gz, .xz)",
        length=384,
        batch_tokens=4_608,
    ),
    Kind(
        "choose",
        "ChoiceAnswerer",
        "fine-tune an encoder, or train one, to choose among texts",
        '.jsonl files (plain, .gz, .xz): {"text": "…", "choices": ["…", "…"], "label": 0}',
    ),
)


def add(tasks):
    """Add the tasks to those that `train` knows."""
    for kind in KINDS:
        _add(tasks, kind)


def _add(tasks, kind):
    verb = add_verb(tasks, kind.name, functools.partial(run, kind=kind), kind.help, checks_size("bert"))
    data = verb.add_argument_group("data")
    data.add_argument("--train", nargs="+", required=True, metavar="FILE", help=kind.files)
    data.add_argument(
        "--valid",
        nargs="+",
        metavar="FILE",
        help="examples that judge the epochs (default: hold out 5 %% of --train, at most 1,000)",
    )
    if kind.columns:
        add_columns(data, "names or numbers from 0: the text, or both, and the label")
        data.add_argument(
            "--problem",
            choices=["classes", "multi-label", "regression"],
            default="classes",
            help="a label is one of several (default), several names parted by commas, or a number",
        )
    add_run(data)
    model = verb.add_argument_group("model")
    model.add_argument(
        "--from",
        dest="start",
        metavar="RUN",
        help="the encoder of a task folder (masked-lm's for example), or of a folder of Hugging Face's",
    )
    model.add_argument("--size", help="a size of BERT, from scratch (default: mini, 4 layers 256 wide)")
    model.add_argument(
        "--config", metavar="FILE", help='JSON with fields of the size to change, {"dropout": 0.3}'
    )
    model.add_argument(
        "--vocabulary",
        type=positive,
        metavar="N",
        help="pieces at most, fewer for small files (default: 8000)",
    )
    model.add_argument("--cased", action="store_true", help="keep capitals and accents apart")
    model.add_argument(
        "--max-length",
        type=length,
        metavar="N",
        help=f"tokens of an example, or a window, special ones too (default: {kind.length})",
    )
    if kind.name == "classify":
        model.add_argument(
            "--pooling",
            choices=["first", "mean", "max"],
            help="classify by the first token (default), or by the mean or the maximum of all",
        )
    if kind.name == "answer":
        model.add_argument(
            "--stride",
            type=length,
            metavar="N",
            help="a window of a longer text begins every N tokens (default: a third of --max-length)",
        )
    training = verb.add_argument_group("training")
    add_training(training, epochs=kind.epochs, patience=5, batch_tokens=kind.batch_tokens, learning_rate=5e-5)
    add_epoch_batches(training, None)
    training.add_argument(
        "--layer-decay",
        type=number("(0, 1]"),
        default=1.0,
        metavar="R",
        help="a block learns R times as fast as the one above it (default: %(default)s)",
    )
    training.add_argument(
        "--freeze",
        type=whole(0),
        metavar="N",
        help="leave the embeddings and the lowest N blocks as they are (default: train all)",
    )
    training.add_argument(
        "--lora",
        type=positive,
        metavar="RANK",
        help="train updates of this rank to the blocks' kernels, and leave the rest of the encoder as it is",
    )


def run(options, kind):
    """train: a RUN folder from labelled examples."""
    from keras_tfm import tasks

    devices, tell = prepare(options)
    changes = {} if options.resume or options.start else changes_of(options)
    task_class = getattr(tasks, kind.task)
    read = _reader(options, kind)
    examples = read(options.train)
    validation = read(options.valid) if options.valid else None
    tell(f"{len(examples[0]):,} examples read")
    fields = {name: getattr(options, name, None) for name in ("max_length", "problem", "pooling", "stride")}
    fields = {name: value for name, value in fields.items() if value is not None}

    def make():
        return task_class.from_examples(
            examples,
            options.size or "mini",
            options.vocabulary or 8_000,
            not options.cased,
            changes,
            **fields,
        )

    # What is resumed stays as it is: other wishes are refused below.
    load = functools.partial(_load, task_class, examples, {} if options.resume else fields)
    task = task_on(devices, options, load, make)
    if options.resume:
        refuse_another_model(options, task)
    tell(f"{task.model.count_params():,} weights, {task.tokenizer.vocabulary_size:,} pieces")
    task.fit(
        examples,
        validation,
        epochs=options.epochs,
        minutes=options.minutes,
        batch_tokens=options.batch_tokens,
        epoch_batches=options.epoch_batches,
        learning_rate=options.learning_rate,
        layer_decay=options.layer_decay,
        num_frozen=options.freeze,
        lora_rank=options.lora,
        patience=options.patience,
        seed=options.seed,
        run=options.out,
        save_minutes=options.save_minutes,
        resume=options.resume,
        overwrite=options.overwrite,
        tensorboard=options.tensorboard,
    )
    tell(f"the best model stands in {options.out}; keras-tfm evaluate says how good it is")


def _reader(options, kind):
    """What reads the files of a task."""
    from keras_tfm import data

    if kind.name == "classify":
        columns = columns_of(options, kind.columns)
        return functools.partial(data.read_labelled_texts, columns=columns, problem=options.problem)
    readers = {"tag": data.read_tagged_words, "answer": data.read_questions, "choose": data.read_choices}
    return readers[kind.name]


def _load(task_class, examples, fields, folder):
    """The task of a RUN of its kind, or a new one on the encoder of another, or of Hugging Face's folder."""
    from keras_tfm import tasks

    if is_huggingface(folder):
        return task_class.from_huggingface(folder, examples, **fields)
    task = tasks.load(folder)
    pooling = getattr(task.config, "pooling", None)
    if type(task) is task_class and fields.get("pooling", pooling) == pooling:
        return task
    backbone = getattr(task.model, "backbone", task.model)
    if not hasattr(task, "tokenizer") or "sequence_output" not in backbone.output:
        raise ValueError(f"--from: {folder} is a {task.name!r} task, which has no encoder of texts")
    length = min(task_class.default_length, backbone.config.max_length)
    fields = {"max_length": length, **fields}
    return task_class.from_backbone(backbone, task.tokenizer, examples, **fields)


def refuse_another_model(options, task):
    """Raise ValueError, naming the fields, where the options ask for another model than `task`'s."""
    from keras_tfm.training.checkpoint import refuse_changes

    then = dataclasses.asdict(task.model.backbone.config) | {"--max-length": task.config.max_length}
    now = {"--max-length": options.max_length} if options.max_length else {}
    for name in ("stride", "pooling"):
        if asked := getattr(options, name, None):
            then[f"--{name}"], now[f"--{name}"] = getattr(task.config, name), asked
    if options.size:
        size = dataclasses.asdict(task.model.backbone.config_of_size(options.size))
        now |= {name: size[name] for name in ("num_layers", "dim", "num_heads", "intermediate_dim")}
    now |= changes_of(options, task.model.backbone.config)
    refuse_changes(now, {name: then.get(name) for name in now})
