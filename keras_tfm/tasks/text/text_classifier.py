"""Text classification: one class per text or pair of texts, several labels at once, or a number."""

import dataclasses
import logging
import pathlib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, FieldError, Option
from keras_tfm.data.sources.labelled import (
    PROBLEMS,
    LabelledTexts,
    read_labelled_texts,
    read_unlabelled_texts,
)
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.heads.classification import Classifier, classification_loss
from keras_tfm.serving.examples import (
    check_column,
    not_number,
    not_text,
    not_text_or_pair,
    not_texts,
)
from keras_tfm.tasks.baselines import MEAN, Baselines, of_classes, of_words
from keras_tfm.tasks.class_weights import class_weights
from keras_tfm.tasks.judgements import Judgements, counts_of_sets, judged_classes
from keras_tfm.tasks.learning import TABLES
from keras_tfm.tasks.measures import cross_entropy
from keras_tfm.tasks.records import records_of, surest
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.text.encoder_task import (
    EncoderTask,
    TextLength,
    parts_of,
    with_parts,
)
from keras_tfm.tasks.text.labels import check_labels, label_ids, published_labels
from keras_tfm.training.diagnosis import SOME
from keras_tfm.training.folder import MARK, Path
from keras_tfm.training.monitor import Mode
from keras_tfm.training.options import ClassTraining, FineTuning
from keras_tfm.training.safetensors import CheckpointError

LOG = logging.getLogger(__name__)
Problem = Literal["classes", "multi-label", "regression"]
PUBLISHED = dict(
    zip(PROBLEMS, ("single_label_classification", "multi_label_classification", "regression"), strict=True)
)
PAIRS = f"{MARK}_pairs"  # our entry of config.json, which transformers ignores: whether two texts are read

LABELS = {"classes": not_text, "multi-label": not_texts, "regression": not_number}


@dataclasses.dataclass(frozen=True)
class TextClassifierConfig(Config):
    """How a `TextClassifier` labels texts.

    Args:
        labels: the labels, in the order of the logits; empty for a regression.
        problem: "classes" (one label per text), "multi-label" (any number of them) or "regression".
        pairs: whether an example consists of two texts; None for a published model that does not say: each
            example is a text or two.
        max_length: how many tokens of an example are read, special tokens included.
        pooling: which hidden state is classified: of the "first" token, or the "mean" or "max" of all.
        head: further arguments of `heads.Classifier`.
    """

    labels: tuple[str, ...] = ()
    problem: Annotated[
        Problem,
        Option("what a label is: one class; any number of names, separated by commas; or a number"),
    ] = "classes"
    pairs: bool | None = False
    max_length: Annotated[TextLength, Option("tokens read of an example, special tokens included")] = 128
    pooling: Annotated[
        Literal["first", "mean", "max"],
        Option("the vector that is classified: of the first token, or the mean or maximum of all tokens"),
    ] = "first"
    head: dict = dataclasses.field(default_factory=lambda: {"dropout": 0.1})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.problem == "regression":
            if self.labels:
                raise ValueError(f"`labels` must be empty for a regression; they are {self.labels[:20]}.")
        else:
            check_labels(self.labels)


