"""What a task's model reads of one raw example: its inputs, and the token or patch at each position."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.encoding import model_inputs, pack_texts, ragged_rows
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.serving.text_readers import as_choices
from keras_tfm.tasks.asking import AskedTask
from keras_tfm.tasks.image_text.captioner import Captioner
from keras_tfm.tasks.image_text.matcher import ImageTextMatcher
from keras_tfm.tasks.images.canvas_task import CanvasTask, sizes_of
from keras_tfm.tasks.images.detector import Detector
from keras_tfm.tasks.images.image_task import ImageTask
from keras_tfm.tasks.task import Task
from keras_tfm.tasks.text.choice_answerer import ChoiceAnswerer
from keras_tfm.tasks.text.encoder_task import EncoderTask, parts_of
from keras_tfm.tasks.text.masked_language_model import MaskedLanguageModel
from keras_tfm.tasks.text.sentence_encoder import SentenceEncoder
from keras_tfm.tasks.text.text_generator import TextGenerator
from keras_tfm.tasks.text.token_classifier import TokenClassifier
from keras_tfm.tasks.text.translator import Translator
from keras_tfm.tasks.videos.video_task import VideoTask


@dataclasses.dataclass(frozen=True)
class FoundObjects:
    """What each query of a detector found: `boxes` (Q, 4), (left, top, right, bottom) in parts of the image's
    sides, and `scores` (Q,); queries that score `threshold` or more count as objects.
    """

    boxes: np.ndarray
    scores: np.ndarray
    threshold: float


@dataclasses.dataclass(frozen=True)
class Reading:
    """One example as a task's backbone reads it.

    Args:
        inputs: the backbone's inputs, with a batch of one.
        tokens: (S,), what the encoder reads; for a decoder alone, the prompt.
        target_tokens: (T,), what the decoder reads, start token included; for a decoder alone, what it
            wrote; for a detector the object of each query.
        segments: (S,), the index of each token's text in a pair.
        image: (H, W, C), the image at the size that the model reads.
        objects: what a detector found by each query, or None.
        texts: the texts that were read, where the example holds others too.
        answer: what the task answers, where that is known by now.
        model: the part of the task's model that reads, None for its backbone.
    """

    inputs: Mapping[str, Any]
    tokens: Sequence[str] = ()
    target_tokens: Sequence[str] = ()
    segments: Sequence[int] = ()
    image: np.ndarray | None = None
    objects: FoundObjects | None = None
    texts: Sequence[str] = ()
    answer: str | None = None
    model: Any = None


@functools.singledispatch
def read(task: Task, example: Any, target: str | None = None, **options: Any) -> Reading:
    """What the model of `task` reads of `example`: a text, a tuple of two texts, or an image.

    A task that writes text also reads `target`, or what it generates itself with `options`, arguments of its
    `generate`. ValueError for a task or an example without anything to read.
    """
    raise ValueError(f"The task {task.name!r} reads neither texts nor images.")


def _refuse_target(task: Task, target: str | None, options: Mapping[str, Any]) -> None:
    if target is not None or options:
        given = "a target" if target is not None else ", ".join(options)
        raise ValueError(
            f"The task {task.name!r} writes no text, so it takes no target and no options; got {given}."
        )


@read.register(AskedTask)
def _(task: AskedTask, example: Any, target: str | None = None, **options: Any) -> Reading:
    """What the task's own reader makes of the example: the places of its rows have numbers for names."""
    _refuse_target(task, target, options)
    return Reading(task.answerer.read([example]))


@read.register(EncoderTask)
@read.register(MaskedLanguageModel)
@read.register(SentenceEncoder)
def _(task: Any, example: Any, target: str | None = None, **options: Any) -> Reading:
    _refuse_target(task, target, options)
    texts = parts_of(example)
    if not 1 <= len(texts) <= 2:
        raise ValueError(f"Expected a text, or two, with a tab between or in a tuple; got {len(texts)}.")
    columns = [tf.constant([text], tf.string) for text in texts]
    return _read_encoded(task, pack_texts(task.tokenizer, task.config.max_length, *columns))


@read.register(ChoiceAnswerer)
def _(task: ChoiceAnswerer, example: Any, target: str | None = None, **options: Any) -> Reading:
    """The text with one of its choices: the one that the task takes, where there are several."""
    _refuse_target(task, target, options)
    is_pair = not isinstance(example, str) and isinstance(example[1], str)
    text, choices = (example[0], [example[1]]) if is_pair else as_choices(example)
    if not choices:
        raise ValueError("Expected a text and its choices, with tabs between; got no choice.")
    chosen = choices[task.predict([(text, choices)])[0]] if len(choices) > 1 else choices[0]
    reading = _read_encoded(task, pack_texts(task.tokenizer, task.config.max_length, [text], [chosen]))
    return dataclasses.replace(reading, texts=(text, chosen), answer=chosen)


