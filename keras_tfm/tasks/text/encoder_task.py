"""The base class of tasks that fine-tune a text encoder such as BERT: classification, tagging, answers,
choices.
"""

import abc
import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import keras
import numpy as np
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Between, Config, Option, Rate, Refusal, Size, checked
from keras_tfm.data.batches.encoding import EncodedBatches, ragged_rows
from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.huggingface import read_huggingface_tokenizer, refuse_other_pairs
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.log import Bar
from keras_tfm.models.families import OnDemand
from keras_tfm.serving.examples import refuse_rows
from keras_tfm.serving.reading import Read
from keras_tfm.tasks.asking import AskedTask
from keras_tfm.tasks.columns import columns_of, rows_of
from keras_tfm.tasks.learning import VOCABULARY, ModelOptions, Vocabulary, family_among
from keras_tfm.tasks.signatures import Signature
from keras_tfm.tasks.task import Task, check_length, check_vocabulary, encodes_texts, label_entries
from keras_tfm.tasks.text.text_signature import text_signature
from keras_tfm.tasks.trainable import FineTunedTask
from keras_tfm.training.folder import Path
from keras_tfm.training.options import FineTuning
from keras_tfm.training.weights import assign_by_path, by_path

TextLength = Annotated[int, Between(8, 2**20)]  # room for some tokens between the special ones
FAMILIES = OnDemand({"bert": "BERT", "recurrent": "Recurrent"})
HEAD_ARGUMENTS: dict[str, Any] = {
    "hidden_dim": Size | None,
    "activation": str,
    "dropout": Rate,
    "input_dropout": Rate,
    "kernel_initializer": Literal["glorot_uniform", "zeros"],
    "norm_epsilon": Rate | None,
    "use_bias": bool,
}
VOCABULARY_TEXTS = 200_000  # a vocabulary of thousands of pieces hardly changes with more


@dataclasses.dataclass(frozen=True)
class EncoderOptions(ModelOptions):
    """A BERT with fresh weights, and its vocabulary."""

    set_here: ClassVar[Mapping[str, str]] = {"vocabulary_size": "--vocabulary"}

    size: Annotated[str, Option("size of the encoder to train from scratch")] = "mini"
    vocabulary_size: Vocabulary = VOCABULARY
    lowercase: Annotated[bool, Option("convert texts to lower case and remove accents")] = True

    def base(self) -> Config:
        return keras_tfm.models.BERT.config_of_size(self.size)


def encoder_called(family: str) -> Any:
    """The class of the encoders of a `family`; ValueError for an unknown one."""
    return family_among(FAMILIES, family, ("vocabulary_size",))


Family = Annotated[str, Option("kind of encoder: bert, or recurrent, a bidirectional LSTM")]


@dataclasses.dataclass(frozen=True)
class FamilyOptions(EncoderOptions):
    """An encoder with fresh weights, and its vocabulary."""

    family: Family = "bert"

    def base(self) -> Config:
        return encoder_called(self.family).config_of_size(self.size)


