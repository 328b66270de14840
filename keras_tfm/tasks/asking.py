"""Tasks that are asked through their signature: what an export computes, by the Keras model itself."""

import abc
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import tensorflow as tf

from keras_tfm.asking import Asking, Batched
from keras_tfm.log import Bar
from keras_tfm.serving.answering import Answerer, ReadExamples
from keras_tfm.serving.answers import answer_of
from keras_tfm.serving.examples import check_batch_size, listed, refuse_rows
from keras_tfm.serving.readers import reader_of
from keras_tfm.tasks.signatures import Arrays, Inspection, Signature
from keras_tfm.tasks.task import Task


def by_keras(signature: Signature) -> Callable[[Arrays], Arrays]:
    """The function of a `signature` as one of arrays, traced once for all lengths."""
    specs = [{name: tf.TensorSpec(x.shape, x.dtype, name) for name, x in signature.inputs.items()}]
    call = tf.function(signature.function, input_signature=specs, autograph=False)
    return lambda inputs: {name: x.numpy() for name, x in call(inputs).items()}


class AskedTask(Task):
    """A task whose `signature` says what it reads, computes and answers. Abstract.

    `predict` gives the first entry of each answer: of a classifier the label. `ask` reads examples, computes
    and answers them; refusals, the count of what is cut, and exports come from the same signature. What
    `inspect` has read, `predict` does not read again.

    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> isinstance(task, keras_tfm.tasks.AskedTask), list(task.ask(["a film"], batch_size=1)[0])
    (True, ['label', 'labels', 'probabilities'])
    """

    asking: ClassVar[Asking] = Batched()
    as_arrays: Callable[[Signature], Callable[[Arrays], Arrays]] = staticmethod(by_keras)  # what computes

    @abc.abstractmethod
    def signature(self) -> Signature:
        """What the task reads, computes and answers."""

    def predict(self, examples: Any, /, *, batch_size: int = 64) -> Any:
        """The first entry of the answer to each example, in the answer's own order."""
        return [next(iter(answer.values())) for answer in self.ask(examples, batch_size)]

    @property
    def answerer(self) -> Answerer:
        """The signature at work: a reader and an answer on the host, and the function in TensorFlow."""
        config, answerer = self.graphs.get("answerer", (None, None))
        if config is not self.config:
            own = self.own_reader, self.own_answer
            answerer = answerer_of(self.signature_at_work(), *own, self.as_arrays)
            self.graphs["answerer"] = self.config, answerer
        return answerer

    def signature_at_work(self) -> Signature:
        """The `signature` by which `ask` reads and answers."""
        return self.signature()

    @property
    def own_reader(self) -> Any:
        """What reads examples in the place of the signature's reader in `serving`, None for that one."""
        return None

    @property
    def own_answer(self) -> Callable | None:
        """What answers in the place of the signature's answer in `serving`, None for that one."""
        return None

    def ask(
        self, examples: Any, batch_size: int, finish: Callable | None = None, plan: list | None = None
    ) -> list:
        """What the signature answers to each of the `examples`, or what `finish` makes of its outputs; `plan`
        is as in `Answerer.each`. ValueError as from `answerable`.
        """
        answers = dict(self.each(examples, batch_size, finish, plan))
        return [answers[place] for place in range(len(answers))]

    def each(
        self, examples: Any, batch_size: int, finish: Callable | None = None, plan: list | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield the place of each of the `examples` and its answer, as `Answerer.each` does, with a progress
        bar.
        """
        check_batch_size(batch_size)
        examples = listed(examples)
        with Bar(total=len(examples), desc="answering", unit="row") as bar:

            def progress(plan: list) -> Iterator:
                bar.total = max(bar.total, bar.n + sum(len(rows) for rows, _ in plan))
                for rows, run in plan:
                    yield rows, run
                    bar.update(len(rows))

            yield from self.answerer.each(examples, batch_size, finish, progress, plan)

    def inspect(self, examples: Any, **options: Any) -> Inspection:
        examples = examples if isinstance(examples, list) else list(examples)
        read, refusals = Answerer(self.own_reader or self.answerer.reader).inspect(examples)
        rest = [row for row in range(len(read)) if row not in refusals]
        asked = ReadExamples([examples[row] for row in rest], [read[row] for row in rest])
        return Inspection(refusals, sum(is_cut for _, is_cut in asked.read), asked)

    def refusals(self, examples: Any, **options: Any) -> dict[int, str]:
        return self.inspect(examples, **options).refusals

    def count_truncated(self, examples: Iterable) -> int:
        refusals, num_cut, _ = self.inspect(listed(examples))
        refuse_rows(refusals)
        return num_cut


def answerer_of(
    signature: Signature, reader: Any = None, finish: Callable | None = None, as_arrays: Callable = by_keras
) -> Answerer:
    """Reader and answer of a `signature` from the files that an export would hold, around its function;
    another `reader`, and `finish`, in the place of these.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        signature.write_files(folder)
        reader = reader_of(folder, signature.reads) if reader is None else reader
        finish = answer_of(folder, signature.answers) if finish is None else finish
        return Answerer(reader, as_arrays(signature), finish)
