"""Readers in graphs of TensorFlow, by their "kind": strings, bytes or arrays in, a model's inputs out.

A reader is made of its tokenizer and the arguments in `keras_tfm.tasks.signatures.Signature.reads`. Its
`ways` of reading are {signature: (input signature, function)}, and the function gives the model's inputs and
what an answer needs to know of their rows. Plugins name theirs `graph-reader.KIND`.
"""

from typing import Any

import tensorflow as tf

from keras_tfm.data.batches.encoding import Ragged, model_inputs, pack_texts, surround
from keras_tfm.data.batches.pairs import encode_sources
from keras_tfm.data.batches.windows import question_windows
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.images import decode_images
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens
from keras_tfm.serving.examples import apart


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


# What `str.split` takes for spaces; `tf.strings.split` knows those of ASCII alone.
SPACES = r"[\x1c-\x1f\x{85}\p{Z}]"


class Texts:
    """A text, or two, as a row; if `pairs` is None, a text with one tab is two."""

    has_many_rows = False

    def __init__(self, tokenizer, max_length, pairs=False, **options):
        self._tokenizer, self._max_length, self._pairs = tokenizer, max_length, pairs
        self.specs = strings("text", "second") if pairs else strings("text")

    def ways(self):
        """{name of an endpoint: (what it takes, a function of that)}."""
        return {"serving_default": (self.specs, self)}

    def __call__(self, *texts):
        pack = pack_of_either if self._pairs is None else pack_texts
        return self._joined(pack(self._tokenizer, self._max_length, *texts)), None

    def _joined(self, packed):
        return model_inputs(packed, self._tokenizer.pad_id)


def pack_of_either(tokenizer, max_length: int, texts: tf.Tensor) -> Ragged:
    """Strings (B,) as `pack_texts` packs them, each as one text and as two: one with one tab is two."""
    parts = tf.strings.split(texts, "\t")
    first, second = tf.unstack(parts.to_tensor("", shape=[None, 2]), axis=1)
    single, pair = pack_texts(tokenizer, max_length, texts), pack_texts(tokenizer, max_length, first, second)
    count = tf.size(texts)
    rows = tf.range(count) + tf.where(parts.row_lengths() == 2, count, 0)
    return {name: tf.gather(tf.concat([x, pair[name]], axis=0), rows) for name, x in single.items()}


class Words(Texts):
    """A sentence as a row, of which is known where the first tokens of its words stand, ragged (B, T)."""

    def __init__(self, tokenizer, max_length, marks="", **options):
        super().__init__(tokenizer, max_length)
        self._marks = marks

    def __call__(self, text):
        for pattern, spaced in apart(self._marks):
            text = tf.strings.regex_replace(text, pattern, spaced)
        text = tf.strings.regex_replace(text, SPACES, " ")
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
