"""Extractive question answering: find the part of a context, however long, that answers a question."""

import collections
import dataclasses
import re
import string
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, Length, Option
from keras_tfm.data.batches.encoding import Ragged, pad
from keras_tfm.data.batches.lengths import rows_by_length
from keras_tfm.data.batches.windows import longest_question, question_windows
from keras_tfm.data.sources.inputs import Inputs, read_unanswered
from keras_tfm.data.sources.questions import Questions, check_answer, read_questions
from keras_tfm.heads import SpanCrossEntropy, SpanFinder, best_spans
from keras_tfm.serving.examples import not_answers, not_question, not_text, reasons
from keras_tfm.tasks.learning import ROWS
from keras_tfm.tasks.records import records_of
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import refuse_columns
from keras_tfm.tasks.text.encoder_task import EncoderTask, parts_of, with_parts
from keras_tfm.tasks.text.served_reading import served_questions
from keras_tfm.training.folder import Path
from keras_tfm.training.options import FineTuning

LOWEST = -3.4e38  # replaces sums of two logits that must not be chosen
WINDOWS = 64  # how many windows the model reads at once
LARGEST = np.iinfo("int32").max


@dataclasses.dataclass(frozen=True)
class QuestionAnswererConfig(Config):
    """How a `QuestionAnswerer` reads contexts and chooses answers.

    Args:
        max_length: tokens of a window of the context, question and special tokens included.
        stride: a new window begins every so many tokens of the context; by default a third of `max_length`.
        max_answer_length: how many tokens an answer may have.
        unanswerable: whether a question may have no answer; such an answer is "".
        null_threshold: by how much the score of "no answer" must exceed that of the best span.
        head: further arguments of `heads.SpanFinder`.
    """

    max_length: Annotated[Length, Option("tokens of a window, question and special tokens included")] = 384
    stride: Annotated[
        int | None,
        Option("long contexts are read in windows, one every N tokens", default="a third of --max-length"),
    ] = None
    max_answer_length: Length = 30
    unanswerable: bool = False
    null_threshold: float = 0.0
    head: dict = dataclasses.field(default_factory=lambda: {"dropout": 0.0})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length < 16:
            raise ValueError(f"`max_length` must be at least 16; it is {self.max_length}.")
        stride = self.max_length // 3 if self.stride is None else self.stride
        if not 1 <= stride <= self.max_length // 2:
            raise ValueError(f"`stride` must lie in 1 to {self.max_length // 2}; it is {stride}.")
        object.__setattr__(self, "stride", stride)


