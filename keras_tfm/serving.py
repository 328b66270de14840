"""Answers from a folder that `Task.export` wrote, in whichever format, through one interface.

    served = load("exported/sentiment")
    served(["a warm film"])  # {"label": array(["1"]), "probabilities": array([[0.02, 0.98]])}

This file stands alone, and every exported folder but a SavedModel holds a copy of it. It needs NumPy, the
format's runtime (onnxruntime, ai_edge_litert or openvino; for a SavedModel tensorflow), `tokenizers` for
texts and Pillow for image files, each imported when a folder asks for it; neither Keras nor this package.
"""

import contextlib
import importlib
import io
import json
import os
import pathlib
from typing import Any

import numpy as np

__all__ = ["Served", "SavedModel", "load"]

NAME = "serving.json"  # what the folder holds, and how inputs become numbers and numbers answers
LAYOUT = 1  # of serving.json: raised when an older reader would misread a newer file
WASTE = 1.3  # texts share a batch if the longest is at most so many times as long as the shortest


def load(folder, threads=None):
    """The exported task in `folder`, a function of raw inputs: a `Served` or a `SavedModel`.

    Args:
        folder: a folder that `Task.export` or `keras-tfm export` wrote.
        threads: how many threads compute; by default one per core. A SavedModel leaves that to TensorFlow.

    Raises:
        ValueError: if the folder is no export, is damaged, or was written for a newer version of this file.
        ImportError: if a package that the folder needs is not installed.
    """
    folder = pathlib.Path(folder)
    if (folder / "saved_model.pb").is_file():
        return SavedModel(folder)
    description = _description(folder / NAME)
    return Served(folder, description, threads or os.cpu_count() or 1)


