"""Classifying texts, or pairs of texts: one class, several labels at once, or a number."""

import dataclasses
from typing import Literal

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, Length
from keras_tfm.data.encoding import are_cut, pack_texts
from keras_tfm.data.inputs import read_unlabelled_texts
from keras_tfm.data.labelled import PROBLEMS, LabelledTexts, read_labelled_texts
from keras_tfm.data.lengths import rows_by_length
from keras_tfm.heads.classification import Classifier, classification_loss
from keras_tfm.tasks.encoder_task import (
    EncoderTask,
    as_pairs,
    check_labels,
    parts_of,
    places_of,
    with_parts,
)
from keras_tfm.tasks.task import refuse_rows

PUBLISHED = dict(
    zip(PROBLEMS, ("single_label_classification", "multi_label_classification", "regression"), strict=True)
)


@dataclasses.dataclass(frozen=True)
class TextClassifierConfig(Config):
    """`labels` are in the order of the logits, none for `problem` "regression"; the others are "classes" and
    "multi-label". `pairs` says that an example is two texts, `max_length` bounds the tokens of an example,
    special ones included. `pooling` and `head` are arguments of `Classifier`.
    """

    labels: tuple[str, ...] = ()
    problem: Literal["classes", "multi-label", "regression"] = "classes"
    pairs: bool = False
    max_length: Length = 128
    pooling: Literal["first", "mean", "max"] = "first"
    head: dict = dataclasses.field(default_factory=lambda: {"dropout": 0.1})

    def __post_init__(self):
        super().__post_init__()
        if self.problem == "regression":
            if self.labels:
                raise ValueError(f"`labels` must be empty for a regression; they are {self.labels[:20]}.")
        else:
            check_labels(self.labels)
        if self.max_length < 8:
            raise ValueError(f"`max_length` must be at least 8; it is {self.max_length}.")


