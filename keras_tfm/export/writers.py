"""Tasks that write texts: written, run in the format's own runtime, and compared.

A format with a decoding loop of its own is a module with `EXTRA`, `PACKAGES` and `RUNTIME`, as the others
have, and `write_writer(served, folder, quantization)`, as `ctranslate2` has it, which returns the arguments
of the decoder; `keras_tfm.serving.writing` has that by the same name. Formats of functions hold the steps of
such a task, `steps`, and `keras_tfm.serving.decoding` the loop.
"""

import contextlib
import logging

import numpy as np

from keras_tfm import serving
from keras_tfm.export import ctranslate2, steps
from keras_tfm.export.description import described, write_around

LOG = logging.getLogger(__name__)

FORMATS = {"ctranslate2": ctranslate2}
TIES = 1  # answers that may differ in 32 bits, where two tokens or beams are as likely


def write_writer(served, task, module, quantization, folder, bound):
    """Write a task, as its `ServedWriter` describes it, into `folder` in the format of `module`, and compare
    its answers with the task.

    Raises:
        ValueError: if the format lacks a part of the model, or scores or answers otherwise than the task; the
            `bound` is that of the scores' difference, as for other formats.
        OSError: if the folder cannot be written.
    """
    name = module.__name__.rpartition(".")[2]
    with _in_one_line(name):
        if name in FORMATS:
            decoding = module.write_writer(served, folder, quantization)
        else:
            decoding = steps.write_writer(served, name, module.write, folder, quantization)
    served.write_files(folder)
    description = described(
        task,
        name,
        quantization,
        reads=served.reads,
        spelling=served.spelling,
        decoding=decoding,
        repeats=served.repeats,
    )
    exported = serving.Writer(folder, description)
    with _in_one_line(name):
        description["difference"] = _difference(served, exported, name, quantization, bound)
    reader = served.reads["tokenizer"]["kind"] if served.reads["kind"] == "prompts" else "pillow"
    packages = f"numpy {module.RUNTIME}" + (f" {reader}" if reader != "characters" else "")
    inner = "`served.run(rows)` maps lists of token ids to lists of those that are written."
    example = '["photo.jpg"]' if reader == "pillow" else '["a text"]'
    write_around(folder, description, packages, example, inner)


@contextlib.contextmanager
def _in_one_line(name):
    """A scope in which an error of the format's package, a RuntimeError for example, becomes a ValueError."""
    try:
        yield
    except (OSError, ValueError, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{name} cannot hold this model: {reason}") from error


def _difference(served, exported, name, quantization, bound):
    """How far the log probabilities are from the task's, those of random texts that follow the examples;
    ValueError above the `bound`, and where answers differ.
    """
    examples, expected = served.examples, served.encode(served.examples)
    rows = exported.read(examples)
    for example, ours, theirs in zip(examples, expected, rows, strict=True):
        if not np.array_equal(ours, theirs):
            raise ValueError(f"{name}: outside TensorFlow the task would read {example!r:.80} otherwise")
    random = np.random.default_rng(0)
    size = served.model.head.vocabulary_size
    length = max(1, min(8, served.options.max_new_tokens - 1))  # a score is asked for one position more
    targets = random.integers(0, size, (len(rows), length)).tolist()
    found = exported.score(rows, targets)
    right = [served.score(row, target) for row, target in zip(rows, targets, strict=True)]
    x, y = np.concatenate(right), np.concatenate(found)
    if quantization is None:
        difference = float(np.abs(x - y).max() / max(1e-6, np.abs(x).max()))
    else:
        difference = float(np.sqrt(np.square(x - y).sum() / max(1e-12, np.square(x).sum())))
    if not difference <= bound:  # NaN too
        raise ValueError(
            f"{name}: its log probabilities differ from the task's by {difference:.2g}; the bound "
            f"is {bound:g}"
        )
    answers = served.answer(examples)
    differ = [i for i, text in enumerate(exported(examples)["text"]) if text != answers[i]]
    if quantization is None and len(differ) > TIES:
        raise ValueError(
            f"{name}: {len(differ)} of {len(examples)} answers differ from the task's, the one to "
            f"{examples[differ[0]]!r:.80} for example"
        )
    words = "at most" if quantization is None else f"{quantization}, root mean square of"
    equal = f"{len(examples) - len(differ)} of {len(examples)} answers equal"
    LOG.info("%s: %s %.2g from the task's log probabilities, %s", name, words, difference, equal)
    return difference
