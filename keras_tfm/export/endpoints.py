"""The signatures of SavedModels: a reader, a task's function and an answer, joined in one graph."""

import dataclasses
import pathlib
import tempfile

import tensorflow as tf

from keras_tfm.export import segments
from keras_tfm.export.graph_answers import ANSWERS, as_text
from keras_tfm.export.graph_readers import READERS, Plain
from keras_tfm.serving import plugins

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
