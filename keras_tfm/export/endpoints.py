"""The signatures of SavedModels: readers and answers as graphs of TensorFlow, by their "kind".

A reader is made of its tokenizer and the arguments in `keras_tfm.tasks.signatures.Signature.reads`. Its
`ways` of reading give the function's inputs, and what is known of their rows. An answer, made as the one of
its kind in `keras_tfm.serving.ANSWERS`, is a function of the function's outputs, of what is known of the
rows, and of what was read. Plugins name theirs `graph-reader.KIND` and `graph-answer.KIND`.
"""

import dataclasses
import pathlib
import tempfile
from typing import Any

import tensorflow as tf

from keras_tfm.data.batches.encoding import Ragged, model_inputs, pack_texts, pad, surround
from keras_tfm.data.batches.pairs import encode_sources
from keras_tfm.data.batches.windows import question_windows
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.images import decode_images
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens
from keras_tfm.export import segments
from keras_tfm.heads import best_spans
from keras_tfm.serving import plugins
from keras_tfm.serving.examples import apart
from keras_tfm.serving.tokens import symbols_of

LOWEST = -3.4e38  # replaces sums of two logits that must not be chosen
ROWS = 64  # that the model reads at once, where an example may have thousands
# What a SavedModel takes besides, whose texts are drawn.
SAMPLING = [
    tf.TensorSpec([], tf.float32, "temperature"),
    tf.TensorSpec([], tf.float32, "top_p"),
    tf.TensorSpec([], tf.int32, "seed"),
]


def endpoints_of(signature):
    """{signature name: (function, input signature)} of a SavedModel of the task with this `Signature`."""
    read, reads = chosen(READERS, signature.reads, "graph-reader")
    find, answers = chosen(ANSWERS, signature.answers, "graph-answer")
    tokenizer = {} if signature.tokenizer is None else {"tokenizer": signature.tokenizer}
    reader, compute = read(**reads | tokenizer), signature.function
    reader = reader if hasattr(reader, "ways") else Plain(reader)
    if find is as_text:
        answers = {"tokenizer": compute.tokenizer, "repeats": answers["repeats"]}
    if find in segments.ANSWERS.values():
        answers = {"function": compute, **answers}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        signature.write_files(folder)
        answer = find(folder, **answers)

    def served(read, function=compute):
        def serve(*raw):
            inputs, rows = read(*raw)
            inputs = {name: inputs[name] for name in signature.inputs}
            outputs = in_parts(function, inputs) if reader.has_many_rows else function(inputs)
            return answer(outputs, rows, *raw)

        return serve

    ways = reader.ways()
    endpoints = {name: (served(read), specs) for name, (specs, read) in ways.items()} | signature.others
    if getattr(compute, "sampled", None) is None:
        return endpoints
    specs, read = ways["serving_default"]

    def sample(raw, temperature, top_p, seed):
        with tf.control_dependencies(sampling_checks(temperature, top_p)):
            raw = tf.identity(raw)
        options = compute.sampled(temperature=temperature, top_p=top_p, seed=seed)
        return served(read, dataclasses.replace(compute, options=options))(raw)

    return {**endpoints, "generate": (sample, [*specs, *SAMPLING])}


def chosen(kinds, entries, plugin_kind):
    """(The one of `kinds`, or the plugin, that `entries` names by its "kind", the other entries); ValueError
    if there is none.
    """
    kind = entries["kind"]
    plugin = None if kind in kinds else plugins.find(plugin_kind, kind)
    if kind not in kinds and plugin is None:
        raise ValueError(f"A SavedModel needs the plugin {plugin_kind}.{kind}, which is not installed.")
    others = {name: value for name, value in entries.items() if name != "kind"}
    return kinds[kind] if plugin is None else plugin.load(), others


def sampling_checks(temperature, top_p):
    """Operations that fail if these scalars are out of range."""
    return [
        tf.debugging.assert_positive(temperature, "`temperature` must be above 0."),
        tf.debugging.assert_positive(top_p, "`top_p` must lie in (0, 1]."),
        tf.debugging.assert_less_equal(top_p, 1.0, "`top_p` must lie in (0, 1]."),
    ]


