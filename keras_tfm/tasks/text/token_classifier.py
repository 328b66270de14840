"""Tagging: a label for each word of a sentence, for example to find named entities."""

import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, Option
from keras_tfm.data.sources.labelled import TaggedWords, read_tagged_words, read_unlabelled_words
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.heads import TokenCrossEntropy, TokenMean, TokenTagger, token_accuracy
from keras_tfm.serving.examples import listed, not_texts, words_in
from keras_tfm.serving.reading import Read
from keras_tfm.tasks.baselines import Baselines, of_classes, of_dictionary
from keras_tfm.tasks.class_weights import class_weights
from keras_tfm.tasks.judgements import Judgements, confusion_of, counts_in, counts_of_sets, losses_of
from keras_tfm.tasks.learning import ROWS
from keras_tfm.tasks.records import rounded
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.text.encoder_task import (
    EncoderTask,
    Family,
    FamilyOptions,
    TextLength,
    with_parts,
)
from keras_tfm.tasks.text.labels import check_labels, label_ids, published_labels
from keras_tfm.tasks.text.spans import bounds_of, marks_of, repaired, spans_of
from keras_tfm.training.diagnosis import SOME
from keras_tfm.training.folder import Path
from keras_tfm.training.options import ClassTraining, FineTuning


@dataclasses.dataclass(frozen=True)
class TokenClassifierConfig(Config):
    """How a `TokenClassifier` tags words.

    Args:
        labels: the tags, in the order of the logits.
        max_length: how many tokens of a sentence are read, special tokens included.
        head: further arguments of `heads.TokenTagger`.
        marks: punctuation that is a word of its own at the ends of others, in sentences that come as strings.
    """

    labels: tuple[str, ...]
    max_length: Annotated[TextLength, Option("tokens read of a sentence, special tokens included")] = 128
    head: dict = dataclasses.field(default_factory=lambda: {"dropout": 0.1})
    marks: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels)


@dataclasses.dataclass(frozen=True)
class TaggerOptions(FamilyOptions):
    """An encoder with fresh weights. Neighbours decide most tags, which an LSTM learns from hundreds of
    sentences, a Transformer from thousands.
    """

    family: Family = "recurrent"


