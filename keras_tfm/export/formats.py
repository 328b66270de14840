"""The formats of `Task.export`: how a task is written, run in the format's own runtime, and compared.

A format besides the SavedModel has a line in `needs.NEEDS` and is a module with `RUNTIME`, the package that
answers, and `write(function, folder, quantization, name)`, which writes a `FrozenFunction` into `folder` and
returns (the most rows of a call, the lengths that it takes), None where any will do.
`keras_tfm.serving.runtimes` has the runtime by the same name. Tasks that write texts are written by
`writers`.
"""

import functools
import logging
import shutil

import numpy as np

from keras_tfm import serving
from keras_tfm.export import litert, onnx, openvino, writers
from keras_tfm.export.description import described, write_around, write_saved_model_card
from keras_tfm.export.graph import FrozenFunction
from keras_tfm.export.graph_answers import ANSWERS as GRAPH_ANSWERS
from keras_tfm.export.graph_readers import READERS as GRAPH_READERS
from keras_tfm.export.needs import check_format
from keras_tfm.export.saved_model import write_saved_model
from keras_tfm.serving.answers import ANSWERS
from keras_tfm.serving.readers import READERS
from keras_tfm.training.folder import mark_saved_model, new_folder, refuse_pattern

LOG = logging.getLogger(__name__)

FORMATS = {"litert": litert, "onnx": onnx, "openvino": openvino}
MODULES = {**FORMATS, **writers.FORMATS}

# The largest difference from the task's outputs: of any number, as a share of the largest; in 8 bits, where
# single answers that hang in the balance may tip, of all numbers, by their root mean squares.
BOUNDS = {None: 1e-4, "int8": 0.1}
AGREE = 0.9  # the least share of equal ids, in 32 bits


def export(task, folder, overwrite, format, quantization, options):
    """What `Task.export` does."""
    check_format(format, quantization)
    if format == "saved_model":
        refuse_pattern(folder)
        endpoints, of_texts = task.export_endpoints(**options), getattr(task.tokenizer, "in_graphs", "")
        with new_folder(folder, overwrite) as work:
            write_saved_model(task.exported(), endpoints, task.export_resources(), work)
            write_saved_model_card(work, task.name, endpoints, of_texts)
            reads = _reads(task, endpoints, options)
            mark_saved_model(work, task=task.name, **reads, files=serving.digests_of(work))
        if of_texts:
            LOG.info("%s", of_texts)
        return
    write = functools.partial(write_format, task=task.name, name=format)
    if task.writes_texts:
        if task.quantization() is not None:
            raise ValueError("The weights are in 8 bits already: export the RUN that they were made from.")
        ask, bound = functools.partial(task.predict, **options), BOUNDS[quantization]
        write = functools.partial(
            writers.write_writer, ask=ask, task=task.name, module=MODULES[format], bound=bound
        )
    elif format in writers.FORMATS:
        raise ValueError(f"{format} holds tasks that answer texts by texts; {task.name!r} does not.")
    signature = task.signature(**options)
    # A reader or an answer without a form in `serving` leaves the task to SavedModels.
    in_graphs_alone = GRAPH_READERS.keys() - READERS.keys(), GRAPH_ANSWERS.keys() - ANSWERS.keys()
    kinds = signature.reads["kind"], signature.answers["kind"]
    if signature.others or any(kind in alone for kind, alone in zip(kinds, in_graphs_alone, strict=True)):
        raise task.no_other_format()
    with new_folder(folder, overwrite) as work:
        write(signature, quantization=quantization, folder=work)


def _reads(task, endpoints, options):
    """The reader of what a SavedModel takes as numbers alone, clouds of points, as an entry; else none."""
    _, specs = endpoints["serving_default"]
    is_read = any(spec.name == "points" for spec in specs)
    return {"reads": task.signature(**options).reads} if is_read else {}


def write_format(signature, task, name, quantization, folder):
    """Write a task, as its `Signature` says it, into `folder`, and compare the file with the task.

    Raises:
        ValueError: if the format lacks an operation of the model, or answers otherwise than the task.
        OSError: if the folder cannot be written.
    """
    function = FrozenFunction(signature.function, signature.inputs, signature.reads.get("max_length"))
    try:
        most_rows, widths = FORMATS[name].write(function, folder, quantization)
    except (OSError, ValueError, MemoryError):
        raise
    except Exception as error:  # each converter has its own
        shutil.disk_usage(folder)  # OSError where the folder is gone
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{name} cannot hold this model: {reason}") from error
    signature.write_files(folder)
    description = described(
        task,
        name,
        quantization,
        inputs=list(function.inputs),
        outputs=function.outputs,
        most_rows=most_rows,
        widths=widths,
        reads=signature.reads,
        answers=signature.answers,
    )
    exported = serving.Served(folder, description)
    description["difference"] = _difference(signature.examples, function, exported, name, quantization)
    inputs, outputs = (", ".join(f"`{name}`" for name in description[side]) for side in ("inputs", "outputs"))
    inner = f"The function of numbers itself is `served.run({{name: array}})`. In: {inputs}. Out: {outputs}."
    write_around(folder, description, FORMATS[name].RUNTIME, signature.examples[0], inner)


def _difference(examples, function, exported, name, quantization):
    """How far the exported function is from the task's on `examples`; ValueError above the bound."""
    most, squares, total, agree = 0.0, 0.0, 0.0, []
    for example in examples:
        ((rows, _),) = exported.read_all([example])
        found, right = _by_rows(exported, rows), function(exported.reader.join(rows))
        for key, x in right.items():
            y = found[key][tuple(slice(size) for size in x.shape)]
            if x.dtype.kind != "f":  # ids and flags may tip where two are as likely
                agree.append(x == y)
                continue
            most = np.maximum(most, np.abs(x - y).max() / max(1e-6, np.abs(x).max()))  # NaN stays
            squares, total = squares + float(np.square(x - y).sum()), total + float(np.square(x).sum())
    difference = float(most if quantization is None else (squares / max(total, 1e-12)) ** 0.5)
    if not difference <= BOUNDS[quantization]:  # NaN too
        raise ValueError(
            f"{name}: its answers differ from the task's by {difference:.2g}; the bound is "
            f"{BOUNDS[quantization]:g}"
        )
    if quantization is None and agree and np.concatenate([x.ravel() for x in agree]).mean() < AGREE:
        raise ValueError(f"{name}: of its choices less than {AGREE:.0%} are the task's")
    words = "at most" if quantization is None else f"{quantization}, root mean square of"
    LOG.info("%s: %s %.2g from the task on %d examples", name, words, difference, len(examples))
    return difference


def _by_rows(exported, rows):
    """What the exported function gives for one row after the other: an example may have more rows than the
    format takes.
    """
    inputs = exported.reader.join(rows, exported.widths)
    parts = [{name: x[row : row + 1] for name, x in inputs.items()} for row in range(len(rows))]
    found = list(map(exported.run, parts))
    return {name: np.concatenate([outputs[name] for outputs in found]) for name in found[0]}
