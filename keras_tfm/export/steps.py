"""The steps of a task that writes texts, for formats that hold functions: `encoder` and `step`, around which
`keras_tfm.serving.decoding` loops.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from keras_tfm.configs import Field, FieldError
from keras_tfm.export.graph import FrozenFunction
from keras_tfm.serving.decoding import SEEN, Functions
from keras_tfm.serving.rules import Rules

SEARCH = ("beam_size", "length_penalty", "early_stopping")
PROMPT_WIDTH = 32  # tokens of a prompt that a format of fixed sizes reads at once


def write_writer(signature, name, write, folder, quantization):
    """Write the functions by the `write` of the format `name`, into the folder "model", and return the
    arguments of `StepDecoder`; ValueError, naming it, for an option that the loop does not know.
    """
    writing, has_source = signature.function, signature.function.context is not None
    rules, search = decoding_of(writing, name)
    stepwise = writing.stepwise(signature.inputs)
    sizes = _sizes_of(signature, stepwise)
    functions = {"step": _step(writing.options, stepwise, sizes)}
    if has_source:
        shape = {key: _fixed(spec.shape, 1, sizes["source"]) for key, spec in signature.inputs.items()}
        functions["encoder"] = FrozenFunction(
            lambda inputs: stepwise.start(writing.context(inputs)),
            signature.inputs,
            shapes={"encoder": shape},
        )
    (folder / "model").mkdir()
    are_fixed = [
        write(function, folder / "model", quantization, key)[0] for key, function in functions.items()
    ]
    reads: Any = next(iter(signature.inputs.keys() & SEEN), "tokens" if has_source else "prompts")
    exported = Functions(
        reads=reads,
        longest=signature.reads.get("max_length", 1),
        vocabulary_size=writing.model.backbone.embedding.vocabulary_size,
        start=[writing.start_id] if has_source else None,
        entries=stepwise.entries,
        outputs={key: function.outputs for key, function in functions.items()},
        sizes=sizes if are_fixed[0] else None,
    )
    return {
        "functions": exported._asdict(),
        "search": search,
        "rules": rules,
        "stop": list(writing.stop),
    }


def decoding_of(writing, name):
    """The arguments of `Rules` and of `BeamSearch`."""
    for field in dataclasses.fields(writing.options):
        value = getattr(writing.options, field.name)
        if field.name not in (*Rules._fields, *SEARCH) and value != field.default:
            text = "{}: an export writes likely texts, without {}: it must be {!r}; it is {!r}."
            raise FieldError(text, name, Field(field.name), field.default, value)
    rules = {key: getattr(writing.options, key) for key in Rules._fields if key != "end_ids"}
    return rules | {"end_ids": writing.end_ids}, {key: getattr(writing.options, key) for key in SEARCH}


def _sizes_of(signature, stepwise):
    """The sizes where they are fixed: a whole source, and room for all tokens that are read."""
    num_new, max_length = signature.function.options.max_new_tokens, signature.reads.get("max_length")
    if signature.function.context is not None:
        length = stepwise.context_length if max_length is None else max_length
        return {"source": length, "entries": num_new, "tokens": [1]}
    width = min(PROMPT_WIDTH, max_length)
    longest = -(-max_length // width) * width  # of the steps that read a prompt
    return {"source": None, "entries": longest + num_new - 1, "tokens": sorted({1, width})}


def _step(options, stepwise, sizes):
    """The function `step`, for any number of rows and entries, or for the fixed `sizes`."""
    inputs = {name: tf.TensorSpec([None, None], tf.int32) for name in ("token_ids", "padding_mask")}
    if stepwise.entries:
        inputs |= {"visible": inputs["token_ids"], "index": tf.TensorSpec([], tf.int32)}
    for number, (heads, width) in enumerate(stepwise.entries):
        inputs[f"past_{number:02}"] = tf.TensorSpec([None, heads, None, width], tf.float32)
    for name, (kind, shape) in (stepwise.contexts | stepwise.states).items():
        inputs[name] = tf.TensorSpec(shape, kind)

    def shape_of(name, rows, count):
        if name.startswith("context"):
            return _fixed(inputs[name].shape, 1, sizes["source"])
        length = count if name in ("token_ids", "padding_mask") else sizes["entries"]
        return _fixed(inputs[name].shape, rows, length)

    cases = {(1, count) for count in sizes["tokens"]} | {(options.beam_size, 1)}
    shapes = {
        f"rows_{rows}_tokens_{count}": {name: shape_of(name, rows, count) for name in inputs}
        for rows, count in sorted(cases)
    }
    return FrozenFunction(stepwise.step, inputs, shapes=shapes)


def _fixed(shape, rows, length):
    """`shape` with `rows` for its first axis and `length` for its other unknown sizes."""
    sizes = [length if size is None else size for size in shape]
    return [rows, *sizes[1:]] if sizes else []