def in_parts(function, inputs, most=ROWS):
    """`function(inputs)` in parts of equal size, of `most` rows: a context as long as a book has thousands of
    windows.
    """
    count = tf.shape(inputs["token_ids"])[0]
    parts = tf.maximum(1, -(-count // most))
    size = -(-count // parts)
    missing = parts * size - count

    def divided(x):
        x = tf.pad(x, [[0, missing]] + [[0, 0]] * (len(x.shape) - 1))
        return tf.reshape(x, tf.concat([[parts, size], tf.shape(x)[1:]], 0))

    inputs = {name: divided(x) for name, x in inputs.items()}  # (parts, size, ...)
    shapes = tf.function(function).get_concrete_function(
        {name: tf.TensorSpec(x.shape[1:], x.dtype) for name, x in inputs.items()}
    )
    kinds = {name: x.dtype for name, x in shapes.structured_outputs.items()}
    outputs = tf.map_fn(function, inputs, parallel_iterations=1, fn_output_signature=kinds)
    return {
        name: tf.reshape(x, tf.concat([[parts * size], tf.shape(x)[2:]], 0))[:count]
        for name, x in outputs.items()
    }


def strings(*names):
    """The specs of strings (B,)."""
    return [tf.TensorSpec([None], tf.string, name) for name in names]


class Plain:
    """A reader that is a function of strings (B,), or a tf.function with an `input_signature` of its own, to
    {input: tensor (B, ...)}.
    """

    has_many_rows = False

    def __init__(self, function):
        self._function = function

    def ways(self):
        specs = getattr(self._function, "input_signature", None) or strings("text")
        return {"serving_default": (list(specs), lambda *raw: (self._function(*raw), None))}


class Texts:
    """A text, or two, as a row."""

    has_many_rows = False

    def __init__(self, tokenizer, max_length, pairs=False, **options):
        self._tokenizer, self._max_length = tokenizer, max_length
        self.specs = strings("text", "second") if pairs else strings("text")

    def ways(self):
        """{name of an endpoint: (what it takes, a function of that)}."""
        return {"serving_default": (self.specs, self)}

    def __call__(self, *texts):
        return self._joined(pack_texts(self._tokenizer, self._max_length, *texts)), None

    def _joined(self, packed):
        return model_inputs(packed, self._tokenizer.pad_id)


class Words(Texts):
    """A sentence as a row, of which is known where the first tokens of its words stand, ragged (B, T)."""

    def __init__(self, tokenizer, max_length, marks="", **options):
        super().__init__(tokenizer, max_length)
        self._marks = marks

    def __call__(self, text):
        for pattern, spaced in apart(self._marks):
            text = tf.strings.regex_replace(text, pattern, spaced)
        packed = pack_words(self._tokenizer, self._max_length, tf.strings.split(text))
        is_first = packed.pop("is_first")
        return self._joined(packed), is_first


def pack_words(tokenizer, max_length: int, words: tf.RaggedTensor) -> Ragged:
    """Words, ragged (B, words), as "token_ids" and "segment_ids", and which of them are the first of a word,
    "is_first".
    """
    pieces = tokenizer.tokenize_words(words.flat_values)  # (words, pieces)
    nothing = tf.cast(pieces.row_lengths() == 0, tf.int64)  # control characters alone become [UNK]
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.reduce_sum(nothing)], tokenizer.unknown_id), nothing
    )
    pieces = tf.concat([pieces, unknown], axis=1)
    is_first = tf.cast(tf.ragged.range(pieces.row_lengths()) == 0, tf.int32)
    room = max_length - tokenizer.num_added()
    token_ids, is_first = (words.with_values(x).merge_dims(1, 2) for x in (pieces, is_first))  # (B, pieces)
    token_ids = surround(token_ids[:, :room], [tokenizer.start_id], [tokenizer.end_id])
    is_first = surround(is_first[:, :room], [0], [0])
    return {"token_ids": token_ids, "segment_ids": tf.zeros_like(token_ids), "is_first": is_first}


class Choices(Texts):
    """A text with each of its choices (B, C) as a row; of rows is known C."""

    def __init__(self, tokenizer, max_length, **options):
        super().__init__(tokenizer, max_length)
        self.specs = [*strings("text"), tf.TensorSpec([None, None], tf.string, "choices")]

    def __call__(self, text, choices):
        count = tf.shape(choices)[1]
        inputs, _ = super().__call__(tf.repeat(text, count), tf.reshape(choices, [-1]))  # (B C, T)
        return inputs, count


