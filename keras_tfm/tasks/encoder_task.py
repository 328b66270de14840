"""What tasks that fine-tune an encoder share: where it comes from, how it is trained, kept and given away."""

import abc
import contextlib
import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Rate, Size, checked
from keras_tfm.data.bert_tokenizer import BERTTokenizer
from keras_tfm.data.encoding import EncodedBatches, in_chunks, model_inputs
from keras_tfm.data.epochs import Epochs, hold_out
from keras_tfm.data.huggingface import read_huggingface_tokenizer
from keras_tfm.data.sources import fingerprint
from keras_tfm.data.tokenizer_kinds import load_tokenizer
from keras_tfm.tasks.task import Task, describe_backbone, make_backbone
from keras_tfm.training.depth import layer_rates
from keras_tfm.training.fit import fit_best, trains
from keras_tfm.training.freezing import freeze
from keras_tfm.training.low_rank import adapted
from keras_tfm.training.optimizers import AdamW
from keras_tfm.training.schedules import WarmupLinearSchedule

HEAD_ARGUMENTS: dict[str, Any] = {
    "hidden_dim": Size | None,
    "activation": str,
    "dropout": Rate,
    "input_dropout": Rate,
}
VOCABULARY_TEXTS = 200_000  # more change a vocabulary of thousands little


