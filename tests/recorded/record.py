"""Tiny RUNs of every task, and what they answered when they were recorded.

    python -m tests.recorded.record                 # the answers of all, as they are now
    python -m tests.recorded.record caption detect  # of those alone

kept/NAME/ is a RUN as `save` wrote it, answers.json what `predict` and each export answered to INPUTS. The
weights are drawn, so that no bias is zero. A change that shall keep every answer runs test_answers.py; one
that changes answers records them anew and says why. RUNs stay as old versions wrote them: one that is missing
is made.
"""

import json
import pathlib
import re
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

from keras_tfm import serving, tasks
from tests.tasks.test_every_task import CONTEXT, MAKERS

FOLDER = pathlib.Path(__file__).parent
RUNS, ANSWERS = FOLDER / "kept", FOLDER / "answers.json"
FORMATS = ("saved_model", "onnx", "openvino", "litert", "ctranslate2")
SPREAD = 0.3  # of what is added to each weight, so that probabilities differ by more than rounding


def drawn(*shape):
    """Images from a seed, the same everywhere."""
    return np.random.default_rng(0).integers(0, 256, shape, "uint8")


TEXTS = ["the cat sat on the mat", "", "Who is the DOG?"]
INPUTS = {
    "translate": ["the cat", "the dog"],
    "summarize": ["the cat", "the dog"],
    "generate": ["the", "cat"],
    "masked-lm": ["the [MASK] sat", "[MASK]"],
    "classify": TEXTS,
    "several": TEXTS,
    "number": TEXTS,
    "pairs": [("the cat", "sat"), ("the dog", "ran on the mat")],
    "tag": [["the", "cat"], ["dog"]],
    "answer": [("who sat", CONTEXT), ("where is the cat", CONTEXT * 3)],
    "choose": [("who sat", ["cat", "mat"]), ("who ran", ["dog", "the cat"])],
    "sentence-vectors": TEXTS,
    "fold": ["MKT", "W"],
    "classify-images": drawn(3, 8, 8, 1),
    "classify-videos": drawn(3, 4, 8, 8, 1),
    "reidentify": drawn(3, 16, 8, 3),
    "classify-points": np.random.default_rng(0).normal(size=(3, 12, 3)),
    "keypoints": np.random.default_rng(0).normal(size=(2, 3, 2)),
    "track": drawn(2, 3, 20, 24, 1),
    "pretrain-images": drawn(3, 8, 8, 1),
    "pretrain-videos": drawn(3, 4, 8, 8, 1),
    "image-vectors": drawn(3, 8, 8, 1),
    "generate-images": ["the cat", "the dog"],
    "restore-images": drawn(2, 9, 11, 1),
    "image-codes": drawn(2, 8, 8, 1),
    "segment-videos": drawn(2, 3, 16, 16, 1),
    "predict-frames": drawn(2, 4, 16, 16, 1),
    "inpaint-videos": drawn(2, 4, 16, 16, 1),
    "detect": drawn(2, 16, 16, 1),
    "find-lanes": drawn(2, 16, 16, 1),
    "relate": drawn(2, 16, 16, 1),
    "segment": drawn(2, 8, 8, 1),
    "instances": drawn(2, 16, 16, 1),
    "panoptic": drawn(2, 16, 16, 1),
    "match-images": drawn(2, 8, 8, 3),
    "caption": drawn(2, 8, 8, 3),
    "recommend": ["a", "b"],
    "forecast": [np.sin(np.arange(24.0)), np.cos(np.arange(24.0))],
}
FRAME = tf.io.encode_png(drawn(20, 24, 1)).numpy()
MASK = np.eye(16, dtype="uint8")
CORNERS = np.array([4, 6, 16, 14], "float32")
# What exports are asked, where that is not INPUTS.
SERVED = {
    "generate-images": [{"classes": "the cat", "seed": 0}, {"classes": "the dog", "seed": 1}],
    "predict-frames": [
        [tf.io.encode_png(frame).numpy() for frame in clip] for clip in drawn(2, 3, 16, 16, 1)
    ],
    "inpaint-videos": [
        {
            "frame_bytes": [tf.io.encode_png(frame).numpy() for frame in clip],
            "mask_bytes": [tf.io.encode_png(255 * MASK[..., None]).numpy()] * 3,
        }
        for clip in drawn(2, 3, 16, 16, 1)
    ],
    "segment-videos": [
        [tf.io.encode_png(frame).numpy() for frame in clip] for clip in drawn(2, 2, 16, 16, 1)
    ],
    "restore-images": [tf.io.encode_png(image).numpy() for image in drawn(2, 9, 11, 1)],
    "image-codes": [tf.io.encode_png(image).numpy() for image in drawn(2, 8, 8, 1)],
    "track": [
        {"template_bytes": FRAME, "template_boxes": CORNERS, "image_bytes": FRAME, "boxes": CORNERS + move}
        for move in (0, 2)
    ],
}
ASKED = {  # of `predict`
    "track": {"box": "4,6,12,8"},
    "detect": {"threshold": 0.0},
    "relate": {"threshold": 0.0},
    "instances": {"threshold": 0.0},
    "find-lanes": {"threshold": 0.0},
    "segment-videos": {"threshold": 0.0},
    "inpaint-videos": {"holes": [MASK] * 2},
}
EXPORTED = {"generate": {"max_new_tokens": 8}}
OTHERS = {
    "image-vectors": lambda: tasks.ImageEncoder.from_task(MAKERS["classify-images"][0]()),
    "forecast": lambda: tasks.Forecaster.from_series(
        np.sin(np.arange(100.0)), "recurrent", window=9, horizon=4
    ),
}


