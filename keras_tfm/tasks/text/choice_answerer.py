"""Multiple choice: which of several texts continues, or answers, another text."""

import dataclasses
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, FieldError, Option
from keras_tfm.data.sources.choices import Choices, read_choices, read_unlabelled_choices
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.heads import MultipleChoice, classification_loss
from keras_tfm.serving.examples import not_text, not_texts, not_whole
from keras_tfm.tasks.baselines import Baselines, of_classes
from keras_tfm.tasks.learning import ROWS
from keras_tfm.tasks.measures import cross_entropy
from keras_tfm.tasks.records import records_of
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.text.encoder_task import EncoderTask, TextLength
from keras_tfm.training.diagnosis import SOME
from keras_tfm.training.folder import Path
from keras_tfm.training.options import FineTuning


@dataclasses.dataclass(frozen=True)
class ChoiceAnswererConfig(Config):
    """How a `ChoiceAnswerer` reads its examples.

    Args:
        max_length: how many tokens of a text with one choice are read, special tokens included.
        head: further arguments of `heads.MultipleChoice`.
    """

    max_length: Annotated[TextLength, Option("tokens read of a text with one of its choices")] = 128
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
    def texts_of(cls, examples: Choices) -> list[str]:
        return [*examples.texts, *(text for texts in examples.choices for text in texts)]

    def _rows_per_example(self, examples: Choices) -> int:
        return number_of_choices(examples.choices)

    def _encode_labels(self, examples: Choices, read: Any = None) -> np.ndarray:
        count = number_of_choices(examples.choices)
        for number, label in enumerate(examples.labels, start=1):
            if not 0 <= label < count:
                raise ValueError(f"example {number}: expected a label from 0 to {count - 1}, got {label}")
        return np.array(examples.labels, "int32")

    def baselines(self, examples: Choices, validation: Choices, seed: int) -> Baselines | None:
        known, asked = map(self._encode_labels, (examples, validation))
        if not (len(known) and len(asked)):
            return None
        return Baselines("val_accuracy", "max", of_classes(known, asked), len(asked))

    def some_answers(self, validation: Choices) -> list[int]:
        texts, choices, _ = (column[:SOME] for column in validation)
        return list(self.predict(zip(texts, choices, strict=True)))

    def objective(self, training: FineTuning) -> dict[str, Any]:
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        return {"loss": classification_loss(), "weighted_metrics": [accuracy]}

    def predict(
        self, examples: Iterable, /, *, probabilities: bool = False, batch_size: int = 16
    ) -> list[int] | np.ndarray:
        """The index of the likeliest choice for each example, (text, choices) or one string with tabs
        between.

        With `probabilities=True`, an array (N, choices) of their probabilities instead; all examples must
        then have the same number of choices.
        """
        values = self._probabilities(examples, batch_size)
        several = sorted({len(row) for row in values})
        if not probabilities:
            return [int(row.argmax()) for row in values]
        if len(several) > 1:
            raise FieldError(
                "{probabilities} need the same number of choices for each text; got {}.", several
            )
        return np.array(values, "float32").reshape(-1, max(several, default=2))

    def records(
        self, examples: Iterable, /, *, probabilities: bool = False, batch_size: int = 16
    ) -> list[dict[str, Any]]:
        """ "answer" and "confidence", the probability of the choice; see `Task.records`. The numbers of
        choices may differ.
        """
        values = self._probabilities(examples, batch_size)
        answers = [int(row.argmax()) for row in values]
        sure = np.array([row.max() for row in values])
        return records_of(answers, sure, probabilities=values if probabilities else None)

    def _probabilities(self, examples: Iterable, batch_size: int) -> list[Any]:
        """The probabilities of the choices of each example."""
        return [answer["probabilities"] for answer in self.ask(examples, batch_size)]

    def measure(self, examples: Choices) -> dict[str, Any]:
        """ "accuracy" from 0 to 1, and "loss" in nats."""
        texts, choices, _ = examples
        truth = self._encode_labels(examples)
        values: Any = self.predict(zip(texts, choices, strict=True), probabilities=True)
        return {"accuracy": np.mean(values.argmax(-1) == truth), "loss": cross_entropy(values, truth)}

    @classmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Choices:
        return read_choices(paths, columns)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_unlabelled_choices(path, columns)

    def signature(self) -> Signature:
        def run(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            logits = self._run({name: x[:, None] for name, x in inputs.items()})  # (B, 1)
            return {"score": tf.cast(logits[:, 0], tf.float32)}

        signature = self.signature_of(run, {"kind": "choice"}, kind="choices", pairs=True)
        texts = [text for text, _ in signature.examples]
        examples = [(text, [texts[-1 - row], texts[row - 1]]) for row, text in enumerate(texts)]
        return signature._replace(examples=examples)


def number_of_choices(choices: Sequence[Sequence[str]]) -> int:
    """How many choices each example has; ValueError if the numbers differ, or one is below two."""
    count = len(choices[0]) if choices else 2
    for number, texts in enumerate(choices, start=1):
        if len(texts) != count or count < 2:
            expected = "two choices or more" if count < 2 else f"{count} choices, like the first example"
            raise ValueError(f"example {number}: expected {expected}, got {len(texts)}")
    return count
