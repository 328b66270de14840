"""Multiple choice: which of several texts continues, or answers, another text."""

import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, Option
from keras_tfm.data.batches.encoding import Ragged, are_cut, model_inputs, pack_texts
from keras_tfm.data.batches.lengths import rows_by_length
from keras_tfm.data.sources.choices import Choices, read_choices
from keras_tfm.data.sources.inputs import Inputs, read_unlabelled_choices
from keras_tfm.heads import MultipleChoice, classification_loss
from keras_tfm.serving.examples import not_choices, not_text, not_texts, not_whole
from keras_tfm.tasks.learning import ROWS
from keras_tfm.tasks.measures import cross_entropy
from keras_tfm.tasks.records import records_of
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.text.encoder_task import EncoderTask, TextLength
from keras_tfm.tasks.text.served_reading import served_choices
from keras_tfm.training.folder import Path
from keras_tfm.training.options import FineTuning


@dataclasses.dataclass(frozen=True)
class ChoiceAnswererConfig(Config):
    """How a `ChoiceAnswerer` reads its examples.

    Args:
        max_length: how many tokens of a text with one choice are read, special tokens included.
        head: further arguments of `heads.MultipleChoice`.
    """

    max_length: Annotated[TextLength, Option("tokens read of a text with one choice, special ones too")] = 128
    head: dict = dataclasses.field(default_factory=lambda: {"dropout": 0.1})


