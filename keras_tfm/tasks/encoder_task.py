"""What tasks that fine-tune an encoder share: where it comes from, how it is trained, kept and given away."""

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import keras
import numpy as np
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Config, Count, Option, Rate, Size, checked
from keras_tfm.data.batches.encoding import EncodedBatches, Ragged, in_chunks, model_inputs
from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.huggingface import read_huggingface_tokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.tasks.learning import ModelOptions
from keras_tfm.tasks.task import Task, check_length, check_vocabulary, is_task_folder, load_any
from keras_tfm.tasks.trainable import FineTunedTask
from keras_tfm.training.folder import Path
from keras_tfm.training.options import FineTuning

Family = Literal["bert", "recurrent"]
FAMILIES: dict[str, Any] = {"bert": keras_tfm.models.BERT, "recurrent": keras_tfm.models.Recurrent}
HEAD_ARGUMENTS: dict[str, Any] = {
    "hidden_dim": Size | None,
    "activation": str,
    "dropout": Rate,
    "input_dropout": Rate,
    "kernel_initializer": Literal["glorot_uniform", "zeros"],
}
VOCABULARY_TEXTS = 200_000  # more change a vocabulary of thousands little


@dataclasses.dataclass(frozen=True)
class EncoderOptions(ModelOptions):
    """A BERT with fresh weights, and its vocabulary."""

    set_here: ClassVar[Mapping[str, str]] = {"vocabulary_size": "--vocabulary"}

    size: Annotated[str, Option("a size of BERT, from scratch")] = "mini"
    vocabulary_size: Annotated[
        Count, Option("pieces at most, fewer for small files", flag="--vocabulary")
    ] = 8_000
    lowercase: Annotated[bool, Option("read capitals as small letters, and leave accents away")] = True

    def base(self) -> Config:
        return keras_tfm.models.BERT.config_of_size(self.size)


@dataclasses.dataclass(frozen=True)
class FamilyOptions(EncoderOptions):
    """An encoder with fresh weights, and its vocabulary."""

    family: Annotated[Family, Option("of encoders; recurrent is a bidirectional LSTM")] = "bert"

    def base(self) -> Config:
        return FAMILIES[self.family].config_of_size(self.size)