class QuestionAnswerer(EncoderTask):
    """Answers questions by a part of their context (Devlin et al. 2019, sections 4.2 and 4.3).

    Examples are (questions, contexts, answers); the answers to a question are a list of `data.Answer`, a text
    and the index of its first character. The list is empty for a question without an answer; training uses
    its first item. A context longer than `config.max_length` tokens is read in overlapping windows; a window
    that does not hold the whole answer learns to point to [CLS]. Answers are exact substrings of the context.

    Raises:
        ValueError: for a question so long that fewer than `config.stride` tokens of context fit beside it,
            and for an answer that is not at its place in the context.

    >>> examples = ["Who sings?"] * 4, ["Ada sings."] * 4, [[("Ada", 0)]] * 4
    >>> task = keras_tfm.tasks.QuestionAnswerer.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> history = task.fit(examples, examples, epochs=1)
    >>> task.predict([("Who sings?", "Ada sings.")])[0] in "Ada sings."
    True
    """

    name = "answer"
    record_fields = ("answer", "confidence")
    help = "train or fine-tune an encoder to find the answers to questions in texts"
    files = f"JSON as in SQuAD 1.1 or 2.0 (plain, .gz, .xz); or a question, a context and answers in {ROWS}"
    columns = (3,)
    unit = "questions"
    training = dataclasses.replace(EncoderTask.training, batch_tokens=12 * 384)
    config_class = QuestionAnswererConfig
    examples_class = Questions
    column_kinds = types.MappingProxyType(
        {"questions": not_text, "contexts": not_text, "answers": not_answers}
    )
    head_class = SpanFinder
    default_length = 384
    chunk = 1_024

    def _add_head(self, backbone: keras.Model) -> SpanFinder:
        return SpanFinder(with_parts(backbone, pooler=False), **self.config.head)

    @classmethod
    def config_for(cls, examples: Sequence, **options: Any) -> QuestionAnswererConfig:
        """A configuration that is `unanswerable` if some examples have no answer."""
        unanswerable = not all(map(len, Questions(*examples).answers))
        return QuestionAnswererConfig(**{"unanswerable": unanswerable, **options})

    @classmethod
    def _published(cls, model: keras.Model, entries: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    @classmethod
    def from_huggingface(
        cls,
        name: Path,
        examples: Sequence[Sequence] | None = None,
        **options: Any,
    ) -> Self:
        if examples is not None:  # a published head does not tell whether questions may have no answer
            options = {"unanswerable": cls.config_for(examples).unanswerable, **options}
        return super().from_huggingface(name, examples, **options)

    @classmethod
    def texts_of(cls, examples: Questions) -> list[str]:
        return [*examples.questions, *dict.fromkeys(examples.contexts)]

    def _encode(self, questions: Sequence[str] | tf.Tensor, contexts: Sequence[str] | tf.Tensor) -> Ragged:
        config = self.config
        if not tf.is_tensor(questions):
            questions, contexts = self._columns(questions, contexts)
        return question_windows(self.tokenizer, config.max_length, config.stride, questions, contexts)

    def _run(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        # In parts of equal size: a context as long as a book has thousands of windows.
        count, width = tf.unstack(tf.shape(inputs["token_ids"]))
        parts = tf.maximum(1, -(-count // WINDOWS))
        size = -(-count // parts)
        missing = [[0, parts * size - count], [0, 0]]
        inputs = {
            name: tf.reshape(tf.pad(x, missing), tf.stack([parts, size, width])) for name, x in inputs.items()
        }
        kinds = {side: x.dtype for side, x in self.model.output.items()}
        logits = tf.map_fn(
            super()._run, inputs, parallel_iterations=1, fn_output_signature=kinds
        )  # (parts, size, T)
        return {
            side: tf.reshape(x, tf.stack([parts * size, width]))[:count] for side, x in logits.items()
        }  # (W, T)

    def _columns(self, questions: Sequence[str], contexts: Sequence[str]) -> tuple[tf.Tensor, ...]:
        """Questions and contexts as strings (B,); ValueError for a question that is too long."""
        for row, reason in self._too_long(questions).items():
            raise ValueError(f"question {questions[row][:60]!r}: {reason}")
        return tuple(tf.constant(list(texts), tf.string) for texts in (questions, contexts))

    def _too_long(self, questions: Sequence[str]) -> dict[int, str]:
        """{row: reason} of the questions that leave too little room for their contexts."""
        most = longest_question(self.tokenizer, self.config.max_length, self.config.stride)
        lengths = self.tokenizer.tokenize(tf.constant(list(questions), tf.string)).row_lengths().numpy()
        return {
            row: f"expected at most {most} tokens of a question, as {self.config.stride} of its context are "
            f"read beside it; got {lengths[row]}"
            for row in np.flatnonzero(lengths > most).tolist()
        }

    def _encode_labels(self, examples: Questions, inputs: Ragged) -> dict[str, np.ndarray]:
        """{"start", "end"}: (W, 2) each. The first column is the answer's first or last token in its window,
        or 0 if the window does not hold the whole answer; the second column is the number of tokens in the
        window.
        """
        first, limit = self._bytes_of(examples)  # (B,)
        count = inputs["num_windows"].numpy()
        question = np.repeat(np.arange(len(count)), count)  # (W,)
        number = np.arange(len(question)) - (np.cumsum(count) - count)[question]  # of windows, from 0
        starts, ends = (inputs[name].to_tensor().numpy() for name in ("starts", "ends"))  # (W, T)
        is_context = ends > starts
        is_answer = is_context & (ends > first[question, None]) & (starts < limit[question, None])
        # The first and last windows also cover text at the context's ends that became no token.
        seen_from = np.where(number == 0, 0, np.where(is_context, starts, LARGEST).min(1))
        seen_to = np.where(number == count[question] - 1, LARGEST, ends.max(1))
        is_whole = (seen_from <= first[question]) & (limit[question] <= seen_to) & is_answer.any(1)
        width, lengths = is_answer.shape[1], inputs["starts"].row_lengths().numpy()
        places = {"start": is_answer.argmax(1), "end": width - 1 - is_answer[:, ::-1].argmax(1)}
        return {
            name: np.stack([np.where(is_whole, place, 0), lengths], axis=1).astype("int32")
            for name, place in places.items()
        }

    def _bytes_of(self, examples: Questions) -> np.ndarray:
        """The first byte, and the one after the last, of each first answer in its context; 0 and 0 for no
        answer.
        """
        spans = np.zeros((2, len(examples.answers)), "int64")
        for number, (question, context, answers) in enumerate(zip(*examples, strict=True)):
            for answer in answers:
                try:
                    check_answer(context, answer)
                except ValueError as error:
                    raise ValueError(f"question {question[:60]!r}: {error}") from None
            if answers:
                text, start = answers[0]
                start = len(context[:start].encode()) + len(text) - len(text.lstrip())
                spans[:, number] = start, start + len(text.strip().encode())
            elif not self.config.unanswerable:
                raise ValueError(
                    f"question {question[:60]!r}: expected an answer, got none; all had one in training "
                    "(`unanswerable` is False)"
                )
        return spans

    def objective(self, training: FineTuning) -> dict[str, Any]:
        return {
            "loss": {side: SpanCrossEntropy() for side in ("start", "end")},
            "loss_weights": {"start": 0.5, "end": 0.5},
        }

    def predict(
        self, pairs: Iterable[str | Sequence[str]], scores: bool = False, batch_size: int = 16
    ) -> list[str] | tuple[list[str], np.ndarray]:
        """The answer to each (question, context), or "" for no answer.

        With `scores=True`, also an array (N,) of probabilities: of this start and end, among [CLS] and the
        tokens of the context in the answer's window.
        """
        pairs = list(map(parts_of, self.answerable(pairs, batch_size)))
        answers, probabilities = [""] * len(pairs), np.zeros(len(pairs), "float32")
        for rows in rows_by_length([len(context) for _, context in pairs], batch_size, "question"):
            columns = self._columns(*zip(*(pairs[row] for row in rows), strict=True))
            found = self._decode(columns[1], *self._answer(*columns))
            probabilities[rows] = found["score"]
            for row, answer in zip(rows, found["answer"].numpy(), strict=True):
                answers[row] = answer.decode()
        return (answers, probabilities) if scores else answers

    def records(self, pairs: Iterable[str | Sequence[str]], batch_size: int = 16) -> list[dict[str, Any]]:
        """ "answer" and "confidence", its probability; see `Task.records`."""
        answers, scores = self.predict(pairs, scores=True, batch_size=batch_size)
        return records_of(answers, np.asarray(scores).tolist())

    def refusals(self, examples: Iterable[str | Sequence[str]], **options: Any) -> dict[int, str]:
        pairs = list(examples)
        refused = reasons(pairs, not_question)
        rows = [row for row in range(len(pairs)) if row not in refused]
        too_long = self._too_long([parts_of(pairs[row])[0] for row in rows])
        refused |= {rows[place]: reason for place, reason in too_long.items()}
        return dict(sorted(refused.items()))

    def _decode(
        self, contexts: tf.Tensor, logits: dict[str, tf.Tensor], encoded: Ragged
    ) -> dict[str, tf.Tensor]:
        """{"answer", "score"}, (B,) each, from the logits of all windows. Runs in a graph."""
        start, end = (tf.cast(logits[side], tf.float32) for side in ("start", "end"))  # (W, T)
        starts, ends = (pad(encoded[name], *tf.unstack(tf.shape(start))) for name in ("starts", "ends"))
        is_context = ends > starts
        first, last, score = best_spans(start, end, is_context, self.config.max_answer_length)
        is_candidate = tf.concat([tf.ones_like(is_context[:, :1]), is_context[:, 1:]], axis=1)
        total = sum(tf.reduce_logsumexp(tf.where(is_candidate, x, LOWEST / 2), axis=1) for x in (start, end))
        null = start[:, 0] + end[:, 0]
        begin, limit = (tf.gather(x, place, batch_dims=1) for x, place in ((starts, first), (ends, last)))

        def by_question(x: tf.Tensor, fill: float = 0.0) -> tf.Tensor:
            windows = tf.RaggedTensor.from_row_lengths(x, encoded["num_windows"])
            width = tf.maximum(1, windows.bounding_shape(1, out_type=tf.int32))
            return pad(windows, windows.nrows(), width, fill)  # (B, windows)

        best = tf.argmax(by_question(score, LOWEST), axis=1)  # (B,)
        score, begin, limit, probability = (
            tf.gather(by_question(x, fill), best, batch_dims=1)
            for x, fill in ((score, LOWEST), (begin, 0), (limit, 0), (score - total, LOWEST))
        )
        texts = tf.strings.substr(contexts, begin, limit - begin)
        texts = tf.strings.regex_replace(texts, r"^[\s\p{Z}]+|[\s\p{Z}]+$", "")
        if self.config.unanswerable:
            least = tf.argmin(by_question(null, -LOWEST), axis=1)
            null, null_probability = (
                tf.gather(by_question(x), least, batch_dims=1) for x in (null, null - total)
            )
            is_none = null - score > self.config.null_threshold
            texts, probability = (
                tf.where(is_none, "", texts),
                tf.where(is_none, null_probability, probability),
            )
        return {"answer": texts, "score": tf.exp(probability)}

    def measure(self, examples: Questions) -> dict[str, Any]:
        """ "exact_match" and "f1" from 0 to 1, the best over the right answers to each question, counted like
        SQuAD's script (Rajpurkar et al. 2016, section 6.1; 2018).
        """
        questions, contexts, right = examples
        self._bytes_of(examples)  # raises for answers that are not in their contexts
        answers: Any = self.predict(zip(questions, contexts, strict=True))
        texts = [[text for text, _ in texts] or [""] for texts in right]
        measures = {
            name: [max(measure(answer, x) for x in row) for answer, row in zip(answers, texts, strict=True)]
            for name, measure in (("exact_match", exact_match), ("f1", f1))
        }
        return {name: np.mean(values) for name, values in measures.items()}

    @classmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Questions:
        return read_questions(paths, columns)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        refuse_columns(columns, "files in SQuAD's format have no columns")
        return read_unanswered(path)

    def export_endpoints(self) -> Endpoints:
        def answer(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
            question, context = (
                tf.strings.unicode_transcode(x, "UTF-8", "UTF-8", replace_control_characters=False)
                for x in (question, context)
            )
            return self._decode(context, *self._logits(question, context))

        names = ("question", "context")
        return {"serving_default": (answer, [tf.TensorSpec([None], tf.string, name) for name in names])}

    served = served_questions


def normalize_answer(text: str) -> list[str]:
    """The words of an answer as SQuAD's script compares them: in lower case, without punctuation and
    articles.
    """
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def exact_match(answer: str, right: str) -> bool:
    """Whether two answers have the same words."""
    return normalize_answer(answer) == normalize_answer(right)


def f1(answer: str, right: str) -> float:
    """The harmonic mean of precision and recall of an answer's words; 1 for two answers without words."""
    words, others = normalize_answer(answer), normalize_answer(right)
    if not words or not others:
        return float(words == others)
    shared = sum((collections.Counter(words) & collections.Counter(others)).values())
    return 2 * shared / (len(words) + len(others))