@read.register(TokenClassifier)
def _(task: TokenClassifier, example: Any, target: str | None = None, **options: Any) -> Reading:
    _refuse_target(task, target, options)
    (read,) = task.answerer.read_all([example])
    return _read_encoded(task, ragged_rows(read.rows))


def _read_encoded(task: Any, encoded: Mapping[str, tf.RaggedTensor]) -> Reading:
    """What an encoder reads of one row of ids; an encoder-decoder reads it on both sides."""
    backbone = getattr(task.model, "backbone", task.model)
    kept = {name: x for name, x in encoded.items() if name in backbone.input}
    inputs = model_inputs(kept, task.tokenizer.pad_id)
    tokens = tokens_of(task.tokenizer, inputs["token_ids"])
    segments = encoded["segment_ids"][0].numpy().tolist()
    if "decoder_token_ids" not in backbone.input:
        return Reading(inputs, tokens, segments=segments)
    start = tf.fill([1, 1], backbone.config.start_id)
    reread = tf.concat([start, inputs["token_ids"][:, :-1]], axis=1)
    target = tokens_of(task.tokenizer, reread)
    return Reading({**inputs, "decoder_token_ids": reread}, tokens, target, segments)


@read.register(Translator)
def _(task: Translator, example: str, target: str | None = None, **options: Any) -> Reading:
    source, start = task.answerer.read([example])["token_ids"], [task._start_id]
    if task._is_prompted:
        source = source[:, :-1]
    if target is None:
        written = _before(task.generate_ids(source, **options)[0, 1:], task._stop.end_ids)
    else:
        start = list(task.config.around[1].prefix) if task.config.around else start
        written = task.target_tokenizer.tokenize(tf.constant([target]))[0].numpy()
        written = written[: task.config.max_length - len(start)]
    if task._is_prompted:
        return _read_on(task, [*source[0], *start], written)
    decoder_ids = tf.constant([[*start, *written]], tf.int32)
    inputs = _unpadded({"token_ids": source, "decoder_token_ids": decoder_ids})
    tokens, target_tokens = (
        tokens_of(task.tokenizer, source),
        tokens_of(task.target_tokenizer, decoder_ids),
    )
    return Reading(inputs, tokens, target_tokens)


@read.register(TextGenerator)
def _(task: TextGenerator, example: str, target: str | None = None, **options: Any) -> Reading:
    prompt = task.answerer.read(task.asked([example], 1))["token_ids"]
    if target is None:
        written = _before(task.generate_ids(prompt, **options)[0, prompt.shape[1] :], task._end_ids)
    else:
        written = task.tokenizer.tokenize(tf.constant([target]))[0].numpy()
    return _read_on(task, prompt[0], written[: task.max_length - prompt.shape[1]])


def _read_on(task: Any, prompt: Iterable[int], written: Iterable[int]) -> Reading:
    """What a decoder alone reads: the ids of a prompt, and the ids that it wrote."""
    token_ids = tf.constant([[*prompt, *written]], tf.int32)
    tokens, length = tokens_of(task.tokenizer, token_ids), len(list(prompt))
    return Reading(_unpadded({"token_ids": token_ids}), tokens[:length], tokens[length:])


@read.register(ImageTask)
def _(task: ImageTask, example: Any, target: str | None = None, **options: Any) -> Reading:
    _refuse_target(task, target, options)
    images = _one_image(task, example)
    return Reading({"images": task.prepare(images)}, image=images[0])


@read.register(Captioner)
def _(task: Captioner, example: Any, target: str | None = None, **options: Any) -> Reading:
    images = _one_image(task, example)
    start = [task._start_id]
    if target is None:
        written = _before(task.generate_ids(images, **options)[0, 1:], task._stop.end_ids)
    else:
        start = list(task.around.prefix)
        written = task.tokenizer.tokenize(tf.constant([target]))[0].numpy()[: task.max_length - len(start)]
    decoder_ids = tf.constant([[*start, *written]], tf.int32)
    inputs = _unpadded({"decoder_token_ids": decoder_ids}) | {"images": task.prepare(images)}
    return Reading(inputs, target_tokens=tokens_of(task.tokenizer, decoder_ids), image=images[0])