class TokenClassifier(EncoderTask):
    """Tags each word of a sentence by an encoder such as BERT with a head on every token.

    A sentence is a list of words, or a string that is split at white space and, where that is so in the words
    of training, before and behind punctuation (`config.marks`); examples are (words, tags), two lists of
    lists of strings. Only the first word piece of a word is classified (Devlin et al. 2019, section 5.3).
    Words beyond `config.max_length` tokens are not read: they get "O", or the first label if there is no "O";
    `count_truncated` counts such sentences.

    >>> examples = [["Ada", "lives", "in", "Rome"]] * 8, [["PER", "O", "O", "LOC"]] * 8
    >>> task = keras_tfm.tasks.TokenClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> history = task.fit(examples, examples, epochs=1)
    >>> len(task.predict(["Ada sleeps"])[0])
    2
    """

    name = "tag"
    record_fields = ("answer", "confidence", "words", "scores", "spans")
    files = (
        "text in CoNLL columns (plain, .gz, .xz): word first, tag last, or --columns by number; a blank "
        "line after each sentence; or "
        f"a list of words and a list of tags in {ROWS}; or a .csv or .tsv table with a word per row: its "
        "sentence (or a blank line after each), the word and its tag"
    )
    columns = (2, 3)
    unit = "sentences"
    training = ClassTraining(**dataclasses.asdict(EncoderTask.training))
    given_weights = types.MappingProxyType({**EncoderTask.given_weights, "epochs": 10})
    judged_by = ("val_token_accuracy", "max")
    model_options = TaggerOptions
    config_class = TokenClassifierConfig
    examples_class = TaggedWords
    column_kinds = types.MappingProxyType({"words": not_texts, "tags": not_texts})
    head_class = TokenTagger

    def _add_head(self, backbone: keras.Model) -> TokenTagger:
        backbone = with_parts(backbone, pooler=False)
        return TokenTagger(backbone, len(self.config.labels), **self.config.head)

    @classmethod
    def config_for(cls, examples: Sequence[Sequence], **options: Any) -> TokenClassifierConfig:
        """A configuration with the tags of the examples, sorted."""
        tags = tuple(sorted(cls.labels_in(examples)))
        return TokenClassifierConfig(tags, **{"marks": marks_of(examples[0]), **options})

    @classmethod
    def checked_published(cls, model: Any, config: Any, folder: Path, tokenizer: Tokenizer) -> Any:
        return config  # a sentence is one text

    @classmethod
    def labels_in(cls, examples: Any) -> set[str]:
        return {tag for sentence in examples[1] for tag in sentence}

    @classmethod
    def _published(cls, model: keras.Model, entries: Mapping[str, Any]) -> dict[str, Any]:
        return {"labels": published_labels(entries, model.num_classes)}

    @classmethod
    def texts_of(cls, examples: TaggedWords) -> list[str]:
        return [" ".join(words) for words in examples.words]

    def _encode_labels(self, examples: TaggedWords, read: Sequence[Read]) -> tf.RaggedTensor:
        check_counts(examples)
        rows = [row for (row,), _ in read]
        lengths = [len(row.ids) for row in rows]
        starts = np.cumsum(lengths) - lengths
        firsts = [start + first for start, row in zip(starts, rows, strict=True) for first in row.more.firsts]
        tags = [
            tag for tags, row in zip(examples.tags, rows, strict=True) for tag in tags[: len(row.more.firsts)]
        ]
        labels = np.full(sum(lengths), -1, "int32")
        labels[firsts] = label_ids(tags, self.config.labels)
        return tf.RaggedTensor.from_row_lengths(labels, tf.constant(lengths, tf.int64))

    def baselines(self, examples: TaggedWords, validation: TaggedWords, seed: int) -> Baselines | None:
        counts = [len(row.more.firsts) for (row,), _ in self.answerer.read_all(validation.words)]
        asked_words = [
            word for words, count in zip(validation.words, counts, strict=True) for word in words[:count]
        ]
        asked_tags = [
            tag for tags, count in zip(validation.tags, counts, strict=True) for tag in tags[:count]
        ]
        words, tags = ([x for row in rows for x in row] for rows in examples)
        if not (words and asked_words):
            return None
        known, asked = (label_ids(each, self.config.labels) for each in (tags, asked_tags))
        rules = of_classes(known, asked) | of_dictionary(words, known, asked_words, asked)
        return Baselines("val_token_accuracy", "max", rules, len(asked))

    def some_answers(self, validation: TaggedWords) -> list:
        return [tag for tags in self.predict(validation.words[:SOME]) for tag in tags]

    def _class_weights(self, labels: tf.RaggedTensor, training: Any) -> np.ndarray | None:
        found = labels.flat_values.numpy()
        return class_weights(training, found[found >= 0], self.config.labels)

    def objective(self, training: FineTuning) -> dict[str, Any]:
        return {"loss": TokenCrossEntropy(), "weighted_metrics": [TokenMean(token_accuracy)]}

    def predict(
        self, sentences: Iterable[str | Sequence[str]], /, *, batch_size: int = 64, repair: bool = False
    ) -> list[list[str]]:
        """The tags of each sentence, one for each word: a list of lists of strings.

        With `repair=True` an I- tag that goes on with nothing becomes B-.
        """
        sentences = listed(sentences)
        found = self._probabilities(sentences, batch_size)
        tags = list(map(self._tags_of, self._split(sentences), found))
        return list(map(repaired, tags)) if repair else tags

    def records(
        self, sentences: Iterable[str | Sequence[str]], /, *, batch_size: int = 64, repair: bool = False
    ) -> list[dict[str, Any]]:
        """ "answer", the tags; "confidence", of the least sure word; "words" and the "scores" of their tags,
        None for words that are not read; "spans" of B- and I- tags. See `Task.records`.
        """
        sentences = listed(sentences)
        found = self._probabilities(sentences, batch_size)
        records = []
        for words, values in zip(self._split(sentences), found, strict=True):
            tags = self._tags_of(words, values)
            tags = repaired(tags) if repair else tags
            scores = list(map(rounded, values.max(-1)))
            record = {
                "answer": tags,
                "confidence": min(scores, default=None),
                "words": words,
                "scores": scores + [None] * (len(words) - len(scores)),
                "spans": spans_of(words, tags, scores),
            }
            records.append(record)
        return records

    def _tags_of(self, words: Sequence[str], probabilities: np.ndarray) -> list[str]:
        """A tag for each of the words; the first R of them were read and have `probabilities` (R, labels)."""
        tags = [self.config.labels[place] for place in probabilities.argmax(-1)]
        return tags + [self._outside] * (len(words) - len(tags))

    def _probabilities(self, sentences: Iterable, batch_size: int = 64) -> list[np.ndarray]:
        """The probabilities of all labels (R, labels) for those words of each sentence that are read."""

        def finish(outputs: list, rows: list, example: Any) -> np.ndarray:
            logits = outputs[0]["scores"][rows[0].more.firsts]
            values = np.exp(logits - logits.max(-1, keepdims=True))
            return values / values.sum(-1, keepdims=True)

        return self.ask(sentences, batch_size, finish)

    def _split(self, sentences: Iterable) -> list[list[str]]:
        """The words of sentences, each of which may have come as one string."""
        marks = self.config.marks
        return [words_in(x, marks) if isinstance(x, str) else list(x) for x in sentences]

    @property
    def _outside(self) -> str:
        """The tag of words that are not read."""
        return "O" if "O" in self.config.labels else self.config.labels[0]

    def measure(self, examples: TaggedWords) -> dict[str, Any]:
        """ "accuracy" of the words and, if the tags are B-…, I-… and O, "precision", "recall" and "f1" of
        whole entities as seqeval counts them (Nakayama 2018), all from 0 to 1.
        """
        return self.judge(examples).measures

    def judge(self, examples: TaggedWords) -> Judgements:
        """Losses are means over the words that are read; `counts` are of entities, else of tags."""
        from seqeval.metrics import f1_score, precision_score, recall_score  # slow to import

        words, tags = examples
        labels = self.config.labels
        check_counts(examples)
        label_ids([tag for row in tags for tag in row], labels)  # raises for unknown tags
        probabilities = self._probabilities(words)
        answers = list(map(self._tags_of, words, probabilities))
        true, answered = ([tag for row in rows for tag in row] for rows in (tags, answers))
        right = np.array([one == other for one, other in zip(true, answered, strict=True)], bool)
        measures = {"accuracy": np.mean(right) if len(right) else 0.0}
        confusion = confusion_of(label_ids(true, labels), label_ids(answered, labels), len(labels))
        counts = counts_in(confusion, labels)
        if all(label == "O" or label[:2] in ("B-", "I-") for label in labels):
            methods = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
            measures |= {name: method(tags, answers, zero_division=0) for name, method in methods.items()}
            counts = counts_of_sets(*([set(bounds_of(row)) for row in rows] for rows in (tags, answers)))
        scores, losses = np.zeros(len(right)), np.zeros(len(words))
        first = 0
        for row, values in enumerate(probabilities):
            scores[first : first + len(values)] = values.max(-1)  # 0 of words that are not read
            if len(values):
                losses[row] = losses_of(values, label_ids(tags[row][: len(values)], labels)).mean()
            first += len(words[row])
        return Judgements(measures, tags, answers, losses, counts, labels, confusion, scores, right)

    def as_line(self, answer: Sequence[str]) -> str:
        return " ".join(answer)

    @classmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> TaggedWords:
        return read_tagged_words(paths, columns)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_unlabelled_words(path, self.config.labels, columns)

    def signature(self) -> Signature:
        def run(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {"scores": tf.cast(self._run(inputs), tf.float32)}

        answers = {"kind": "tags", "labels": list(self.config.labels), "outside": self._outside}
        return self.signature_of(run, answers, kind="words", marks=self.config.marks)


def check_counts(examples: TaggedWords) -> None:
    """Raise ValueError for a sentence with more or fewer tags than words."""
    for number, (words, tags) in enumerate(zip(*examples, strict=True), start=1):
        if len(words) != len(tags):
            raise ValueError(
                f"sentence {number}: expected {len(words)} tags, one for each word, got {len(tags)}"
            )