class EncoderTask(AskedTask, FineTunedTask):
    """An encoder that is fine-tuned on labelled examples. Abstract.

    Args:
        backbone: an encoder without a head, which gets a new one, or a model with its head.
        tokenizer: the encoder's tokenizer.
        config: the task's configuration, an instance of `config_class`.

    A subclass names `examples_class`, a named tuple of columns of which the last holds the labels, and
    `head_class`, and defines its `signature` and how answers are measured.

    Raises:
        ValueError: for a decoder, whose first state sees no text; if the tokenizer has more tokens than the
            model, or `config.max_length` exceeds the model's.
    """

    training = FineTuning(epochs=15, batch_tokens=1_024)
    given_weights = types.MappingProxyType({"epochs": 3, "learning_rate": 5e-5})
    model_options = FamilyOptions
    examples_class: ClassVar[Any]
    gives_new_heads = True
    head_class: ClassVar[Any]
    of_examples: ClassVar[tuple[str, ...]] = ("labels", "pairs")  # fields of the configuration that they set
    default_length = 128  # tokens per example, unless caller or folder choose, or the model has fewer
    chunk = 8_192  # how many examples are encoded at once

    def __init__(self, backbone: keras.Model, tokenizer: Tokenizer, config: Any):
        self.tokenizer, self.config = tokenizer, config
        self.has_given_weights = True
        check_head(config.head)
        encoder = getattr(backbone, "backbone", backbone)
        if not reads_texts(encoder):
            raise Refusal("backbone", "an encoder of texts, or BART", type(encoder).__name__)
        self.model = backbone if hasattr(backbone, "backbone") else self._add_head(backbone)
        check_length(config.max_length, self.model.backbone.config)
        check_vocabulary(self.model.backbone.config, tokenizer)

    @abc.abstractmethod
    def _add_head(self, backbone: keras.Model) -> keras.Model:
        """The backbone with a new head, as `config` describes it."""

    @abc.abstractmethod
    def _encode_labels(self, examples: Any, read: Sequence[Read]) -> Any:
        """The labels in the form that `EncodedBatches` takes, of examples that were `read` as these rows;
        ValueError for labels unknown to the task.
        """

    @classmethod
    def config_for(cls, examples: Sequence[Sequence], **options: Any) -> Config:
        """A configuration of these `options` that fits `examples`, with their labels for instance."""
        return cls.config_class(**options)

    @classmethod
    def from_examples(
        cls,
        examples: Sequence[Sequence],
        size: str = "mini",
        vocabulary_size: int = VOCABULARY,
        lowercase: bool = True,
        changes: Mapping[str, Any] | None = None,
        family: str | None = None,
        **options: Any,
    ) -> Self:
        """A task with fresh weights, and a WordPiece vocabulary trained on the texts of the examples.

        Args:
            examples: columns, as `fit` takes them.
            size: a published size of the family, "tiny", "mini" or "base" for example.
            vocabulary_size: how many word pieces the vocabulary may have.
            lowercase: whether texts are converted to lower case, without accents.
            changes: fields of the size's configuration to replace.
            family: "bert", "recurrent" for a bidirectional LSTM, or a plugin's; by default that of
                `model_options`.
            options: fields of the task's configuration.

        Raises:
            ValueError: for an unknown family or size.
        """
        encoder = encoder_called(cls.model_options.family if family is None else family)
        examples = cls.as_examples(examples)
        texts = cls.texts_of(examples)
        sample = texts[:: -(-len(texts) // VOCABULARY_TEXTS) or 1]
        tokenizer = BERTTokenizer.train(sample, vocabulary_size, lowercase)
        changes = {**(changes or {}), "vocabulary_size": tokenizer.vocabulary_size}
        backbone = encoder.from_size(size, **changes)
        task = cls(backbone, tokenizer, cls.config_for(examples, **{**cls.fresh_fields, **options}))
        task.has_given_weights = False
        return task

    @classmethod
    def make(
        cls,
        examples: Any,
        options: FamilyOptions,
        changes: Mapping[str, Any],
        **fields: Any,
    ) -> Self:
        return cls.from_examples(
            examples,
            options.size,
            options.vocabulary_size,
            options.lowercase,
            changes,
            options.family,
            **fields,
        )

    @classmethod
    def adopt(cls, task: Task, examples: Any, **fields: Any) -> Self:
        """The other task itself if it is of this class and its head knows the labels of `examples`, else a
        new head on its encoder.
        """
        if type(task) is cls:
            examples = cls.as_examples(examples)
            if cls.knows(task.config, examples, **fields):
                fields = cls.inputs_in(examples) | fields
                return cls(task.model, task.tokenizer, dataclasses.replace(task.config, **fields))
            kept = {name: x for name, x in vars(task.config).items() if name not in cls.of_examples}
            fields = kept | fields
        backbone = getattr(task.model, "backbone", task.model)
        if task.tokenizer is None or not reads_texts(backbone):
            raise ValueError(f"--from: a {task.name!r} task has no encoder of texts")
        return cls.from_backbone(backbone, task.tokenizer, examples, **fields)

    @classmethod
    def takes(cls, model: Any) -> bool:
        return isinstance(model, cls.head_class) and reads_texts(model.backbone)

    @classmethod
    def from_backbone(
        cls, backbone: keras.Model, tokenizer: Tokenizer, examples: Sequence[Sequence], **options: Any
    ) -> Self:
        """A task with a new head on an existing encoder, with the labels of `examples`."""
        most = getattr(backbone.config, "max_length", cls.default_length)
        options = {"max_length": min(cls.default_length, most), **options}
        return cls(backbone, tokenizer, cls.config_for(cls.as_examples(examples), **options))

    @classmethod
    @abc.abstractmethod
    def texts_of(cls, examples: Any) -> list[str]:
        """All texts in the examples, to train a vocabulary on."""

    @classmethod
    def from_huggingface(
        cls,
        name: Path,
        examples: Sequence[Sequence] | None = None,
        **options: Any,
    ) -> Self:
        """The task in the folder `name` (or of this hub id); with `examples`, its encoder with a new head.

        The folder's own head is kept if it belongs to this task and has the labels of the examples. It reads
        as many tokens as tokenizer_config.json says (`model_max_length`) unless `max_length` is given.

        Raises:
            CheckpointError, DataError: if a file of the folder is missing or not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface, head_arguments
        from keras_tfm.convert.folder import read_config, read_max_length

        examples = None if examples is None else cls.as_examples(examples)
        folder = find_folder(name)
        tokenizer = read_huggingface_tokenizer(folder, encloses=True)
        model, entries = from_huggingface(folder), read_config(folder)
        if isinstance(model, cls.head_class):
            # A training keeps the length of trainings, which is shorter.
            stated = read_max_length(folder) if examples is None else None
            length = cls.published_length(model.backbone.config, stated)
            kept = cls.config_of(model, entries, tokenizer, **{"max_length": length, **options})
            wanted = kept if examples is None else cls.config_for(examples, **options)
            if cls.same_head(kept, wanted):
                inputs = {} if examples is None else cls.inputs_in(examples)
                kept = dataclasses.replace(kept, **inputs)
                return cls(model, tokenizer, cls.checked_published(model, kept, folder, tokenizer))
        if examples is None:
            raise CheckpointError(name, "architectures", f"one for {cls.name!r}", type(model).__name__)
        backbone = from_huggingface(folder, with_head=False)
        head, parts = head_arguments(backbone, cls.head_class, entries)
        return cls.from_backbone(with_parts(backbone, **parts), tokenizer, examples, **options, head=head)

    @classmethod
    def config_of(
        cls, model: keras.Model, entries: Mapping[str, Any], tokenizer: Tokenizer, **options: Any
    ) -> Any:
        """The configuration of a published model with its head, from the entries of its config.json."""
        fields = {**options, **cls._published(model, entries)}  # the published head fixes its labels
        own = {"num_classes", *fields}
        head = {name: value for name, value in model.head_arguments.items() if name not in own}
        return cls.config_class(**fields, head=head)

    @classmethod
    def published_length(cls, config: Any, stated: int | None) -> int:
        """How many tokens a published head reads: what its files have `stated`, or else `default_length`."""
        return min(stated or cls.default_length, config.max_length)

    @classmethod
    def _published(cls, model: keras.Model, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the task's configuration, from the entries of a published config.json."""
        return {}

    @classmethod
    def inputs_in(cls, examples: Any) -> dict[str, Any]:
        """The fields of the configuration that the inputs of checked `examples` set, whatever the labels."""
        return {}

    @classmethod
    def checked_published(cls, model: Any, config: Any, folder: Path, tokenizer: Tokenizer) -> Any:
        """The `config` by which a task asks a published head as it was asked; CheckpointError for none."""
        refuse_other_pairs(folder, tokenizer, "segment_ids" in model.input)
        return config

    @classmethod
    def knows(cls, config: Any, examples: Any, **fields: Any) -> bool:
        """Whether the head of a task of this configuration, with these `fields` replaced, serves for
        `examples`.
        """
        return cls.labels_in(examples) <= set(getattr(config, "labels", ()))

    @classmethod
    def same_head(cls, one: Any, other: Any) -> bool:
        """Whether two configurations have the same labels, so that one head serves both."""
        return set(getattr(one, "labels", ())) == set(getattr(other, "labels", ()))

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, model.safetensors and tokenizer.json.

        Raises:
            TypeError: if transformers has no such model.
        """
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.folder import max_length_writer

        writers = [max_length_writer(self.config.max_length)]
        save_huggingface(self.model, folder, overwrite, self._entries(), self.tokenizer, writers)

    def _entries(self) -> dict[str, Any]:
        """The entries of config.json about the labels."""
        labels = getattr(self.config, "labels", ())
        return label_entries(labels) if labels else {}

    def batches(self, examples: Any, training: FineTuning, is_validation: bool = False) -> EncodedBatches:
        parts: list[tuple[Any, Any]] = []
        count = len(columns_of(examples)[0])
        for first in Bar(range(0, max(1, count), self.chunk), "tokenizing", unit="chunk"):
            some = rows_of(examples, np.arange(first, min(count, first + self.chunk)))
            read, refused = self.answerer.inspect(self.asked(some))
            refuse_rows({first + row: reason for row, reason in refused.items()})
            inputs = ragged_rows([row for rows, _ in read for row in rows])
            parts.append((inputs, self._encode_labels(some, read)))
        inputs, labels = tf.nest.map_structure(
            lambda *x: tf.concat(x, axis=0), *parts, expand_composites=False
        )
        inputs = {name: x for name, x in inputs.items() if name in self.model.input}
        options = {"pad_id": self.tokenizer.pad_id, "rows": self._rows_per_example(examples)}
        batches = EncodedBatches(inputs, labels, **options, **training.batching_by_length(is_validation))
        if not is_validation:
            batches.class_weights = self._class_weights(labels, training)
        return batches

    @classmethod
    def asked(cls, examples: Any) -> list:
        """The `examples` without their labels, as `predict` takes them."""
        columns = columns_of(examples)[:-1]
        return list(columns[0]) if len(columns) == 1 else list(zip(*columns, strict=True))

    def _class_weights(self, labels: Any, training: Any) -> np.ndarray | None:
        """The weights of the labels 0, 1, … in the loss; None for equal ones."""
        return None

    def _rows_per_example(self, examples: Any) -> int:
        """How many encoded rows make one example: the number of choices, for instance."""
        return 1

    def signature_of(self, run: Callable, answers: dict[str, Any], **options: Any) -> Signature:
        """The `Signature` of the function `run` of the model's inputs; see `text_signature`."""
        names, length = set(self.model.input), self.config.max_length
        return text_signature(self.tokenizer, length, names, run, answers, **options)

    def _run(self, inputs: dict[str, tf.Tensor]) -> Any:
        """The model's output for its inputs, (B, T) each."""
        return self.model(inputs, training=False)


def reads_texts(backbone: Any) -> bool:
    """Whether a head on `backbone` sees the whole text: on an encoder, or where both sides read it."""
    return encodes_texts(backbone) or hasattr(backbone, "read")


def check_head(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for unknown arguments of a head, and for values that they cannot have."""
    for name, value in arguments.items():
        if name not in HEAD_ARGUMENTS:
            raise ValueError(f"`head` takes {', '.join(HEAD_ARGUMENTS)}; it was given {name}.")
        checked(value, HEAD_ARGUMENTS[name], f"{name} of `head`")


def with_parts(backbone: keras.Model, **parts: Any) -> keras.Model:
    """The backbone with its weights, rebuilt where `parts` add or remove layers: fields of its
    configuration.
    """
    config = backbone.config
    changes = {name: value for name, value in parts.items() if getattr(config, name, value) != value}
    if not changes:
        return backbone
    changed = backbone.with_fresh_weights(**changes)
    assign_by_path(changed, by_path(backbone))
    return changed


def parts_of(text: str | Sequence[str]) -> tuple[str, ...]:
    """A tuple of strings; a single string is split at its tabs."""
    return tuple(text.split("\t")) if isinstance(text, str) else tuple(text)