def make(name):
    """The task of this name, with drawn weights."""
    keras.utils.set_random_seed(0)
    task = OTHERS[name]() if name in OTHERS else MAKERS[name][0]()
    rng = np.random.default_rng(0)
    for variable in getattr(task.model, "trainable_variables", ()):
        variable.assign(variable.numpy() + SPREAD * rng.standard_normal(variable.shape))
    return task


def answers_of(task, name):
    """{"predict" or a format: what it answers to INPUTS, as JSON values}."""
    return {"predict": predicted(task, name)} | {format: exported(task, name, format) for format in FORMATS}


def predicted(task, name):
    """What `predict` answers to INPUTS, as JSON values."""
    return plain(task.predict(INPUTS[name], **ASKED.get(name, {})))


def exported(task, name, format):
    """What an export answers to INPUTS, or why the format does not carry the task, as JSON values."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "export")
        try:
            task.export(path, format=format, **EXPORTED.get(name, {}))
        except ValueError as error:  # a converter's own words name places that change
            return re.sub(r"(?<=cannot hold this model): .*", "", str(error), flags=re.DOTALL)
        return plain(serving.load(path)(SERVED.get(name, list(INPUTS[name]))))


def plain(answer):
    """An answer as JSON values, the numbers with seven digits."""
    match answer:
        case dict():
            return {name: plain(value) for name, value in answer.items()}
        case list() | tuple():
            return [plain(value) for value in answer]
        case np.ndarray() | np.generic():
            return plain(answer.tolist())
        case bytes():
            return plain(tf.io.decode_png(answer).numpy())
        case float():
            return float(f"{answer:.7g}")
    return answer


def main(names):
    known = json.loads(ANSWERS.read_text("utf-8")) if names else {}
    for name in names or INPUTS:
        if not (RUNS / name).is_dir():
            make(name).save(RUNS / name)
        known[name] = answers_of(tasks.load(RUNS / name), name)
        size = sum(path.stat().st_size for path in (RUNS / name).iterdir())
        print(f"{name}: {size / 1000:.0f} kB, {', '.join(known[name])}", flush=True)
    ANSWERS.write_text(json.dumps(known, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