class ChoiceAnswerer(EncoderTask):
    """Chooses one of several texts: the index of the right choice, counted from 0.

    Examples are (texts, choices, labels); each text has the same number of choices, a list of strings. Text
    and choice are read as a pair (Devlin et al. 2019, section 4.4), and tokens beyond `config.max_length` are
    cut from the longer of the two.

    >>> examples = ["It rained."] * 8, [["We got wet.", "We ate."]] * 8, [0] * 8
    >>> task = keras_tfm.tasks.ChoiceAnswerer.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> history = task.fit(examples, examples, epochs=1)
    >>> task.predict([("It rained.", ["We ate.", "We got wet."])], probabilities=True).shape
    (1, 2)
    """

    name = "choose"
    help = "train or fine-tune an encoder to choose one of several texts"
    files = f'{ROWS}: {{"text": "…", "choices": ["…", "…"], "label": 0}}'
    columns = (3,)
    judged_by = ("val_accuracy", "max")
    config_class = ChoiceAnswererConfig
    record_fields = ("answer", "confidence")
    examples_class = Choices
    column_kinds = types.MappingProxyType({"texts": not_text, "choices": not_texts, "labels": not_whole})
    head_class = MultipleChoice

    def _add_head(self, backbone: keras.Model) -> MultipleChoice:
        return MultipleChoice(backbone, **self.config.head)

    @classmethod
    def config_for(cls, examples: Sequence[Sequence], **options: Any) -> ChoiceAnswererConfig:
        """A configuration of these `options`."""
        return ChoiceAnswererConfig(**options)

    @classmethod
    def _published(cls, model: keras.Model, entries: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    @classmethod
    def texts_of(cls, examples: Choices) -> list[str]:
        return [*examples.texts, *(text for texts in examples.choices for text in texts)]

    def _rows_per_example(self, examples: Choices) -> int:
        return number_of_choices(examples.choices)

    def _encode(
        self, texts: Sequence[str] | tf.Tensor, choices: Sequence[Sequence[str]] | tf.Tensor
    ) -> Ragged:
        if not tf.is_tensor(texts):
            texts, choices = as_columns(texts, choices)
        firsts = tf.repeat(texts, tf.shape(choices)[1])
        seconds = tf.reshape(choices, tf.shape(firsts))  # (B C,)
        return pack_texts(self.tokenizer, self.config.max_length, firsts, seconds)

    def _encode_labels(self, examples: Choices, inputs: Ragged | None) -> np.ndarray:
        count = number_of_choices(examples.choices)
        for number, label in enumerate(examples.labels, start=1):
            if not 0 <= label < count:
                raise ValueError(f"example {number}: expected a label from 0 to {count - 1}, got {label}")
        return np.array(examples.labels, "int32")

    def objective(self, training: FineTuning) -> dict[str, Any]:
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        return {"loss": classification_loss(), "weighted_metrics": [accuracy]}

    def _logits(self, texts: tf.Tensor, choices: tf.Tensor) -> tuple[tf.Tensor, Ragged]:
        encoded = self._encode(texts, choices)
        inputs = model_inputs(self._inputs(encoded), self.tokenizer.pad_id)  # (B C, T) each
        shape = tf.concat([tf.shape(choices), tf.shape(inputs["token_ids"])[1:]], axis=0)
        return self._run({name: tf.reshape(x, shape) for name, x in inputs.items()}), encoded

    def count_truncated(self, examples: Iterable) -> int:
        """How many of `examples` have more tokens, with one of their choices, than the model reads."""
        examples = list(map(as_texts, self.answerable(examples)))
        rows = np.array([row for row, (_, *choices) in enumerate(examples) for _ in choices], int)
        firsts = [examples[row][0] for row in rows]
        seconds = [choice for _, *choices in examples for choice in choices]
        cut = are_cut(self.tokenizer, self.config.max_length, firsts, seconds)
        return len(set(rows[cut].tolist()))

    def refusal(self, example: Any) -> str | None:
        return not_choices(example)

    def predict(
        self, examples: Iterable, probabilities: bool = False, batch_size: int = 16
    ) -> list[int] | np.ndarray:
        """The index of the likeliest choice for each example, (text, choices) or one string with tabs
        between.

        With `probabilities=True`, an array (N, choices) of their probabilities instead; all examples must
        then have the same number of choices.
        """
        values, counts = self._probabilities(examples, batch_size)
        several = sorted(set(counts.tolist()))
        if probabilities and len(several) > 1:
            raise ValueError(f"`probabilities` need the same number of choices for each text; got {several}.")
        return values if probabilities else [int(choice) for choice in values.argmax(-1)]

    def records(
        self, examples: Iterable, probabilities: bool = False, batch_size: int = 16
    ) -> list[dict[str, Any]]:
        """ "answer" and "confidence", the probability of the choice; see `Task.records`. The numbers of
        choices may differ.
        """
        values, counts = self._probabilities(examples, batch_size)
        rows = [row[:count] for row, count in zip(values, counts, strict=True)] if probabilities else None
        return records_of(map(int, values.argmax(-1)), values.max(-1), probabilities=rows)

    def _probabilities(self, examples: Iterable, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """The probabilities of the choices for each example, (N, choices), and how many choices it has."""
        examples = list(map(as_texts, self.answerable(examples, batch_size)))
        counts = np.array([len(x) - 1 for x in examples], int)
        several = sorted(set(counts.tolist()))
        # An example with fewer choices than others keeps zeros.
        values = np.zeros((len(examples), max(several, default=2)), "float32")
        for count in several:
            alike = np.flatnonzero(counts == count)
            for places in rows_by_length([sum(map(len, examples[i])) for i in alike], batch_size, "text"):
                rows = alike[places]
                columns = as_columns([examples[i][0] for i in rows], [examples[i][1:] for i in rows])
                values[rows, :count] = tf.nn.softmax(tf.cast(self._answer(*columns)[0], tf.float32))
        return values, counts

    def measure(self, examples: Choices) -> dict[str, Any]:
        """ "accuracy" from 0 to 1, and "loss" in nats."""
        texts, choices, _ = examples
        truth = self._encode_labels(examples, None)
        values: Any = self.predict(zip(texts, choices, strict=True), probabilities=True)
        return {"accuracy": np.mean(values.argmax(-1) == truth), "loss": cross_entropy(values, truth)}

    @classmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Choices:
        return read_choices(paths, columns)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_unlabelled_choices(path, columns)

    def export_endpoints(self) -> Endpoints:
        def answer(text: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
            probabilities = tf.nn.softmax(tf.cast(self._logits(text, choices)[0], tf.float32))
            return {
                "choice": tf.argmax(probabilities, -1, output_type=tf.int32),
                "probabilities": probabilities,
            }

        shapes = {"text": [None], "choices": [None, None]}
        specs = [tf.TensorSpec(shape, tf.string, name) for name, shape in shapes.items()]
        return {"serving_default": (answer, specs)}

    served = served_choices


def as_texts(example: str | tuple[str, Sequence[str]]) -> list[str]:
    """A text and its choices as one list of strings; they may come as (text, choices), or as one string with
    tabs.
    """
    if isinstance(example, str):
        return example.split("\t")
    text, choices = example
    return [text, *choices]


def number_of_choices(choices: Sequence[Sequence[str]]) -> int:
    """How many choices each example has; ValueError if the numbers differ, or one is below two."""
    count = len(choices[0]) if choices else 2
    for number, texts in enumerate(choices, start=1):
        if len(texts) != count or count < 2:
            expected = "two choices or more" if count < 2 else f"{count} choices, like the first example"
            raise ValueError(f"example {number}: expected {expected}, got {len(texts)}")
    return count


def as_columns(texts: Sequence[str], choices: Sequence[Sequence[str]]) -> tuple[tf.Tensor, tf.Tensor]:
    """Tensors of strings: texts (B,) and choices (B, C)."""
    count = number_of_choices(choices)
    flat = tf.constant([text for row in choices for text in row], tf.string)
    return tf.constant(list(texts), tf.string), tf.reshape(flat, [len(choices), count])
