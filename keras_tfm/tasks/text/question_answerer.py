"""Extractive question answering: find the part of a context, however long, that answers a question."""

import collections
import dataclasses
import re
import string
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, FieldError, Length, Option, Refusal
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.batches.windows import longest_question
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.questions import Questions, check_answer, read_questions, read_unanswered
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.heads import SpanCrossEntropy, SpanFinder
from keras_tfm.serving.examples import not_answers, not_text
from keras_tfm.serving.reading import Read
from keras_tfm.tasks.grouped import hold_out_groups
from keras_tfm.tasks.learning import ROWS
from keras_tfm.tasks.records import records_of
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import Task
from keras_tfm.tasks.text.encoder_task import EncoderTask, with_parts
from keras_tfm.tasks.text.text_signature import tokenizer_reads
from keras_tfm.training.folder import Path
from keras_tfm.training.options import FineTuning

LARGEST = np.iinfo("int32").max


@dataclasses.dataclass(frozen=True)
class QuestionAnswererConfig(Config):
    """How a `QuestionAnswerer` reads contexts and chooses answers.

    Args:
        max_length: tokens of a window of the context, question and special tokens included.
        stride: a new window begins every so many tokens of the context; by default a third of `max_length`.
        max_answer_length: how many tokens an answer may have.
        unanswerable: whether a question may have no answer; such an answer is "".
        null_threshold: by how much the score of "no answer" must exceed the best span's.
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
            raise Refusal("max_length", "at least 16", self.max_length)
        stride = self.max_length // 3 if self.stride is None else self.stride
        if not 1 <= stride <= self.max_length // 2:
            raise FieldError("{stride} must lie in 1 to {}; it is {}.", self.max_length // 2, stride)
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

    def hold_out(self, questions: Questions, share: float | None, seed: int) -> tuple[Questions, Questions]:
        """Hold out contexts, with all of their questions: of a context that was trained on, answers are
        better. Of a single context, questions are held out.
        """
        if len(set(questions.contexts)) < 2:
            return super().hold_out(questions, share, seed)
        if share is None:  # about as many questions as `held_out` says
            share = self.held_out.count(len(questions.contexts)) / len(questions.contexts)
        return hold_out_groups(questions, questions.contexts, HeldOut(share), seed)

    def _add_head(self, backbone: keras.Model) -> SpanFinder:
        return SpanFinder(with_parts(backbone, pooler=False), **self.config.head)

    @classmethod
    def config_for(cls, examples: Sequence, **options: Any) -> QuestionAnswererConfig:
        """A configuration that is `unanswerable` if some examples have no answer."""
        unanswerable = not all(map(len, Questions(*examples).answers))
        return QuestionAnswererConfig(**{"unanswerable": unanswerable, **options})

    @classmethod
    def adopt(cls, task: Task, examples: Any, **fields: Any) -> Self:
        if type(task) is cls and cls.config_for(cls.as_examples(examples)).unanswerable:
            fields = {"unanswerable": True, **fields}
        return super().adopt(task, examples, **fields)

    @classmethod
    def from_huggingface(
        cls,
        name: Path,
        examples: Sequence[Sequence] | None = None,
        **options: Any,
    ) -> Self:
        if examples is not None:  # a published head does not say whether questions may have no answer
            options = {"unanswerable": cls.config_for(examples).unanswerable, **options}
        return super().from_huggingface(name, examples, **options)

    @classmethod
    def published_length(cls, config: Any, stated: int | None) -> int:
        """Of a context, windows of `default_length` tokens at most, as transformers' pipeline reads it."""
        return min(super().published_length(config, stated), cls.default_length)

    @classmethod
    def texts_of(cls, examples: Questions) -> list[str]:
        return [*examples.questions, *dict.fromkeys(examples.contexts)]

    def _encode_labels(self, examples: Questions, read: Sequence[Read]) -> dict[str, np.ndarray]:
        """{"start", "end"}: (W, 2) each. The first column is the answer's first or last token in its window,
        or 0 if the window does not hold the whole answer; the second column is the number of tokens in the
        window.
        """
        labels = []
        for (first, limit), (rows, _) in zip(self._places_of(examples), read, strict=True):
            for number, row in enumerate(rows):
                starts, ends = map(np.array, row.more)
                is_context = ends > starts
                answer = np.flatnonzero(is_context & (ends > first) & (starts < limit))
                # The first and last windows also cover text at the context's ends that became no token.
                seen_from = starts[is_context].min() if number else 0
                seen_to = ends.max() if number < len(rows) - 1 else LARGEST
                is_whole = len(answer) and seen_from <= first and limit <= seen_to
                labels.append((*(answer[[0, -1]] if is_whole else (0, 0)), len(row.ids)))
        columns = np.array(labels, "int32").reshape(-1, 3)  # (W, 3)
        return {"start": columns[:, [0, 2]], "end": columns[:, [1, 2]]}

    def _places_of(self, examples: Questions) -> list[tuple[int, int]]:
        """The first character, and the one after the last, of each first answer in its context; 0 and 0 for
        no answer.
        """
        places = []
        for question, context, answers in zip(*examples, strict=True):
            try:
                for answer in answers:
                    check_answer(context, answer)
            except ValueError as error:
                raise ValueError(f"question {question[:60]!r}: {error}") from None
            if not answers and not self.config.unanswerable:
                raise ValueError(
                    f"question {question[:60]!r}: expected an answer, got none; all had one in training "
                    "(`unanswerable` is False)"
                )
            text, start = answers[0] if answers else ("", 0)
            start += len(text) - len(text.lstrip())
            places.append((start, start + len(text.strip())))
        return places

    def objective(self, training: FineTuning) -> dict[str, Any]:
        return {
            "loss": {side: SpanCrossEntropy() for side in ("start", "end")},
            "loss_weights": {"start": 0.5, "end": 0.5},
        }

    def predict(self, pairs: Iterable[str | Sequence[str]], /, *, batch_size: int = 16) -> list[str]:
        """The answer to each (question, context), or "" for no answer."""
        return super().predict(pairs, batch_size=batch_size)

    def records(
        self, pairs: Iterable[str | Sequence[str]], /, *, batch_size: int = 16
    ) -> list[dict[str, Any]]:
        """ "answer" and "confidence", the probability of its start and end among [CLS] and the tokens of the
        context in its window; see `Task.records`.
        """
        found = self.ask(pairs, batch_size)
        return records_of([x["answer"] for x in found], [float(x["score"]) for x in found])

    def measure(self, examples: Questions) -> dict[str, Any]:
        """ "exact_match" and "f1" from 0 to 1, the best over the right answers to each question, counted like
        SQuAD's script (Rajpurkar et al. 2016, section 6.1; 2018).
        """
        questions, contexts, right = examples
        self._places_of(examples)  # raises for answers that are not in their contexts
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
        return read_unanswered(path, columns)

    def signature(self) -> Signature:
        config, reads = self.config, tokenizer_reads(self.tokenizer)
        threshold = config.null_threshold if config.unanswerable else None
        answers = {"kind": "span", "longest": config.max_answer_length, "threshold": threshold}
        if reads["kind"] == "tokenizers":
            # Without some of its special tokens the library would number those added to sentence pieces anew.
            is_sentencepiece = isinstance(self.tokenizer, SentencePieceTokenizer)
            reads["ordinary"] = is_sentencepiece or list(self.tokenizer.ordinary)

        def run(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {side: tf.cast(x, tf.float32) for side, x in self._run(inputs).items()}

        signature = self.signature_of(run, answers, kind="questions", stride=config.stride, of_context=reads)
        texts = signature.examples
        most = longest_question(self.tokenizer, config.max_length, config.stride)
        questions = [
            text for text, ids in zip(texts, self.tokenizer.tokenize(texts), strict=True) if len(ids) <= most
        ]
        examples = [(question, " ".join(texts[row:])) for row, question in enumerate(questions)]
        return signature._replace(examples=examples)


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