class Blanks(Texts):
    """A text as a row, of which is known which of its "mask_positions" (B, M) are blanks."""

    def __init__(self, tokenizer, max_length, blank, **options):
        super().__init__(tokenizer, max_length)
        self._blank = blank

    def __call__(self, text):
        inputs, _ = super().__call__(text)
        token_ids = inputs["token_ids"]  # (B, T)
        places = tf.ragged.boolean_mask(
            tf.zeros_like(token_ids) + tf.range(tf.shape(token_ids)[1]), token_ids == self._blank
        )
        width = tf.maximum(1, tf.cast(tf.reduce_max(places.row_lengths()), tf.int32))
        positions = places.to_tensor(0, shape=tf.stack([tf.shape(token_ids)[0], width]))  # (B, M)
        return {**inputs, "mask_positions": positions}, tf.sequence_mask(places.row_lengths(), width)


class Questions(Texts):
    """A question with each window of its context as a row; of rows is known what `question_windows` gives."""

    has_many_rows = True

    def __init__(self, tokenizer, max_length, stride, **options):
        super().__init__(tokenizer, max_length)
        self._stride, self.specs = stride, strings("question", "context")

    def __call__(self, question, context):
        windows = question_windows(
            self._tokenizer, self._max_length, self._stride, valid(question), valid(context)
        )
        known = {name: windows.pop(name) for name in ("starts", "ends", "num_windows")}
        return self._joined(windows), known


class Prompts(Texts):
    """A text as a row, `before` and `after` around its tokens. More than `max_length` tokens are cut, or fail
    where `cuts` is False, as an empty text does.
    """

    def __init__(self, tokenizer, max_length, before, after, cuts):
        super().__init__(tokenizer, max_length)
        self._around, self._cuts = SpecialTokens(before, after), cuts

    def __call__(self, text):
        length = self._max_length if self._cuts else tf.int32.max
        inputs = encode_sources(text, self._tokenizer, length, self._around)
        if self._cuts:
            return inputs, None
        longest, most = tf.shape(inputs["token_ids"])[1], self._max_length
        checks = [
            tf.debugging.assert_none_equal(text, "", message="A prompt is empty."),
            tf.debugging.assert_less_equal(longest, most, f"A prompt has more than {most} tokens."),
        ]
        with tf.control_dependencies(checks):
            return {name: tf.identity(x) for name, x in inputs.items()}, None


class Images:
    """The bytes of image files of any size; or images of the model's size, from 0 to 1."""

    has_many_rows = False

    kind: type[Preprocessing] = Preprocessing

    def __init__(self, shape, **options):
        self._shape: tuple[int, int, int] = tuple(shape)
        self._preprocessing: Any = self.kind(**options)

    def ways(self):
        images = tf.TensorSpec([None, *self._shape], tf.float32, "images")
        return {"serving_default": (strings("image_bytes"), self._decoded), "images": ([images], self._given)}

    def _decoded(self, image_bytes):
        return {"images": decode_images(image_bytes, *self._shape, self._preprocessing)}, None

    def _given(self, images):
        return {"images": images}, None


class SeenImages(Images):
    """`Images`, each with the number of its camera, one of `cameras`; another number gives NaN."""

    def __init__(self, shape, cameras, **options):
        super().__init__(shape, **options)
        self._cameras = tf.constant(cameras, tf.int32)

    def ways(self):
        camera = tf.TensorSpec([None], tf.int32, "camera")
        ways = super().ways()
        return {name: ([*specs, camera], self._with_camera(read)) for name, (specs, read) in ways.items()}

    def _with_camera(self, read):
        def read_both(images, camera):
            inputs, known = read(images)
            is_it = camera[:, None] == self._cameras  # (B, cameras)
            place = tf.argmax(tf.cast(is_it, tf.int32), axis=1, output_type=tf.int32)
            return {**inputs, "camera": tf.where(tf.reduce_any(is_it, axis=1), place, -1)}, known

        return read_both


