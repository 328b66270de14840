"""Tasks that write texts: written, run in the format's own runtime, and compared.

A format with a decoding loop of its own is a module with `RUNTIME`, as the others have, and
`write_writer(signature, folder, quantization)`, as `ctranslate2` has it, which returns the arguments of the
decoder; `keras_tfm.serving.writing` has the decoder, by the same name. Formats of functions
hold the steps of such a task, `steps`, and `keras_tfm.serving.decoding` the loop.
"""

import contextlib
import logging

import keras
import numpy as np

from keras_tfm import serving
from keras_tfm.export import ctranslate2, steps
from keras_tfm.export.description import described, write_around
from keras_tfm.serving.decoding import rows_of

LOG = logging.getLogger(__name__)

FORMATS = {"ctranslate2": ctranslate2}
TIES = 1  # answers that may differ in 32 bits, where two tokens or beams are as likely


def write_writer(signature, ask, task, module, quantization, folder, bound):
    """Write a task, as its `Signature` says it, into `folder` in the format of `module`, and compare its
    answers with the task's, which `ask` gives.

    Raises:
        ValueError: if the format lacks a part of the model, or scores or answers otherwise than the task;
            `bound` limits the scores' difference, as for other formats.
        OSError: if the folder cannot be written.
    """
    name = module.__name__.rpartition(".")[2]
    with _in_one_line(name):
        if name in FORMATS:
            decoding = module.write_writer(signature, folder, quantization)
        else:
            decoding = steps.write_writer(signature, name, module.write, folder, quantization)
    signature.write_files(folder)
    entries = {"reads": signature.reads, "decoding": decoding, "answers": signature.answers}
    description = described(task, name, quantization, **entries)
    exported = serving.Served(folder, description)
    with _in_one_line(name):
        description["difference"] = _difference(signature, ask, exported, name, quantization, bound)
    inner = '`served.run(served.read(examples))["ids"]` are the ids that are written, a list for each.'
    write_around(folder, description, module.RUNTIME, "a text", inner)


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


def _difference(signature, ask, exported, name, quantization, bound):
    """How far the log probabilities of random texts that follow the examples are from the task's; ValueError
    above the `bound`, and where answers differ.
    """
    examples, writing, random = signature.examples, signature.function, np.random.default_rng(0)
    length = max(1, min(8, writing.options.max_new_tokens - 1))  # a score is asked for one position more
    expected, scores = [], []
    for example in examples:
        target = random.integers(0, writing.model.head.vocabulary_size, length).tolist()
        inputs = exported.read([example])
        scores.append(exported.decoder.score(inputs, target))
        expected.append(scores_of(writing, inputs, target))
    x, y = np.concatenate(expected), np.concatenate(scores)
    if quantization is None:
        difference = float(np.abs(x - y).max() / max(1e-6, np.abs(x).max()))
    else:
        difference = float(np.sqrt(np.square(x - y).sum() / max(1e-12, np.square(x).sum())))
    if not difference <= bound:  # NaN too
        raise ValueError(
            f"{name}: its log probabilities differ from the task's by {difference:.2g}; the bound "
            f"is {bound:g}"
        )
    answers = ask(examples)
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


def scores_of(writing, inputs, target):
    """log p of each id of the list `target`, which follow the single row of the `inputs`, by the model."""
    if writing.context is None:
        batch = {"token_ids": np.array([*rows_of(inputs)[0], *target[:-1]], "int32")[None]}
    else:
        batch = {**writing.context(inputs), "decoder_token_ids": np.array([[writing.start_id, *target[:-1]]])}
    logits = keras.ops.cast(writing.model(batch)[0, -len(target) :], "float32")
    return np.take_along_axis(np.array(keras.ops.log_softmax(logits)), np.array(target)[:, None], 1)[:, 0]