class EncoderTask(FineTunedTask):
    """An encoder `backbone`, or the model with its head, fine-tuned by examples.

    A subclass names `examples_class`, a tuple of columns of equal length, and `head_class`, and tells how
    examples are encoded and answers are measured. ValueError where the tokenizer has other tokens than the
    model, or `config.max_length` exceeds the model's.
    """

    training = FineTuning(epochs=3, batch_tokens=1_024, learning_rate=5e-5)
    model_options = FamilyOptions
    held_out = (0.05, 1_000)
    examples_class: ClassVar[Any]
    head_class: type
    default_length = 128  # tokens of an example, where neither the caller nor the model says fewer
    chunk = 8_192  # examples that are encoded at once

    def __init__(self, backbone: keras.Model, tokenizer: Tokenizer, config: Any):
        self.tokenizer, self.config = tokenizer, config
        check_head(config.head)
        self.model = backbone if hasattr(backbone, "backbone") else self._add_head(backbone)
        check_length(config.max_length, self.model.backbone.config)
        check_vocabulary(self.model.backbone.config, tokenizer)
        self._answer = tf.function(self._logits, autograph=False, reduce_retracing=True)

    @abc.abstractmethod
    def _add_head(self, backbone: keras.Model) -> keras.Model:
        """The backbone with a new head, of `config`."""

    @abc.abstractmethod
    def _encode(self, *columns: Any) -> Ragged:
        """Ragged inputs, and what belongs to them, of columns without labels. Runs in a graph."""

    @abc.abstractmethod
    def _encode_labels(self, examples: Any, inputs: Any) -> Any:
        """The labels as `EncodedBatches` takes them; ValueError for those that the task does not know."""

    @classmethod
    @abc.abstractmethod
    def config_for(cls, examples: Sequence[Sequence], **options: Any) -> Config:
        """The configuration that `examples` ask for."""

    @classmethod
    def from_examples(
        cls,
        examples: Sequence[Sequence],
        size: str = "mini",
        vocabulary_size: int = 8_000,
        lowercase: bool = True,
        changes: Mapping[str, Any] | None = None,
        family: Family = "bert",
        **options: Any,
    ) -> Self:
        """A task with fresh weights and a WordPiece vocabulary trained on the examples' texts.

        `changes` replace fields of the configuration of the family's `size`; `options` are fields of the
        task's. ValueError for an unknown family or size.
        """
        if family not in FAMILIES:
            raise ValueError(f"There is no encoder family {family!r}; there are {', '.join(FAMILIES)}.")
        examples = cls.examples_class(*examples)
        texts = cls.texts_of(examples)
        sample = texts[:: -(-len(texts) // VOCABULARY_TEXTS) or 1]
        tokenizer = BERTTokenizer.train(sample, vocabulary_size, lowercase)
        changes = {**(changes or {}), "vocabulary_size": tokenizer.vocabulary_size}
        backbone = FAMILIES[family].from_size(size, **changes)
        return cls(backbone, tokenizer, cls.config_for(examples, **options))

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
        """A task of this kind, or a new head on the encoder of another."""
        if type(task) is cls:
            config = dataclasses.replace(task.config, **fields)
            if cls.same_head(task.config, config):
                return cls(task.model, task.tokenizer, config)
        backbone = getattr(task.model, "backbone", task.model)
        if task.tokenizer is None or "sequence_output" not in backbone.output:
            raise ValueError(f"--from: a {task.name!r} task has no encoder of texts")
        most = getattr(backbone.config, "max_length", cls.default_length)
        fields = {"max_length": min(cls.default_length, most), **fields}
        return cls.from_backbone(backbone, task.tokenizer, examples, **fields)

    @classmethod
    def start_from(cls, start: Path, examples: Any, **fields: Any) -> Self:
        if is_task_folder(start):
            return cls.adopt(load_any(start), examples, **fields)
        return cls.from_huggingface(start, examples, **fields)

    @classmethod
    def takes(cls, model: Any) -> bool:
        inputs = model.input
        return isinstance(model, cls.head_class) and "token_ids" in inputs

    @classmethod
    def from_backbone(
        cls, backbone: keras.Model, tokenizer: Tokenizer, examples: Sequence[Sequence], **options: Any
    ) -> Self:
        """A task with a fresh head on an encoder that is there, for what `examples` ask."""
        return cls(backbone, tokenizer, cls.config_for(examples, **options))

    @classmethod
    @abc.abstractmethod
    def texts_of(cls, examples: Any) -> list[str]:
        """All texts in examples, for a vocabulary."""

    @classmethod
    def from_huggingface(
        cls,
        name: Path,
        examples: Sequence[Sequence] | None = None,
        **options: Any,
    ) -> Self:
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
    def config_of(
        cls, model: keras.Model, entries: Mapping[str, Any], tokenizer: Tokenizer, **options: Any
    ) -> Config:
        """The configuration of a published model with its head, by the entries of its config.json."""
        config = model.backbone.config
        length = options.pop("max_length", None) or min(cls.default_length, config.max_length)
        fields = {**options, **cls._published(model, entries)}  # what the head answers is not to be chosen
        own = {"num_classes", *fields}
        head = {name: value for name, value in model.head_arguments.items() if name not in own}
        return cls.config_class(max_length=length, **fields, head=head)

    @classmethod
    @abc.abstractmethod
    def _published(cls, model: keras.Model, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the configuration, by the entries of a published config.json."""

    @classmethod
    def same_head(cls, one: Any, other: Any) -> bool:
        """Whether two configurations ask for the same answers."""
        return set(getattr(one, "labels", ())) == set(getattr(other, "labels", ()))

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, model.safetensors and tokenizer.json.

        TypeError for a model that has no counterpart there.
        """
        from keras_tfm.convert import save_huggingface

        save_huggingface(self.model, folder, overwrite, self._entries(), self.tokenizer)

    def _entries(self) -> dict[str, Any]:
        """What config.json says of the answers."""
        labels = getattr(self.config, "labels", ())
        return {
            "id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)},
        } if labels else {}  # fmt: skip

    def batches(self, examples: Any, training: FineTuning, is_validation: bool = False) -> EncodedBatches:
        encoded = in_chunks(self._encode, *examples[:-1], size=self.chunk)
        inputs, labels = self._inputs(encoded), self._encode_labels(examples, encoded)
        options = {"pad_id": self.tokenizer.pad_id, "rows": self._rows_per_example(examples)}
        return EncodedBatches(inputs, labels, **options, **training.batching_by_length(is_validation))

    def _rows_per_example(self, examples: Any) -> int:
        """How many rows of what `_encode` gives the model reads as one."""
        return 1

    def _inputs(self, encoded: Ragged) -> Ragged:
        """Of what `_encode` gives, what the model takes."""
        return {name: x for name, x in encoded.items() if name in self.model.input}

    def _logits(self, *columns: tf.Tensor) -> tuple[Any, Ragged]:
        """The model's answer to columns without labels, in the graph, and what `_encode` said of them."""
        encoded = self._encode(*columns)
        return self._run(model_inputs(self._inputs(encoded), self.tokenizer.pad_id)), encoded

    def _run(self, inputs: dict[str, tf.Tensor]) -> Any:
        """The model's answer to its inputs, (B, T) each."""
        return self.model(inputs, training=False)


def check_head(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for what heads take no arguments of, or other values of."""
    for name, value in arguments.items():
        if name not in HEAD_ARGUMENTS:
            raise ValueError(f"`head` takes {', '.join(HEAD_ARGUMENTS)}; it was given {name}.")
        checked(value, HEAD_ARGUMENTS[name], f"`{name}` of `head`")


def with_parts(backbone: keras.Model, **parts: Any) -> keras.Model:
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


def as_pairs(texts: Iterable[str | Sequence[str]]) -> list[tuple[str, ...]]:
    """Tuples of two strings, each of which may have come as one string with a tab between."""
    pairs = list(map(parts_of, texts))
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("texts: expected pairs, tuples of two strings or one string with a tab between")
    return pairs


def parts_of(text: str | Sequence[str]) -> tuple[str, ...]:
    """A tuple of strings, which may have come as one string with tabs between."""
    return tuple(text.split("\t")) if isinstance(text, str) else tuple(text)


def check_labels(labels: Sequence[str]) -> None:
    """Raise ValueError for names of labels that are not different strings, two at least."""
    if len(set(labels)) < max(2, len(labels)) or not all(isinstance(label, str) for label in labels):
        raise ValueError(f"`labels` must be different strings, two at least; they are {labels[:20]}.")


def label_ids(labels: Iterable, names: Iterable, unseen: str = "in training") -> np.ndarray:
    """Where each of `labels` stands among `names`: an int32 array; ValueError for one that does not."""
    ids = {name: number for number, name in enumerate(names)}
    unknown = sorted(set(labels) - ids.keys(), key=str)
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ValueError(
            f"labels: {unknown[0]!r}{more} unseen {unseen}; known are {', '.join(map(str, names))[:200]}"
        )
    return np.array([ids[label] for label in labels], "int32")