class Videos(Images):
    """The bytes of the image files that are a clip's frames, (B, T); or clips of the model's size, from 0
    to 1. Which frames of a video make a clip is chosen before.
    """

    def __init__(self, shape, frame_step, seconds_per_frame, num_views, **options):
        super().__init__(shape[1:], **options)
        self._length = shape[0]

    def ways(self):
        frames = tf.TensorSpec([None, self._length], tf.string, "frame_bytes")
        videos = tf.TensorSpec([None, self._length, *self._shape], tf.float32, "videos")
        return {"serving_default": ([frames], self._decoded), "videos": ([videos], self._given)}

    def _decoded(self, frame_bytes):
        images = decode_images(tf.reshape(frame_bytes, [-1]), *self._shape, self._preprocessing)
        return {"videos": tf.reshape(images, (-1, self._length, *self._shape))}, None  # (B, T, H, W, C)

    def _given(self, videos):
        return {"videos": videos}, None


class Clouds:
    """Clouds of as many points as the model reads, (B, N, 3), or joints in images, (B, J, 2). Which points of
    a larger cloud are taken is chosen before.
    """

    has_many_rows = False

    def __init__(self, num_points, num_coordinates=3, **options):
        self._shape = num_points, num_coordinates

    def ways(self):
        points = tf.TensorSpec([None, *self._shape], tf.float32, "points")
        return {"serving_default": ([points], lambda points: ({"points": points}, None))}


class CanvasImages(Images):
    """Whole images on a canvas of the model's size, given as `Images` are, beside their own sizes (B, 2). Of
    them is known whether they are files.
    """

    kind = Canvas

    def _decoded(self, image_bytes):
        decoded = (tf.TensorSpec(self._shape, tf.uint8), tf.TensorSpec((2,), tf.int64))
        images, sizes = tf.map_fn(
            lambda data: self._preprocessing.decoded_whole(data, *self._shape),
            image_bytes,
            fn_output_signature=decoded,
        )
        return {"images": images, "sizes": sizes}, True

    def _given(self, images):
        size = tf.constant(self._shape[:2], tf.int64)
        return {"images": images, "sizes": tf.broadcast_to(size, (tf.shape(images)[0], 2))}, False