class TextClassifier(EncoderTask):
    """Labels texts, or pairs of texts, by an encoder such as BERT with a classification head.

    Examples are (texts, labels). A text is a string, or a tuple of two strings; a label is a string, a list
    of strings for `problem="multi-label"`, or a number for `problem="regression"`.

    >>> examples = ["a good film", "a bad film"] * 4, ["+", "-"] * 4
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> history = task.fit(examples, examples, epochs=1)
    >>> task.predict(["a good film"], probabilities=True).shape
    (1, 2)
    """

    name = "classify"
    files = f"a text (or two texts) and its label in {TABLES}"
    columns = (2, 3)
    config_class = TextClassifierConfig
    training = ClassTraining(**dataclasses.asdict(EncoderTask.training))
    fresh_fields = types.MappingProxyType({"pooling": "mean"})
    examples_class = LabelledTexts
    column_kinds = types.MappingProxyType({"texts": not_text_or_pair})
    head_class = Classifier

    @property
    def answer_names(self) -> tuple[str, ...]:
        return self.config.labels

    @property
    def record_fields(self) -> tuple[str, ...]:
        return ("answer",) if self.config.problem == "regression" else ("answer", "confidence")

    def _add_head(self, backbone: keras.Model) -> Classifier:
        if self.config.pooling != "first":
            backbone = with_parts(backbone, pooler=False)
        num_classes = max(1, len(self.config.labels))
        return Classifier(backbone, num_classes, pooling=self.config.pooling, **self.config.head)

    @classmethod
    def config_for(
        cls, examples: Sequence[Sequence], problem: Problem = "classes", **options: Any
    ) -> TextClassifierConfig:
        """A configuration with the labels of the examples, sorted."""
        check_column(examples[1], "labels", LABELS[problem])
        names = tuple(sorted(cls.labels_in(examples)))
        return TextClassifierConfig(names, problem, **cls.inputs_in(examples), **options)

    @classmethod
    def inputs_in(cls, examples: Any) -> dict[str, Any]:
        texts = examples[0]
        return {"pairs": bool(texts) and not isinstance(texts[0], str)}

    @classmethod
    def checked_published(cls, model: Any, config: Any, folder: Path, tokenizer: Tokenizer) -> Any:
        if config.problem == "regression" and model.num_classes != 1:
            path, got = pathlib.Path(folder, "config.json"), f"one of {model.num_classes}"
            raise CheckpointError(path, "problem_type", "a regression of one number", got)
        if config.pairs is False:
            return config
        try:
            return super().checked_published(model, config, folder, tokenizer)
        except CheckpointError as error:
            if config.pairs:
                raise
            LOG.warning("Texts are read one by one: %s", error)
            return dataclasses.replace(config, pairs=False)

    @classmethod
    def config_of(
        cls, model: keras.Model, entries: Mapping[str, Any], tokenizer: Tokenizer, **options: Any
    ) -> TextClassifierConfig:
        options = {"pairs": entries.get(PAIRS), **options}  # only folders of this package say it
        return super().config_of(model, entries, tokenizer, **options)

    @classmethod
    def _published(cls, model: keras.Model, entries: Mapping[str, Any]) -> dict[str, Any]:
        problems: dict[Any, Any] = {theirs: ours for ours, theirs in PUBLISHED.items()}
        problem = problems.get(entries.get("problem_type"))
        problem = problem or ("regression" if model.num_classes == 1 else "classes")
        labels = published_labels(entries, model.num_classes) if problem != "regression" else ()
        return {"labels": labels, "problem": problem, "pooling": model.pooling}

    @classmethod
    def labels_in(cls, examples: Any) -> set[str]:
        _, labels = examples
        listed = [[x] if isinstance(x, str) else x for x in labels if isinstance(x, str | list | tuple)]
        return {name for names in listed for name in names}

    @classmethod
    def knows(cls, config: TextClassifierConfig, examples: Any, **fields: Any) -> bool:
        before = vars(config)
        is_alike = all(fields.get(name, before[name]) == before[name] for name in ("problem", "pooling"))
        return is_alike and super().knows(config, examples, **fields)

    @classmethod
    def same_head(cls, one: TextClassifierConfig, other: TextClassifierConfig) -> bool:
        alike = (one.problem, one.pooling) == (other.problem, other.pooling)
        return alike and super().same_head(one, other)

    def _entries(self) -> dict[str, Any]:
        pairs = {} if self.config.pairs is None else {PAIRS: self.config.pairs}
        return {**super()._entries(), "problem_type": PUBLISHED[self.config.problem], **pairs}

    @classmethod
    def texts_of(cls, examples: LabelledTexts) -> list[str]:
        return [part for text in examples.texts for part in ([text] if isinstance(text, str) else text)]

    def check_examples(self, examples: Any) -> LabelledTexts:
        examples = super().check_examples(examples)
        check_column(examples.labels, "labels", LABELS[self.config.problem])
        return examples

    def classes_in(self, examples: LabelledTexts) -> np.ndarray | None:
        is_one = self.config.problem == "classes"
        return label_ids(examples.labels, self.config.labels) if is_one else None

    def baselines(self, examples: LabelledTexts, validation: LabelledTexts, seed: int) -> Baselines | None:
        if self.config.problem == "multi-label" or not (examples.labels and validation.labels):
            return None
        count = len(validation.texts)
        if self.config.problem == "regression":
            mean, truth = np.mean(examples.labels), np.array(validation.labels)
            return Baselines("val_loss", "min", {MEAN: float(np.mean((truth - mean) ** 2))}, count)
        known, asked = (label_ids(part.labels, self.config.labels) for part in (examples, validation))
        sides = [[" ".join(parts_of(text)) for text in part.texts] for part in (examples, validation)]
        rules = of_classes(known, asked) | of_words(sides[0], known, sides[1], asked, seed)
        return Baselines("val_accuracy", "max", rules, count)

    def some_answers(self, validation: LabelledTexts) -> list | None:
        return list(self.predict(validation.texts[:SOME])) if self.config.problem == "classes" else None

    def _encode_labels(self, examples: LabelledTexts, read: Any = None) -> np.ndarray:
        labels, names = examples.labels, self.config.labels
        if self.config.problem == "classes":
            return label_ids(labels, names)
        if self.config.problem == "regression":
            return np.array(labels, "float32")[:, None]
        matrix = np.zeros((len(labels), len(names)), "float32")
        for row, chosen in enumerate(labels):
            matrix[row, label_ids(chosen, names)] = 1
        return matrix

    @property
    def judged_by(self) -> tuple[str, Mode]:
        """Accuracy chooses the best epoch of a classifier: the loss rises again while answers still
        improve.
        """
        return ("val_accuracy", "max") if self.config.problem == "classes" else super().judged_by

    def _class_weights(self, labels: Any, training: Any) -> np.ndarray | None:
        if training.class_weight is not None and self.config.problem != "classes":
            raise FieldError(
                "{class_weight} is for one class a text; the problem is {}.", self.config.problem
            )
        return class_weights(training, np.asarray(labels), self.config.labels)

    def objective(self, training: FineTuning) -> dict[str, Any]:
        if self.config.problem == "classes":
            accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
            return {"loss": classification_loss(), "weighted_metrics": [accuracy]}
        if self.config.problem == "regression":
            return {"loss": keras.losses.MeanSquaredError("mean_with_sample_weight", name="loss")}
        return {
            "loss": keras.losses.BinaryCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight", name="loss"
            )
        }

    def predict(
        self, texts: Iterable[str | Sequence[str]], /, *, probabilities: bool = False, batch_size: int = 64
    ) -> list | np.ndarray:
        """The label of each text: a string, a list of strings for several labels, or a number.

        With `probabilities=True`, an array (N, labels) with the probability of each label instead.

        Raises:
            ValueError: for a text that cannot be labelled, and for `probabilities` of a regression.
        """
        self._refuse(probabilities)
        values = self.probabilities(texts, batch_size)  # (N, labels)
        return values if probabilities else self._labels_of(values)

    def records(
        self, texts: Iterable[str | Sequence[str]], /, *, probabilities: bool = False, batch_size: int = 64
    ) -> list[dict[str, Any]]:
        """ "answer" and "confidence", of several labels the least sure one's; see `Task.records`."""
        self._refuse(probabilities)
        values = self.probabilities(texts, batch_size)
        answers = self._labels_of(values)
        if self.config.problem == "regression":
            return [{"answer": answer} for answer in answers]
        confidences = values.max(-1) if self.config.problem == "classes" else surest(values)
        return records_of(answers, confidences, self.config.labels, values if probabilities else None)

    def _refuse(self, probabilities: bool) -> None:
        """Raise ValueError for the probabilities of a regression."""
        if probabilities and self.config.problem == "regression":
            raise FieldError("A regression has no probabilities: leave {probabilities} out.")

    def _labels_of(self, values: np.ndarray) -> list:
        """The answers to texts whose labels have these probabilities, (N, labels)."""
        if self.config.problem == "regression":
            return [float(value) for value in values[:, 0]]
        if self.config.problem == "classes":
            return [self.config.labels[label] for label in values.argmax(-1)]
        return [[self.config.labels[label] for label in np.flatnonzero(row >= 0.5)] for row in values]

    def probabilities(self, texts: Iterable[str | Sequence[str]], batch_size: int = 64) -> np.ndarray:
        """The probability of each label, (N, labels), or the predicted numbers (N, 1) of a regression."""
        is_number = self.config.problem == "regression"
        answers = self.ask(texts, batch_size)
        found = [[answer["value"]] if is_number else answer["probabilities"] for answer in answers]
        return np.array(found, "float32").reshape(-1, max(1, len(self.config.labels)))

    def _activate(self, logits: tf.Tensor) -> tf.Tensor:
        """Logits as probabilities; unchanged for a regression."""
        logits = tf.cast(logits, tf.float32)
        activations = {"classes": tf.nn.softmax, "multi-label": tf.sigmoid, "regression": tf.identity}
        return activations[self.config.problem](logits)

    def measure(self, examples: LabelledTexts) -> dict[str, Any]:
        """Metrics by `problem`: "accuracy", "macro_f1" and "loss" (in nats) for classes; "micro_f1" and
        "exact_match" for several labels; "pearson" and "mean_squared_error" for numbers.
        """
        return self.judge(examples).measures

    def judge(self, examples: LabelledTexts) -> Judgements:
        from sklearn.metrics import f1_score  # slow to import, and only needed here

        names = self.config.labels
        truth, values = self._encode_labels(examples), self.probabilities(examples.texts)
        if self.config.problem == "classes":
            answers = values.argmax(-1)
            measures = {
                "accuracy": np.mean(answers == truth),
                "macro_f1": f1_score(truth, answers, average="macro", zero_division=0),
                "loss": cross_entropy(values, truth),
            }
            return judged_classes(measures, names, truth, values)
        if self.config.problem == "multi-label":
            answers = values >= 0.5
            micro_f1 = f1_score(truth > 0, answers, average="micro", zero_division=0)
            measures = {"micro_f1": micro_f1, "exact_match": np.mean((answers == (truth > 0)).all(-1))}
            labels = self._labels_of(values)
            right = np.maximum(np.where(truth > 0, values, 1 - values), np.finfo("float32").tiny)
            sets = [[{(name,) for name in row} for row in rows] for rows in (examples.labels, labels)]
            return Judgements(
                measures, examples.labels, labels, -np.log(right).mean(-1), counts_of_sets(*sets)
            )
        # Equal texts may get answers that differ in the last bit.
        is_constant = any(np.ptp(column) <= 1e-5 * np.abs(column).max() for column in (truth, values))
        pearson = 0.0 if is_constant else np.corrcoef(truth[:, 0], values[:, 0])[0, 1]
        errors = (truth - values)[:, 0] ** 2
        measures = {"pearson": pearson, "mean_squared_error": np.mean(errors)}
        return Judgements(measures, examples.labels, self._labels_of(values), errors)

    def as_line(self, answer: Any) -> str:
        return ",".join(answer) if isinstance(answer, list) else super().as_line(answer)

    @classmethod
    def read_files(
        cls, paths: Sequence[Path], columns: ColumnNames = None, problem: Problem = "classes", **fields: Any
    ) -> LabelledTexts:
        return read_labelled_texts(paths, columns, problem)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_unlabelled_texts(path, columns, self.config.pairs)

    def signature(self) -> Signature:
        def run(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            probabilities = self._activate(self._run(inputs))
            if self.config.problem == "regression":
                return {"value": probabilities[:, 0]}
            is_label = {"is_label": probabilities >= 0.5} if self.config.problem == "multi-label" else {}
            return {"probabilities": probabilities, **is_label}

        answers: dict[str, Any] = {"kind": "classes" if self.config.problem == "classes" else "arrays"}
        if self.config.problem != "regression":
            answers["labels"] = list(self.config.labels)
        return self.signature_of(run, answers, pairs=self.config.pairs)