class EncoderTask(Task):
    """An encoder `backbone`, or the model with its head, fine-tuned by examples.

    A subclass names `examples_class`, a tuple of columns of equal length, and `head_class`, and tells how
    examples are encoded and the head is judged. ValueError where the tokenizer has other tokens than the
    model, or `config.max_length` exceeds the model's.
    """

    examples_class: type
    head_class: type
    default_length = 128  # tokens of an example, where neither the caller nor the model says fewer
    default_batch = 1_024  # tokens of a batch
    chunk = 8_192  # examples that are encoded at once

    def __init__(self, backbone, tokenizer, config):
        self.tokenizer, self.config = tokenizer, config
        check_head(config.head)
        self.model = backbone if hasattr(backbone, "backbone") else self._add_head(backbone)
        sizes = self.model.backbone.config
        if config.max_length > sizes.max_length:
            raise ValueError(
                f"`max_length` must be at most the model's, {sizes.max_length}; it is {config.max_length}."
            )
        check_vocabulary(sizes, tokenizer)
        self._answer = tf.function(self._logits, autograph=False, reduce_retracing=True)

    @abc.abstractmethod
    def _add_head(self, backbone):
        """The backbone with a new head, of `config`."""

    @abc.abstractmethod
    def _encode(self, *columns):
        """Ragged inputs, and what belongs to them, of columns without labels. Runs in a graph."""

    @abc.abstractmethod
    def _encode_labels(self, examples, inputs):
        """The labels as `EncodedBatches` takes them; ValueError for those that the task does not know."""

    @property
    def judged_by(self):
        """The measure that judges the epochs, and whether the "min" or the "max" is best."""
        return "val_loss", "min"

    @abc.abstractmethod
    def _objective(self):
        """Arguments of `compile`: loss and measures."""

    @classmethod
    @abc.abstractmethod
    def config_for(cls, examples, **options):
        """The configuration that `examples` ask for."""

    @classmethod
    def from_examples(
        cls, examples, size="mini", vocabulary_size=8_000, lowercase=True, changes=None, **options
    ):
        """A task with fresh weights and a WordPiece vocabulary trained on the examples' texts.

        `changes` replace fields of the configuration of BERT's `size`; `options` are fields of the task's.
        """
        examples = cls.examples_class(*examples)
        texts = cls.texts_of(examples)
        sample = texts[:: -(-len(texts) // VOCABULARY_TEXTS) or 1]
        tokenizer = BERTTokenizer.train(sample, vocabulary_size, lowercase)
        changes = {**(changes or {}), "vocabulary_size": tokenizer.vocabulary_size}
        return cls(
            keras_tfm.models.BERT.from_size(size, **changes), tokenizer, cls.config_for(examples, **options)
        )

    @classmethod
    def from_backbone(cls, backbone, tokenizer, examples, **options):
        """A task with a fresh head on an encoder that is there, for what `examples` ask."""
        return cls(backbone, tokenizer, cls.config_for(examples, **options))

    @classmethod
    @abc.abstractmethod
    def texts_of(cls, examples):
        """All texts in examples, for a vocabulary."""

    @classmethod
    def from_huggingface(cls, name, examples=None, **options):
        """The task in the folder `name`, or of this hub id, or, for `examples`, its encoder with a new head.

        The folder's own head is kept where it is this task's and has the examples' labels. CheckpointError or
        DataError where something is not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface, head_arguments
        from keras_tfm.convert.folder import read_config

        folder = find_folder(name)
        tokenizer = read_huggingface_tokenizer(folder)
        model, entries = from_huggingface(folder), read_config(folder)
        if isinstance(model, cls.head_class):
            kept = cls.config_of(model, entries, tokenizer, **options)
            wanted = kept if examples is None else cls.config_for(examples, **options)
            if cls.same_head(kept, wanted):
                return cls(model, tokenizer, kept)
        if examples is None:
            raise CheckpointError(name, "architectures", f"one for {cls.name!r}", type(model).__name__)
        backbone = from_huggingface(folder, with_head=False)
        head, parts = head_arguments(backbone, cls.head_class, entries)
        return cls(with_parts(backbone, **parts), tokenizer, cls.config_for(examples, **options, head=head))

    @classmethod
    def config_of(cls, model, entries, tokenizer, **options):
        """The configuration of a published model with its head, by the entries of its config.json."""
        config = model.backbone.config
        length = options.pop("max_length", None) or min(cls.default_length, config.max_length)
        fields = {**options, **cls._published(model, entries)}  # what the head answers is not to be chosen
        own = {"num_classes", *fields}
        head = {name: value for name, value in model.head_arguments.items() if name not in own}
        return cls.config_class(max_length=length, **fields, head=head)

    @classmethod
    @abc.abstractmethod
    def _published(cls, model, entries):
        """Fields of the configuration, by the entries of a published config.json."""

    @classmethod
    def same_head(cls, one, other):
        """Whether two configurations ask for the same answers."""
        return set(getattr(one, "labels", ())) == set(getattr(other, "labels", ()))

    def save_huggingface(self, folder, overwrite=False):
        """Write a new `folder` for `transformers`: config.json, model.safetensors and tokenizer.json.

        TypeError for a model that has no counterpart there.
        """
        from keras_tfm.convert import save_huggingface

        save_huggingface(self.model, folder, overwrite, self._entries(), self.tokenizer)

    def _entries(self):
        """What config.json says of the answers."""
        labels = getattr(self.config, "labels", ())
        return {
            "id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)},
        } if labels else {}  # fmt: skip

    @trains
    def fit(
        self,
        examples,
        validation=None,
        *,
        epochs=3,
        minutes=None,
        batch_tokens=None,
        epoch_batches=None,
        learning_rate=5e-5,
        weight_decay=0.01,
        layer_decay=1.0,
        num_frozen=None,
        lora_rank=None,
        patience=None,
        seed=0,
        run=None,
        save_minutes=10,
        resume=False,
        overwrite=False,
        tensorboard=False,
    ):
        """Train on `examples` and keep the best epoch: {measure: [value an epoch]}.

        `validation` examples judge the epochs; by default a random 5 %, at most 1,000, are held out. An epoch
        is a pass over the examples, or `epoch_batches` where a pass has more; the next goes on from there.
        The learning rate warms up over a tenth of the steps, or of the `minutes`, and falls linearly; a
        block's is `layer_decay` times that of the one above, and the embeddings and the lowest `num_frozen`
        blocks stay as they are; with `lora_rank` they all do, but for updates of that rank to the blocks'
        kernels, merged at the end. With `run` the best task so far stands in that folder, new or to `resume`,
        with checkpoints after every epoch and every `save_minutes`, metrics.csv and, with `tensorboard`,
        logs/; training stops after `patience` epochs without progress, or `minutes` in all.
        """
        if lora_rank is not None and num_frozen is not None:
            raise ValueError("`lora_rank` freezes all blocks: leave out `num_frozen`.")
        batch_tokens = batch_tokens or self.default_batch
        examples = self.examples_class(*examples)
        if validation is None:
            parts = hold_out(len(examples[0]), seed, 0.05, most=1_000)
            examples, validation = (rows_of(examples, rows) for rows in parts)
        validation = self.examples_class(*validation)
        batches = self._batches(examples, batch_tokens, seed=seed, num_epochs=epochs)
        judge = self._batches(validation, batch_tokens, num_shapes=4, min_batches=1)
        batches = Epochs.of(batches, epoch_batches)
        total = batches.num_batches * epochs
        monitor, mode = self.judged_by

        def optimizer(schedule, **averages):
            rates = layer_rates(self.model, layer_decay) if layer_decay != 1 else None
            return AdamW(schedule, weight_decay, global_clipnorm=1.0, rates=rates, **averages)

        settings = {
            "epochs": epochs,
            "batch_tokens": batch_tokens,
            "epoch_batches": epoch_batches,
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "layer_decay": layer_decay,
            "num_frozen": num_frozen,
            "lora_rank": lora_rank,
            "seed": seed,
            "data": fingerprint(*(list(map(repr, column)) for column in examples)),
        }
        with self._partly_trained(num_frozen, lora_rank, seed):
            return fit_best(
                self.model,
                batches,
                judge.dataset(),
                schedule=WarmupLinearSchedule(learning_rate, max(1, total // 10), total + 2),
                optimizer=optimizer,
                objective=self._objective(),
                monitor=monitor,
                mode=mode,
                counts=("examples", len(examples[0]), len(validation[0])),
                epochs=epochs,
                minutes=minutes,
                patience=patience,
                run=run,
                save=self.save,
                save_minutes=save_minutes,
                resume=resume,
                overwrite=overwrite,
                tensorboard=tensorboard,
                settings=settings,
            )

    @contextlib.contextmanager
    def _partly_trained(self, num_frozen, lora_rank, seed):
        """Train parts of the model alone: the blocks above `num_frozen`, or updates of `lora_rank`."""
        with contextlib.ExitStack() as parts:
            with self.model.distribute_strategy.scope():
                if lora_rank is not None:
                    parts.enter_context(adapted(self.model, lora_rank, seed))
                if num_frozen is not None:
                    freeze(self.model, num_frozen)
            yield

    def _batches(self, examples, batch_tokens, **options):
        if len(set(map(len, examples))) != 1:
            counts = ", ".join(f"{len(x)} {name}" for name, x in zip(examples._fields, examples, strict=True))
            raise ValueError(f"examples: expected columns of one length, got {counts}")
        encoded = in_chunks(self._encode, *examples[:-1], size=self.chunk)
        labels = self._encode_labels(examples, encoded)
        rows = self._rows_per_example(examples)
        inputs, pad_id = self._inputs(encoded), self.tokenizer.pad_id
        return EncodedBatches(inputs, labels, pad_id, rows, batch_tokens=batch_tokens, **options)

    def _rows_per_example(self, examples):
        """How many rows of what `_encode` gives the model reads as one."""
        return 1

    def _inputs(self, encoded):
        """Of what `_encode` gives, what the model takes."""
        return {name: x for name, x in encoded.items() if name in self.model.input}

    def _logits(self, *columns):
        """The model's answer to columns without labels, in the graph, and what `_encode` said of them."""
        encoded = self._encode(*columns)
        return self._run(model_inputs(self._inputs(encoded), self.tokenizer.pad_id)), encoded

    def _run(self, inputs):
        """The model's answer to its inputs, (B, T) each."""
        return self.model(inputs, training=False)

    def export_resources(self):
        return [self.tokenizer]

    def describe_model(self):
        return describe_backbone(self.model.backbone)

    def save_parts(self, folder):
        self.tokenizer.save(folder)

    @classmethod
    def load_parts(cls, folder, config, model):
        return cls(make_backbone(model), load_tokenizer(folder), config)


def check_vocabulary(sizes, tokenizer):
    """Raise ValueError where the tokenizer has more tokens than a model of the configuration `sizes`."""
    if sizes.vocabulary_size < tokenizer.vocabulary_size:
        raise ValueError(
            f"The vocabulary does not match the embedding: the tokenizer has {tokenizer.vocabulary_size} "
            f"tokens, the model {sizes.vocabulary_size}."
        )


def check_head(arguments):
    """Raise ValueError for what heads take no arguments of, or other values of."""
    for name, value in arguments.items():
        if name not in HEAD_ARGUMENTS:
            raise ValueError(f"`head` takes {', '.join(HEAD_ARGUMENTS)}; it was given {name}.")
        checked(value, HEAD_ARGUMENTS[name], f"`{name}` of `head`")


def with_parts(backbone, **parts):
    """The backbone with fields of its configuration changed that add or leave out layers, and its weights."""
    config = backbone.config
    changes = {name: value for name, value in parts.items() if getattr(config, name, value) != value}
    if not changes:
        return backbone
    changed = type(backbone)(dataclasses.replace(config, **changes), dtype=backbone.dtype_policy)
    weights = {weight.path: weight for weight in backbone.weights}
    for weight in changed.weights:
        if weight.path in weights:
            weight.assign(weights[weight.path])
    return changed


def as_pairs(texts):
    """Tuples of two strings, each of which may have come as one string with a tab between."""
    pairs = list(map(parts_of, texts))
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("texts: expected pairs, tuples of two strings or one string with a tab between")
    return pairs


def parts_of(text):
    """A tuple of strings, which may have come as one string with tabs between."""
    return tuple(text.split("\t")) if isinstance(text, str) else tuple(text)


def rows_of(examples, rows):
    """Those `rows` of all columns."""
    return type(examples)(*([column[row] for row in rows] for column in examples))


def check_labels(labels):
    """Raise ValueError for names of labels that are not different strings, two at least."""
    if len(set(labels)) < max(2, len(labels)) or not all(isinstance(label, str) for label in labels):
        raise ValueError(f"`labels` must be different strings, two at least; they are {labels[:20]}.")


def places_of(labels, names, unseen="in training"):
    """Where each of `labels` stands among `names`: an int32 array; ValueError for one that does not."""
    places = {name: place for place, name in enumerate(names)}
    unknown = sorted(set(labels) - places.keys(), key=str)
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ValueError(
            f"labels: {unknown[0]!r}{more} unseen {unseen}; known are {', '.join(map(str, names))[:200]}"
        )
    return np.array([places[label] for label in labels], "int32")