def valid(texts):
    """Texts with a replacement character for each byte that is not UTF-8."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", replace_control_characters=False)


def as_arrays(folder, labels=None):
    """The outputs, beside the names of `labels`, for each row: servers want a row of every output for each
    example.
    """

    def answer(outputs, rows, *raw):
        if labels is None:
            return outputs
        names = tf.constant(labels, tf.string)
        return {**outputs, "labels": tf.tile(names[None], [tf.shape(raw[0])[0], 1])}

    return answer


def as_classes(folder, labels):
    """The likeliest of the `labels`, beside what `as_arrays` gives."""
    beside = as_arrays(folder, labels)

    def answer(outputs, rows, *raw):
        label = tf.gather(tf.constant(labels, tf.string), tf.argmax(outputs["probabilities"], -1))
        return {"label": label, **beside(outputs, rows, *raw)}

    return answer


def as_boxes(folder, labels):
    """The "boxes" of objects, the `labels` of their classes and the "scores", the surest first."""
    names = tf.constant(labels)

    def answer(outputs, rows, *raw):
        labels = tf.gather(names, outputs["classes"])
        return {"boxes": outputs["boxes"], "labels": labels, "scores": outputs["scores"]}

    return answer


def as_triplets(folder, labels, predicates):
    """Triplets, the surest first: "subjects", "predicates" and "objects" by their names, the boxes of both
    and the "scores".
    """
    names = {"subjects": labels, "predicates": predicates, "objects": labels}

    def answer(outputs, rows, *raw):
        return {**outputs, **{part: tf.gather(tf.constant(of), outputs[part]) for part, of in names.items()}}

    return answer


def as_tags(folder, labels, outside):
    """The likeliest of the `labels` at each word's first token, with spaces between; words that are not
    read have none.
    """
    names = tf.constant(labels)

    def answer(outputs, is_first, text):
        scores = outputs["scores"]
        is_first = is_first.to_tensor(0, shape=tf.shape(scores)[:2]) == 1
        tags = tf.gather(names, tf.ragged.boolean_mask(tf.argmax(scores, axis=-1), is_first))
        return {"tags": tf.strings.reduce_join(tags, axis=1, separator=" ")}

    return answer


def as_choice(folder):
    """The number of the likeliest choice, beside the "probabilities" of all."""

    def answer(outputs, count, text, choices):
        probabilities = tf.nn.softmax(tf.reshape(outputs["score"], [-1, count]))  # (B, C)
        return {
            "choice": tf.argmax(probabilities, -1, output_type=tf.int32),
            "probabilities": probabilities,
        }

    return answer


def as_filled(folder, blank):
    """The text with each `blank` replaced by the likeliest token; blanks that were not read stay."""
    symbols = tf.constant(symbols_of(folder))

    def answer(outputs, is_blank, text):
        words = tf.ragged.boolean_mask(tf.gather(symbols, outputs["ids"]), is_blank)
        parts = tf.strings.split(text, blank)  # one more than there are blanks
        missing = parts.row_lengths() - words.row_lengths() - 1  # blanks that were cut off
        blanks = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(missing)], blank), missing)
        words = tf.concat([words, blanks, tf.fill([parts.nrows(), 1], "")], axis=1)
        joined = parts.with_flat_values(parts.flat_values + words.flat_values)
        return {"text": tf.strings.reduce_join(joined, axis=1)}

    return answer


def as_span(folder, longest, threshold):
    """The likeliest part of the context, of `longest` tokens at most, or "" where none is likelier by
    `threshold`.
    """

    def answer(outputs, windows, question, context):
        start, end = outputs["start"], outputs["end"]  # (W, T)
        starts, ends = (pad(windows[name], *tf.unstack(tf.shape(start))) for name in ("starts", "ends"))
        is_context = ends > starts
        first, last, score = best_spans(start, end, is_context, longest)
        is_candidate = tf.concat([tf.ones_like(is_context[:, :1]), is_context[:, 1:]], axis=1)
        total = sum(tf.reduce_logsumexp(tf.where(is_candidate, x, LOWEST / 2), axis=1) for x in (start, end))
        null = start[:, 0] + end[:, 0]
        begin, limit = (tf.gather(x, place, batch_dims=1) for x, place in ((starts, first), (ends, last)))

        def by_question(x, fill=0.0):
            parts = tf.RaggedTensor.from_row_lengths(x, windows["num_windows"])
            width = tf.maximum(1, parts.bounding_shape(1, out_type=tf.int32))
            return pad(parts, parts.nrows(), width, fill)  # (B, windows)

        best = tf.argmax(by_question(score, LOWEST), axis=1)  # (B,)
        score, begin, limit, probability = (
            tf.gather(by_question(x, fill), best, batch_dims=1)
            for x, fill in ((score, LOWEST), (begin, 0), (limit, 0), (score - total, LOWEST))
        )
        texts = tf.strings.substr(valid(context), begin, limit - begin)
        texts = tf.strings.regex_replace(texts, r"^[\s\p{Z}]+|[\s\p{Z}]+$", "")
        if threshold is not None:
            least = tf.argmin(by_question(null, -LOWEST), axis=1)
            null, null_probability = (
                tf.gather(by_question(x), least, batch_dims=1) for x in (null, null - total)
            )
            is_none = null - score > threshold
            texts, probability = (
                tf.where(is_none, "", texts),
                tf.where(is_none, null_probability, probability),
            )
        return {"answer": texts, "score": tf.exp(probability)}

    return answer


def as_text(folder, tokenizer, repeats):
    """The ids as the `tokenizer` spells them; behind the text, which they continue, if it `repeats` that."""

    def answer(outputs, rows, *raw):
        text = tokenizer.detokenize(outputs["ids"])
        return {"text": raw[0] + text if repeats else text}

    return answer


READERS = {
    "texts": Texts,
    "words": Words,
    "choices": Choices,
    "blanks": Blanks,
    "questions": Questions,
    "prompts": Prompts,
    "images": Images,
    "seen images": SeenImages,
    "videos": Videos,
    "clouds": Clouds,
    "pose points": Clouds,
    "canvas": CanvasImages,
}
ANSWERS = {
    "arrays": as_arrays,
    "classes": as_classes,
    "boxes": as_boxes,
    "triplets": as_triplets,
    "tags": as_tags,
    "choice": as_choice,
    "filled": as_filled,
    "span": as_span,
    "text": as_text,
    **segments.ANSWERS,
}