def _one_image(task: ImageTask, example: Any) -> np.ndarray:
    """The image alone in a batch, raw, of the size that the model reads."""
    images = tf.convert_to_tensor(np.asarray(_checked(task, example))[:1])
    return np.asarray(task.preprocessing.fitted(images, *task.image_shape[:2]))


def _checked(task: ImageTask, example: Any) -> Any:
    """An image, or the name of its file, as a batch of one."""
    return task.check_images(example if not hasattr(example, "ndim") or example.ndim > 3 else example[None])


@read.register(VideoTask)
def _(task: VideoTask, example: Any, target: str | None = None, **options: Any) -> Reading:
    raise ValueError(f"A {task.name!r} task of videos reads neither texts alone nor images.")


@read.register(CanvasTask)
def _(task: CanvasTask, example: Any, target: str | None = None, **options: Any) -> Reading:
    _refuse_target(task, target, options)
    images, inputs, _ = _on_canvas(task, example)
    return Reading({name: inputs[name] for name in task.model.backbone.input}, image=images[0])


@read.register(Detector)
def _(task: Detector, example: Any, target: str | None = None, **options: Any) -> Reading:
    """The decoder's tokens are the objects that its queries found."""
    _refuse_target(task, target, options)
    images, inputs, part = _on_canvas(task, example)
    boxes, classes, scores = (np.asarray(some)[0] for some in task.by_query(inputs))
    names = [
        f"{query}: {task.class_names[number]} {score:.2f}"
        for query, (number, score) in enumerate(zip(classes, scores, strict=True))
    ]
    objects = FoundObjects(boxes * part[[1, 0, 1, 0]], scores, task.config.threshold)
    order = np.argsort(-scores, kind="stable")
    sure = [task.class_names[classes[at]] for at in order if scores[at] >= objects.threshold]
    return Reading(
        inputs, target_tokens=names, image=images[0], objects=objects, answer=", ".join(dict.fromkeys(sure))
    )


def _on_canvas(task: CanvasTask, example: Any) -> tuple[np.ndarray, dict[str, tf.Tensor], np.ndarray]:
    """The raw image in the model's size (1, H, W, C), the model's inputs, and which part of the height and
    of the width the image covers, (2,): the rest is padding.
    """
    images = _checked(task, example)[:1]
    sizes, canvas = tf.constant(sizes_of(images)), task.preprocessing
    height, width = task.image_shape[:2]
    fitted = canvas.fitted(tf.convert_to_tensor(np.asarray(images)), height, width)
    part = np.asarray(canvas.content(sizes, height, width))[0] / (height, width)
    return np.asarray(fitted), canvas.inputs(fitted, sizes), part


@read.register(ImageTextMatcher)
def _(task: ImageTextMatcher, example: Any, target: str | None = None, **options: Any) -> Reading:
    """The image tower reads an image, the text tower a text: a string, even where it names a file."""
    _refuse_target(task, target, options)
    towers = task.model.backbone
    if not isinstance(example, str):
        images = _one_image(task, example)
        return Reading({"images": task.prepare(images)}, image=images[0], answer="", model=towers.image)
    inputs = task.text_inputs(tf.constant([example]))
    tokens = tokens_of(task.tokenizer, inputs["token_ids"])
    return Reading(inputs, tokens, segments=[0] * len(tokens), answer="", model=towers.text)


def tokens_of(tokenizer: Tokenizer, token_ids: tf.Tensor) -> list[str]:
    """The tokens of the first row of ids (B, T); an id outside the tokenizer's vocabulary is shown as a
    number.
    """
    names = tokenizer.tokens
    ids = np.asarray(token_ids)[0]
    return [names[i] if 0 <= i < len(names) else f"<{i}>" for i in ids]


def _before(token_ids: np.ndarray, end_ids: Sequence[int]) -> np.ndarray:
    """The ids (T,) before the first end token."""
    ends = np.flatnonzero(np.isin(token_ids, end_ids))
    return token_ids[: ends[0]] if len(ends) else token_ids


def _unpadded(inputs: dict[str, Any]) -> dict[str, tf.Tensor]:
    """The inputs, ids, as tensors, with a padding mask of ones for each."""
    inputs = {name: tf.constant(x, tf.int32) for name, x in inputs.items()}
    ones = {name: tf.ones_like(x, tf.bool) for name, x in inputs.items()}
    return {**inputs, **{name.replace("token_ids", "padding_mask"): x for name, x in ones.items()}}
