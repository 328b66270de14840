"""What every exported folder holds besides its model: serving.json, the package `serving` and README.md."""

import json
import pathlib
import shutil

import numpy as np

from keras_tfm import serving
from keras_tfm.serving import plugins
from keras_tfm.serving.answers import ANSWERS
from keras_tfm.serving.image_headers import MAX_FRAMES, MAX_PIXELS
from keras_tfm.serving.readers import READERS
from keras_tfm.training.folder import CARD, CARD_MARK
from keras_tfm.version import __version__

README = """{mark}

# {task}, as {format}

Answers without TensorFlow, Keras or keras_tfm: `pip install {packages}`, then in this folder

```python
from serving import load

served = load(".")
print(served({example}))
```

`served` takes a list, and gives {{name: array with one row for each}}. `serving` is keras_tfm's package of
that name; where keras_tfm is installed, `keras_tfm.serving.load(folder)` is the same.

{inner}
Relative difference from the trained task, measured on examples at export: {difference:.2g}.
"""

SAVED_MODEL_README = """{mark}

# {task}, as a SavedModel

Answers with TensorFlow, without Keras and keras_tfm:

```python
import tensorflow as tf
import tensorflow_text  # operations of tokenizers: a graph without texts does without

model = tf.saved_model.load(".")
answer = model.signatures["serving_default"]
```

| signature | inputs |
|---|---|
{signatures}

Where keras_tfm is installed, `keras_tfm.serving.load(folder)` answers a list, and first compares the files
with the digests in `{digests}`; TensorFlow and TensorFlow Serving compare nothing.
"""

IMAGES = f"""
## Image files

`image_bytes` are the contents of PNG, JPEG, GIF, BMP or WebP files; of an animation the first image is read.
The graph raises InvalidArgumentError for a batch that holds one of these:

- BMP: compressed (RLE or an embedded JPEG or PNG), of 2 bits, or with unusual masks of colours
- GIF: the first frame is smaller than the canvas
- WebP: animated, and the first frame is smaller than the canvas
- TIFF, AVIF, HEIC, all other formats, and files that are cut off

The graph limits neither the pixels of an image nor the frames of a GIF, all of which TensorFlow decodes: a
small file may ask for much memory. `keras_tfm.serving.load` reads the header first, and refuses images of
more than {MAX_PIXELS:,} pixels and GIFs of more than {MAX_FRAMES:,} in all frames. A server that anybody
may ask needs such a check before the graph.
"""


TEXTS = """
## Texts

{}
"""
# {the kind of a reader or a tokenizer: what it needs to read files or texts}
PACKAGES = {
    "images": ("pillow",),
    "canvas": ("pillow",),
    "videos": ("pillow", "av"),
    "tokenizers": ("tokenizers",),
    "sentencepiece": ("sentencepiece",),
}


def described(task, format, quantization, reads, answers, **entries):
    """The content of serving.json: what the task `reads` and how it `answers`, the plugins that do so if any
    does, and the `entries` that the format's kind adds.
    """
    kinds = {"reader": (reads, READERS), "answer": (answers, ANSWERS)}
    others = [(kind, x["kind"]) for kind, (x, ours) in kinds.items() if x["kind"] not in ours]
    return {
        "layout": serving.LAYOUT,
        "keras_tfm": __version__,
        "task": task,
        "format": format,
        "quantization": quantization,
        **plugins.distributions(*(plugins.find(*other) for other in others)),
        **entries,
        "reads": reads,
        "answers": answers,
    }


def write_around(folder, description, runtime, example, inner):
    """Write the files around a model, which the package `runtime` answers by. README.md shows an `example` of
    what is asked, or a name for one of a file, and `inner` says what stands inside of `served`.
    """
    reads = description["reads"]
    packages = ["numpy", runtime, *PACKAGES.get(reads["kind"], ())]
    packages += PACKAGES.get(reads.get("tokenizer", {}).get("kind"), ())
    packages += [f"{name}=={version}" for name, version in description.get("plugins", {}).items()]
    description["files"] = serving.digests_of(folder)
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    (folder / serving.NAME).write_text(text, "utf-8")
    sources = pathlib.Path(serving.__file__).parent
    shutil.copytree(sources, folder / "serving", ignore=shutil.ignore_patterns("__pycache__"))
    readme = README.format(
        mark=CARD_MARK,
        task=description["task"],
        format=description["format"],
        packages=" ".join(packages),
        example=_asked(description, example),
        inner=inner,
        difference=description["difference"],
    )
    (folder / CARD).write_text(readme, "utf-8")


def _asked(description, example):
    """A list to ask, as Python's code: of an `example`, or, where it would be long, of what stands for it."""
    reads = description["reads"]
    shown = {
        "images": '["photo.jpg"]',
        "canvas": '["photo.jpg"]',
        "videos": '["clip.mp4"]',
        "clouds": '["chair.ply"]',
        "words": '["Ada lives in Rome"]',
        "texts": '[("a text", "another")]' if reads.get("pairs") else '["a text"]',
        "blanks": f'["a {description["answers"].get("blank")} text"]',
        "choices": '[("a text", ["a choice", "another"])]',
        "questions": '[("a question?", "a text with the answer")]',
    }
    return shown.get(reads["kind"]) or f"[{_code_of(example)}]"


def _code_of(example):
    """An example as Python's code."""
    if not isinstance(example, np.ndarray):
        return repr(example)
    return repr((example.round(2) if example.dtype.kind == "f" else example).tolist())


def write_saved_model_card(folder, task, endpoints, of_texts=""):
    """Write the README.md of a SavedModel; `endpoints` are {signature: (function, its inputs)}, and
    `of_texts` says how its tokens may differ from the task's.
    """
    inputs = {name: list(specs) for name, (_, specs) in endpoints.items()}
    rows = [f"| `{name}` | {', '.join(map(_shown, specs))} |" for name, specs in inputs.items()]
    readme = SAVED_MODEL_README.format(
        mark=CARD_MARK, task=task, signatures="\n".join(rows), digests=serving.files.SAVED_MODEL_NAME
    )
    reads_files = any(spec.name == "image_bytes" for specs in inputs.values() for spec in specs)
    readme += IMAGES if reads_files else ""
    (folder / CARD).write_text(readme + (TEXTS.format(of_texts) if of_texts else ""), "utf-8")


def _shown(spec):
    """An input as text: `text` string (B); a side without a name may have any length."""
    sides = [str(side or ("any" if place else "B")) for place, side in enumerate(spec.shape)]
    return f"`{spec.name}` {spec.dtype.name} ({', '.join(sides)})"