class TextClassifier(EncoderTask):
    """Texts, or tuples of two, to labels.

    Examples are (texts, labels): labels are strings, lists of strings for `problem` "multi-label", or
    numbers.
    """

    name = "classify"
    config_class = TextClassifierConfig
    examples_class = LabelledTexts
    head_class = Classifier

    def _add_head(self, backbone):
        if self.config.pooling != "first":
            backbone = with_parts(backbone, pooler=False)
        num_classes = max(1, len(self.config.labels))
        return Classifier(backbone, num_classes, pooling=self.config.pooling, **self.config.head)

    @classmethod
    def config_for(cls, examples, problem="classes", **options):
        """Labels as the examples have them, sorted."""
        texts, labels = examples
        if problem == "multi-label":
            labels = [name for names in labels for name in names]
        names = () if problem == "regression" else tuple(sorted(set(labels)))
        pairs = bool(texts) and not isinstance(texts[0], str)
        return TextClassifierConfig(names, problem, pairs, **options)

    @classmethod
    def _published(cls, model, entries):
        problems = {theirs: ours for ours, theirs in PUBLISHED.items()}
        problem = problems.get(entries.get("problem_type"))
        problem = problem or ("regression" if model.num_classes == 1 else "classes")
        names = entries.get("id2label") or {str(i): f"LABEL_{i}" for i in range(model.num_classes)}
        labels = tuple(names[str(i)] for i in range(model.num_classes)) if problem != "regression" else ()
        return {"labels": labels, "problem": problem, "pooling": model.pooling}

    @classmethod
    def same_head(cls, one, other):
        alike = (one.problem, one.pooling) == (other.problem, other.pooling)
        return alike and super().same_head(one, other)

    def _entries(self):
        return {**super()._entries(), "problem_type": PUBLISHED[self.config.problem]}

    @classmethod
    def texts_of(cls, examples):
        return [part for text in examples.texts for part in ([text] if isinstance(text, str) else text)]

    def _encode(self, texts, seconds=None):
        if not tf.is_tensor(texts):
            texts, seconds = self._columns(texts)
        return pack_texts(self.tokenizer, self.config.max_length, texts, seconds)

    def _columns(self, texts):
        """Strings (B,), and the second ones (B,) of pairs or None; a pair may be one string with a tab."""
        if not self.config.pairs:
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("texts: expected strings, for this task was trained on texts, got a pair")
            return tf.constant(list(texts), tf.string), None
        pairs = as_pairs(texts)
        return tuple(tf.constant([pair[side] for pair in pairs], tf.string) for side in range(2))

    def _encode_labels(self, examples, inputs):
        labels, names = examples.labels, self.config.labels
        if self.config.problem == "classes":
            return places_of(labels, names)
        if self.config.problem == "regression":
            return np.array(labels, "float32")[:, None]
        matrix = np.zeros((len(labels), len(names)), "float32")
        for row, chosen in enumerate(labels):
            matrix[row, places_of(chosen, names)] = 1
        return matrix

    @property
    def judged_by(self):
        """Accuracy where there is one: the loss rises again while answers still get better."""
        return ("val_accuracy", "max") if self.config.problem == "classes" else super().judged_by

    def _objective(self):
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

    def predict(self, texts, probabilities=False, batch_size=64):
        """The label of each text (a list of labels, or a number), or, with `probabilities`, an array (N,
        labels) of theirs.
        """
        texts = list(texts)
        refuse_rows(self.refusals(texts))
        chances = self.probabilities(texts, batch_size)
        if probabilities:
            if self.config.problem == "regression":
                raise ValueError("A regression has no probabilities; predict its numbers.")
            return chances
        if self.config.problem == "regression":
            return [float(value) for value in chances[:, 0]]
        if self.config.problem == "classes":
            return [self.config.labels[place] for place in chances.argmax(-1)]
        return [[self.config.labels[i] for i in np.flatnonzero(row >= 0.5)] for row in chances]

    def refusals(self, examples, **options):
        expected = "expected a pair of texts, two strings or one with a tab between"
        if not self.config.pairs:
            expected = "expected a text, for this task was trained on texts"
        return {
            row: expected
            for row, text in enumerate(examples)
            if (len(parts_of(text)) != 2 if self.config.pairs else not isinstance(text, str))
        }

    def probabilities(self, texts, batch_size=64):
        """Of each text's labels, (N, labels), or the numbers (N, 1) of a regression."""
        texts = list(texts)
        answers = np.zeros((len(texts), max(1, len(self.config.labels))), "float32")
        for rows in rows_by_length([len(str(text)) for text in texts], batch_size, "text"):
            columns = [x for x in self._columns([texts[row] for row in rows]) if x is not None]
            answers[rows] = self._activate(self._answer(*columns)[0])
        return answers

    def _activate(self, logits):
        """Logits as probabilities, or as they are for a regression."""
        logits = tf.cast(logits, tf.float32)
        activations = {"classes": tf.nn.softmax, "multi-label": tf.sigmoid, "regression": tf.identity}
        return activations[self.config.problem](logits)

    def evaluate(self, examples):
        """How good the answers to `examples` are.

        Classes: "accuracy", "macro_f1" and "loss" in nats. Several labels: "micro_f1", "exact_match".
        Numbers: "pearson" and "mean_squared_error".
        """
        texts, labels = self.examples_class(*examples)
        truth, chances = self._encode_labels(LabelledTexts(texts, labels), None), self.probabilities(texts)
        if self.config.problem == "classes":
            answers, rows = chances.argmax(-1), np.arange(len(texts))
            of_labels = np.maximum(chances[rows, truth], np.finfo("float32").tiny)
            scores = [f1(truth == label, answers == label) for label in np.unique([*truth, *answers])]
            measures = {
                "accuracy": np.mean(answers == truth),
                "macro_f1": np.mean(scores),
                "loss": -np.mean(np.log(of_labels)),
            }
        elif self.config.problem == "multi-label":
            answers = chances >= 0.5
            exact = np.mean((answers == (truth > 0)).all(-1))
            measures = {"micro_f1": f1(truth > 0, answers), "exact_match": exact}
        else:
            pearson = np.corrcoef(truth[:, 0], chances[:, 0])[0, 1] if len(set(labels)) > 1 else 0.0
            measures = {"pearson": pearson, "mean_squared_error": np.mean((truth - chances) ** 2)}
        return {name: round(float(value), 4) for name, value in measures.items()} | {"examples": len(texts)}

    def count_truncated(self, texts):
        """How many of `texts` have more tokens than the model reads, and are cut."""
        columns = zip(*as_pairs(texts), strict=True) if self.config.pairs and len(texts) else [list(texts)]
        return int(are_cut(self.tokenizer, self.config.max_length, *columns).sum())

    def as_line(self, answer):
        return ",".join(answer) if isinstance(answer, list) else super().as_line(answer)

    def read_examples(self, paths, columns=None):
        """What `evaluate` takes, from files."""
        return read_labelled_texts(paths, columns, self.config.problem)

    def read_inputs(self, path, columns=None):
        return read_unlabelled_texts(path, columns, self.config.pairs)

    def export_endpoints(self):
        names = tf.constant(self.config.labels, tf.string)

        def answer(*texts):
            chances = self._activate(self._logits(*texts)[0])
            if self.config.problem == "regression":
                return {"value": chances[:, 0]}
            if self.config.problem == "classes":
                return {"label": tf.gather(names, tf.argmax(chances, -1)), "probabilities": chances}
            return {"is_label": chances >= 0.5, "probabilities": chances}

        sides = ("text", "second") if self.config.pairs else ("text",)
        return {"serving_default": (answer, [tf.TensorSpec([None], tf.string, side) for side in sides])}


def f1(truth, answers):
    """The harmonic mean of precision and recall of boolean arrays; 0 where nothing was right."""
    right = np.sum(truth & answers)
    return 2 * right / max(1, np.sum(truth) + np.sum(answers))
