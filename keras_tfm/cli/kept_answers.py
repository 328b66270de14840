"""What an earlier `predict` has traced of a RUN's task, kept for the next one.

To make a model and to trace its function takes longer than to answer a line. Therefore a `predict` that reads
lines from standard input, and prints plain answers, keeps the graph of its task's function, in which weights
are inputs too, and the files of its reader and its answer. The next one imports TensorFlow, but neither Keras
nor a model, and reads the weights from the RUN. Both compute by this graph, so they answer alike.

All is in $XDG_CACHE_HOME/keras_tfm/answers, by default ~/.cache/keras_tfm/answers: a folder for each
configuration of a RUN, version, file of this package and setting that a graph depends on; no more than
`LIMIT` bytes, what has waited longest goes first. A damaged one is made anew. --no-cache, and
KERAS_TFM_GRAPH_CACHE=0, turn it off.

Graphs are executed, so the folders must belong to the user, and nobody else may write to them.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

import keras_tfm
from keras_tfm.asking import ASKED
from keras_tfm.cli.cache import cache_folder, is_on, make_private
from keras_tfm.cli.console import quiet_tensorflow
from keras_tfm.cli.exported import Exported
from keras_tfm.serving.answering import Answerer
from keras_tfm.serving.answers import answer_of
from keras_tfm.serving.files import check_files as check_digests
from keras_tfm.serving.files import digests_in, digests_of, read_object
from keras_tfm.serving.readers import reader_of
from keras_tfm.tasks.task_folder import check_files, read_config
from keras_tfm.training.safetensors import UNTRAINED, read_tensors

LIMIT = 2**28  # bytes that are kept
GRAPH, DESCRIPTION, WEIGHTS = "graph.pb", "serving.json", "model.safetensors"
SWITCH = "KERAS_TFM_GRAPH_CACHE"
KINDS = {"classes", "tags", "choice", "filled", "span"}  # answers whose lines `Exported` prints as tasks do


class Apart:
    """The function of a `signature` as one of arrays, as `by_keras` makes it, but that the graph has the
    weights of a task's `model` as inputs. It is `traced` at its first call.
    """

    traced: Any = None

    def __init__(self, model: Any, signature: Any):
        self.signature, self._model = signature, model

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self.traced is None:
            self._trace()
        results = self.traced(self._weights, {name: self._constant(x) for name, x in inputs.items()})
        return {name: x.numpy() for name, x in results.items()}

    def _trace(self) -> None:
        import keras
        import tensorflow as tf

        variables = {variable.path: variable for variable in self._model.weights}

        def call(weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
            with keras.StatelessScope([(variables[path], value) for path, value in weights.items()]):
                return self.signature.function(dict(inputs))

        self._constant = tf.constant
        self._weights = {path: tf.convert_to_tensor(one.value) for path, one in variables.items()}
        specs = {path: tf.TensorSpec(x.shape, x.dtype) for path, x in self._weights.items()}
        inputs = {name: tf.TensorSpec(x.shape, x.dtype) for name, x in self.signature.inputs.items()}
        self.traced = tf.function(call, autograph=False).get_concrete_function(specs, inputs)


def place_of(run: str) -> pathlib.Path | None:
    """The folder for what is traced of a RUN's task; None if nothing is kept: it is turned off, the cache
    cannot be used, or the RUN needs plugins.
    """
    content = read_config(run)
    if not is_on(SWITCH) or content.get("plugins") or content["task"] not in ASKED:
        return None
    home = cache_folder("answers")
    try:
        make_private(home)
        place = home / _key(run)
        if place.exists():
            make_private(place)
    except OSError:
        return None
    return place


def _key(run: str) -> str:
    """A name for what the graph of a RUN's function depends on."""
    package = pathlib.Path(keras_tfm.__file__).parent
    files = [path for path in package.rglob("*.py") if not path.name.startswith(".")]
    settings = pathlib.Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser() / "keras.json"
    parts = [
        pathlib.Path(run, "config.json").read_text("utf-8"),
        [importlib.metadata.version(name) for name in ("tensorflow", "keras")],
        sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files),
        sorted((name, value) for name, value in os.environ.items() if name.startswith("KERAS_")),
        settings.read_text("utf-8") if settings.is_file() else None,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def kept_task(run: str, place: pathlib.Path) -> Exported | None:
    """The task of a RUN by what is kept of it; None if nothing is, or if the RUN's files are not as they were
    then: whoever loads them says what is wrong.
    """
    if not place.exists():
        return None
    try:
        content = read_object(place / DESCRIPTION)
        check_digests(place, digests_in(content, place / DESCRIPTION))
        check_files(pathlib.Path(run), read_config(run).get("files", {}))
        tensors, metadata = read_tensors(pathlib.Path(run, WEIGHTS))
        arrays = [_sound(tensors, *weight) for weight in content["weights"]]
        reader, finish = reader_of(place, content["reads"]), answer_of(place, content["answers"])
        tensorflow = quiet_tensorflow(alone=True)
        if _devices(tensorflow) != content["devices"]:
            return None
        function = _read_graph(tensorflow, place, content, arrays)
    except (OSError, ValueError, TypeError, KeyError):
        shutil.rmtree(place, ignore_errors=True)
        return None
    with contextlib.suppress(OSError):
        os.utime(place)
    task = Exported(content["task"], Answerer(reader, function, finish), max_length=content["max_length"])
    task.asking = ASKED[task.name].asking
    task.is_trained = not UNTRAINED.items() <= metadata.items()
    return task