class Served:
    """A task in a format of its own: `served(examples)` gives {name: array}, as its SavedModel would.

    Examples are strings; for pairs, tuples of two; for words, lists of strings; for images, arrays or the
    paths or bytes of image files. `served.run(inputs)` computes the function of numbers alone, of which
    `served.read(examples)` gives the inputs, {name: array}.
    """

    def __init__(self, folder, description, threads=1):
        self.description = description
        try:
            reads, answers = description["reads"], description["answers"]
            self._reader = READERS[reads["kind"]](folder, **{k: v for k, v in reads.items() if k != "kind"})
            self._finish = ANSWERS[answers["kind"]](**{k: v for k, v in answers.items() if k != "kind"})
            self._runtime = RUNTIMES[description["format"]](folder, threads)
            self._outputs = description["outputs"]
            self._most_rows, self._widths = description["most_rows"], description["widths"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{folder / NAME}: expected what this version writes, {error!r}") from None

    def __call__(self, examples, batch_size=32):
        """The answers to all `examples`, {name: array with one row per example}."""
        if isinstance(examples, str | bytes):
            raise ValueError("examples: expected a list, got a single one")
        rows = [self._reader.row(example, place) for place, example in enumerate(examples)]
        found: list[Any] = [None] * len(rows)
        for places in self._batches(rows, batch_size):
            batch = [rows[place] for place in places]
            outputs = self.run(self._reader.join(batch, self._widths))
            for number, place in enumerate(places):
                found[place] = self._finish({name: x[number] for name, x in outputs.items()}, rows[place])
        if not found:
            return {}
        return {name: np.array([answer[name] for answer in found]) for name in found[0]}

    def read(self, examples):
        """The inputs of `run` for `examples`, padded to the longest."""
        rows = [self._reader.row(example, place) for place, example in enumerate(examples)]
        return self._reader.join(rows, self._widths)

    def run(self, inputs):
        """The exported function: {name: array} to {name: array}; ValueError for sizes that it has not."""
        rows = len(next(iter(inputs.values())))
        if self._most_rows is not None and rows > self._most_rows:
            raise ValueError(f"the function takes {self._most_rows} rows at most, it was given {rows}")
        return dict(zip(self._outputs, self._runtime(inputs), strict=True))

    def _batches(self, rows, batch_size):
        """The places of the rows that are computed together: of about the same length."""
        most = min(batch_size, self._most_rows or batch_size)
        lengths = [self._reader.length(row) for row in rows]
        batch: list[int] = []
        for place in sorted(range(len(rows)), key=lengths.__getitem__):
            if batch and (len(batch) == most or lengths[place] > WASTE * lengths[batch[0]] + 2):
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch


class SavedModel:
    """A SavedModel as `Served` is: `served(examples)` gives {name: array}, with strings for texts."""

    def __init__(self, folder):
        import tensorflow as tf

        with contextlib.suppress(ImportError):  # only the models of texts need its operations
            import tensorflow_text  # noqa: F401
        self._loaded = tf.saved_model.load(str(folder))  # kept: its signatures refer to it weakly
        self._constant, self._signatures = tf.constant, self._loaded.signatures
        if "serving_default" not in self._signatures:
            raise ValueError(f"{folder}: expected a SavedModel with the signature serving_default")

    def __call__(self, examples, batch_size=None):
        """The answers to all `examples`, in one batch."""
        examples = list(examples)
        inputs: dict[str, Any] = {}
        are_arrays = bool(examples) and isinstance(examples[0], np.ndarray)
        signature = self._signatures["images" if are_arrays else "serving_default"]
        names = signature.structured_input_signature[1]
        if are_arrays:
            inputs["images"] = np.stack([_from_0_to_1(image) for image in examples])
        elif "image_bytes" in names:
            inputs["image_bytes"] = [_bytes_of(example) for example in examples]
        elif "second" in names:
            inputs["text"], inputs["second"] = map(list, zip(*examples, strict=True))
        else:
            inputs["text"] = [x if isinstance(x, str) else " ".join(x) for x in examples]
        answers = signature(**{name: self._constant(x) for name, x in inputs.items()})
        return {name: _decoded(x.numpy()) for name, x in answers.items()}


# What comes before the function ---------------------------------------------------------------------------


class Texts:
    """Strings, or pairs of them, as ids of the tokens of tokenizer.json between `start` and `end`, and with
    those of `between` between two texts. More than `max_length` tokens are cut, of two texts from the longer.
    """

    def __init__(self, folder, inputs, max_length, start, end, pad, between, pairs=False):
        tokenizers = _imported("tokenizers", "tokenizers")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._inputs, self._max_length, self._pairs = inputs, max_length, pairs
        self._start, self._end, self._pad, self._between = start, end, pad, between

    def ids(self, text):
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def row(self, example, place):
        """(token ids, how many of them belong to the first text)."""
        if not self._pairs:
            if not isinstance(example, str):
                raise ValueError(f"row {place}: expected a string, got {type(example).__name__}")
            room = self._max_length - 2
            ids = [self._start, *self.ids(example)[:room], self._end]
            return ids, len(ids)
        pair = example.split("\t") if isinstance(example, str) else tuple(example)
        if len(pair) != 2:
            raise ValueError(f"row {place}: expected two texts, got {len(pair)}")
        first, second = map(self.ids, pair)
        room = self._max_length - 2 - len(self._between)
        kept = min(len(first), max(room - len(second), room - room // 2))
        first, second = first[:kept], second[: room - kept]
        front = [self._start, *first, *self._between]
        return [*front, *second, self._end], len(front)

    def length(self, row):
        return len(row[0])

    def join(self, rows, widths=None):
        """Rows as {input: int32 (B, T)}."""
        width = _fitting(max(map(self.length, rows)), widths)
        shape = len(rows), width
        inputs = {
            "token_ids": np.full(shape, self._pad, "int32"),
            "segment_ids": np.zeros(shape, "int32"),
            "padding_mask": np.zeros(shape, "int32"),
        }
        for number, (ids, first) in enumerate(rows):
            inputs["token_ids"][number, : len(ids)] = ids
            inputs["padding_mask"][number, : len(ids)] = 1
            inputs["segment_ids"][number, first : len(ids)] = int(self._pairs)
        return {name: inputs[name] for name in self._inputs}


class Words(Texts):
    """Lists of words, or strings split at white space: of each word's tokens the first is answered for.

    `before` is what a word is spelled with in front, `unknown` the id of a word without tokens.
    """

    def __init__(self, folder, unknown, before="", **options):
        super().__init__(folder, **options)
        self._unknown, self._before = unknown, before

    def row(self, example, place):
        """(token ids, their number, where the first token of each word stands, how many words there are)."""
        words = example.split() if isinstance(example, str) else list(example)
        ids: list[int] = []
        firsts: list[int] = []
        for word in words:
            firsts.append(1 + len(ids))
            ids += self.ids(self._before + word) or [self._unknown]
        room = self._max_length - 2
        ids = [self._start, *ids[:room], self._end]
        return ids, len(ids), [first for first in firsts if first <= room], len(words)

    def join(self, rows, widths=None):
        return super().join([row[:2] for row in rows], widths)


class Images:
    """Images as numbers from 0 to 1, (B, height, width, channels).

    Arrays of the function's size, 8-bit or from 0 to 1, are taken as they are; image files and 8-bit arrays
    of another size are resized by Pillow, as the task does within a grey level.
    """

    def __init__(self, folder, shape, interpolation, crop_fraction, keep_aspect):
        self._shape, self._crop_fraction, self._keep_aspect = tuple(shape), crop_fraction, keep_aspect
        self._interpolation = interpolation.upper()

    def row(self, example, place):
        if not isinstance(example, np.ndarray):
            return self._resized(_pixels(_bytes_of(example), self._shape[2], place))
        image = example[..., None] if example.ndim == 2 else example
        if image.shape == self._shape:
            return _from_0_to_1(image)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != self._shape[2]:
            raise ValueError(f"row {place}: expected an image {self._shape}, or 8 bits, got {image.shape}")
        return self._resized(image)

    def _resized(self, image):
        pillow = _imported("PIL.Image", "Pillow")
        size = np.array(image.shape[:2])
        whole = np.array([int(side / self._crop_fraction + 1e-6) for side in self._shape[:2]])
        if self._keep_aspect:
            longer = 1 if whole[0] * size[1] >= whole[1] * size[0] else 0
            whole[longer] = whole[1 - longer] * size[longer] // size[1 - longer]
        top, left = (whole - self._shape[:2]) // 2
        picture = pillow.fromarray(image[..., 0] if image.shape[2] == 1 else image)
        kernel = getattr(pillow.Resampling, self._interpolation)
        picture = picture.resize((int(whole[1]), int(whole[0])), kernel)
        box = left, top, left + self._shape[1], top + self._shape[0]
        return _from_0_to_1(np.asarray(picture.crop(tuple(map(int, box)))).reshape(self._shape))

    def length(self, row):
        return 1

    def join(self, rows, widths=None):
        return {"images": np.stack(rows)}


def _pixels(data, channels, place):
    """The bytes of an image file as 8-bit pixels (H, W, channels): alpha and orientation are ignored."""
    pillow = _imported("PIL.Image", "Pillow")
    try:
        picture = pillow.open(io.BytesIO(data))
        if picture.mode.startswith("I;16"):  # which Pillow would clip
            picture = pillow.fromarray((np.asarray(picture) >> 8).astype("uint8"))
        pixels = np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError(f"row {place}: expected a whole PNG or JPEG image ({error})") from None
    if channels == 3:
        return pixels
    grey = np.rint(pixels.astype("float32") @ np.array([0.299, 0.587, 0.114], "float32"))
    return np.clip(grey, 0, 255).astype("uint8")[..., None]


# What comes after it --------------------------------------------------------------------------------------


def as_arrays():
    """The outputs are the answers."""
    return lambda outputs, row: outputs


def as_classes(labels):
    """The likeliest label, beside the "probabilities"."""
    return lambda outputs, row: {"label": labels[int(outputs["probabilities"].argmax())], **outputs}


def as_tags(labels, outside):
    """The likeliest label at each word's first token, with spaces between; `outside` for words not read."""

    def finish(outputs, row):
        best, firsts, count = outputs["scores"].argmax(-1), row[2], row[3]
        tags = [labels[int(best[first])] for first in firsts]
        return {"tags": " ".join(tags + [outside] * (count - len(tags)))}

    return finish


# The runtimes: {input: array} to a list of outputs --------------------------------------------------------


def onnx(folder, threads):
    """model.onnx by onnxruntime, on the CPU."""
    runtime = _imported("onnxruntime", "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = runtime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    return lambda inputs: session.run(None, {node.name: inputs[node.name] for node in session.get_inputs()})


def litert(folder, threads):
    """model.tflite by LiteRT: one of its functions per length."""
    interpreters = _imported("ai_edge_litert.interpreter", "ai-edge-litert")
    interpreter = interpreters.Interpreter(str(folder / "model.tflite"), num_threads=threads)
    runners: dict[tuple, Any] = {}
    for name in interpreter.get_signature_list():
        runner = interpreter.get_signature_runner(name)
        shapes = {tuple(map(int, x["shape"])) for x in runner.get_input_details().values()}
        runners |= dict.fromkeys(shapes, runner)

    def run(inputs):
        shape = next(iter(inputs.values())).shape
        if shape not in runners:
            raise ValueError(f"the function takes inputs of {', '.join(map(str, runners))}, got {shape}")
        outputs = runners[shape](**inputs)
        return [outputs[name] for name in sorted(outputs)]

    return run


def openvino(folder, threads):
    """model.xml by OpenVINO, on the CPU."""
    runtime = _imported("openvino", "openvino")
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = runtime.Core().compile_model(str(folder / "model.xml"), "CPU", options)
    request, names = compiled.create_infer_request(), [port.any_name for port in compiled.inputs]

    def run(inputs):
        found = request.infer({name: inputs[name] for name in names})
        return [np.array(found[port]) for port in compiled.outputs]

    return run


READERS: dict[str, Any] = {"texts": Texts, "words": Words, "images": Images}
ANSWERS: dict[str, Any] = {"arrays": as_arrays, "classes": as_classes, "tags": as_tags}
RUNTIMES: dict[str, Any] = {"onnx": onnx, "litert": litert, "openvino": openvino}


def _description(path):
    if not path.is_file():
        raise ValueError(f"{path.parent}: expected an exported folder, with {NAME} or saved_model.pb in it")
    try:
        content = json.loads(path.read_text("utf-8"))
        layout = content["layout"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path}: expected an object with its layout, the file is damaged") from None
    if layout != LAYOUT:
        raise ValueError(
            f"{path}: expected layout {LAYOUT}, got {layout!r:.20}, written by keras_tfm "
            f"{content.get('keras_tfm')!r:.20}: use the serving.py beside it"
        )
    return content


def _imported(module, package):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"This folder needs {package}: pip install {package} ({error})") from None


def _fitting(length, widths):
    """The least of `widths`, sorted, that holds `length`; without any, `length` itself."""
    return next(width for width in widths if width >= length) if widths else length


def _bytes_of(image):
    """The bytes of an image file, given by itself or by its path."""
    return image if isinstance(image, bytes) else pathlib.Path(image).read_bytes()


def _from_0_to_1(image):
    image = image[..., None] if image.ndim == 2 else image
    return image.astype("float32") / (255.0 if image.dtype == np.uint8 else 1.0)


def _decoded(x):
    """Strings of bytes as text."""
    return (
        np.vectorize(lambda text: text.decode("utf-8", "replace"), otypes="O")(x).astype(str)
        if x.dtype == object
        else x
    )
