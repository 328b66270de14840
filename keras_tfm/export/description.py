"""What every exported folder holds besides its model: serving.json, the package `serving` and README.md."""

import json
import pathlib
import shutil

from keras_tfm import serving
from keras_tfm.training.folder import CARD_MARK
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


def described(task, format, quantization, **entries):
    """The content of serving.json; `entries` are those of the format's kind."""
    return {
        "layout": serving.LAYOUT,
        "keras_tfm": __version__,
        "task": task,
        "format": format,
        "quantization": quantization,
        **entries,
    }


def write_around(folder, description, packages, example, inner):
    """Write the files around a model; `inner` says what stands inside of `served`."""
    description["files"] = serving.digests_of(folder)
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    (folder / serving.NAME).write_text(text, "utf-8")
    sources = pathlib.Path(serving.__file__).parent
    shutil.copytree(sources, folder / "serving", ignore=shutil.ignore_patterns("__pycache__"))
    readme = README.format(
        mark=CARD_MARK,
        task=description["task"],
        format=description["format"],
        packages=packages,
        example=example,
        inner=inner,
        difference=description["difference"],
    )
    (folder / "README.md").write_text(readme, "utf-8")