def _sound(tensors: Mapping[str, np.ndarray], path: str, kind: str, shape: list[int]) -> np.ndarray:
    """The array of a weight; ValueError if it is not as it was when the graph was made."""
    array = tensors[path]
    if list(array.shape) != shape or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        raise ValueError(f"{path}: expected finite numbers of the shape {shape}, got others")
    return array


def _read_graph(tensorflow: Any, place: pathlib.Path, content: dict[str, Any], arrays: list) -> Any:
    """The kept function, {name: array} to {name: array}."""
    compat = tensorflow.compat.v1
    graph = compat.GraphDef.FromString((place / GRAPH).read_bytes())
    imported = compat.wrap_function(lambda: tensorflow.graph_util.import_graph_def(graph, name=""), [])
    names, outputs = content["inputs"], content["outputs"]
    by_name = imported.graph.get_tensor_by_name
    fed = [by_name(name) for name in [*content["placeholders"], *names.values()]]
    function = imported.prune(fed, [by_name(name) for name in outputs.values()])
    weights = [
        tensorflow.cast(tensorflow.constant(array), kind)
        for array, (_, kind, _) in zip(arrays, content["weights"], strict=True)
    ]

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = function(*weights, *(tensorflow.constant(inputs[name]) for name in names))
        return {name: x.numpy() for name, x in zip(outputs, results, strict=True)}

    return run


def trace_apart(task: Any) -> None:
    """Let a task that is read as `serving` reads it compute by a graph that can be kept."""
    if getattr(task, "own_reader", task) is None:
        task.as_arrays = functools.partial(Apart, task.model)


def keep(task: Any, place: pathlib.Path) -> None:
    """Write to `place` what a task has computed by since `trace_apart`, if its lines are printed as
    `Exported` prints them, and as far as the disk lets it.
    """
    import tensorflow

    function = getattr(task, "answerer", task)
    function = getattr(function, "run", None)
    if not isinstance(function, Apart) or function.traced is None:
        return
    traced, signature = function.traced, function.signature
    # What it has captured are tables, or variables besides the weights.
    if signature.answers["kind"] not in KINDS or traced.captured_inputs:
        return
    specs = traced.structured_input_signature[0]
    # One operation, whose function is imported as it is: Python would go through the graph's operations.
    caller = tensorflow.function(lambda *given: traced(*given), autograph=False).get_concrete_function(*specs)
    flat, names = iter(caller.inputs), sorted(caller.structured_outputs)
    weights, inputs = ({name: next(flat) for name in sorted(some)} for some in specs)
    content = {
        "task": task.name,
        "max_length": getattr(task.config, "max_length", None),
        "reads": signature.reads,
        "answers": signature.answers,
        "weights": [[path, x.dtype.name, x.shape.as_list()] for path, x in weights.items()],
        "placeholders": [x.name for x in weights.values()],
        "inputs": {name: x.name for name, x in inputs.items()},
        "outputs": {name: x.name for name, x in zip(names, caller.outputs, strict=True)},
        "devices": _devices(tensorflow),
    }
    with contextlib.suppress(OSError):
        make_private(place.parent)
        work = pathlib.Path(tempfile.mkdtemp(prefix="new-", dir=place.parent))
        try:
            signature.write_files(work)
            (work / GRAPH).write_bytes(caller.graph.as_graph_def().SerializeToString())
            content["files"] = digests_of(work)
            (work / DESCRIPTION).write_text(json.dumps(content), "utf-8")
            work.rename(place)
        finally:
            shutil.rmtree(work, ignore_errors=True)  # another process has kept the same meanwhile
        _remove_oldest(place.parent)


def _devices(tensorflow: Any) -> list[str]:
    """The kinds of devices that are here."""
    return sorted({device.device_type for device in tensorflow.config.list_physical_devices()})


def _remove_oldest(home: pathlib.Path) -> None:
    """Remove kept folders until `LIMIT` bytes are left."""
    folders = [folder for folder in home.iterdir() if folder.is_dir()]
    sizes = {folder: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders}
    total = sum(sizes.values())
    for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime):
        if total <= LIMIT:
            return
        shutil.rmtree(folder, ignore_errors=True)
        total -= sizes[folder]
