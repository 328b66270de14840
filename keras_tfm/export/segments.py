"""Answers of segmentation in graphs: pixels of arrays as arrays of the model's size, of files as PNGs of each
file's own size. They take their function too, whose `found` says what an image shows by its outputs.
"""

import tensorflow as tf

from keras_tfm.data.sources.mask_files import encoded_numbers


def as_pixel_classes(folder, function, labels, values):
    """The `masks` of the model's size, whose "label_values" stand for the `labels`, beside the "scores" of
    their pixels; of files also a "png" each.
    """
    names, values = tf.constant(labels), tf.constant(values, tf.uint8)

    def answer(outputs, are_files, *raw):
        found, count = function.on_canvas(outputs["logits"]), tf.shape(raw[0])[0]
        pngs = {"png": tf.map_fn(of_image, outputs, fn_output_signature=TEXT)} if are_files else {}
        return {
            "masks": found["mask"],
            "scores": found["scores"],
            "labels": tf.tile(names[None], [count, 1]),
            "label_values": tf.tile(values[None], [count, 1]),
            **pngs,
        }

    def of_image(row):
        return png_of(function.found(**row)["mask"])

    return answer


def as_instances(folder, function, labels, most, shape, threshold):
    """All instances, their "masks" as a boolean array each, or as a "png" each, 255 inside."""

    def pngs(masks):
        return tf.map_fn(
            lambda mask: png_of(tf.where(mask, tf.constant(255, tf.uint8), 0)),
            masks,
            fn_output_signature=TEXT,
        )

    specs = {"masks": tf.TensorSpec((most, *shape), tf.bool), "png": tf.TensorSpec((most,), tf.string)}
    return _of_segments(function, labels, most, threshold, specs, pngs)


def as_panoptic(folder, function, labels, most, shape, threshold):
    """The map "segments" of their numbers from 1, 0 for none, or as the colours of a "png"."""
    specs = {"segments": tf.TensorSpec(shape, tf.int32), "png": TEXT}
    return _of_segments(function, labels, most, threshold, specs, encoded_numbers)


def _of_segments(function, labels, most, threshold, pixels, pngs):
    """The "labels", "scores", "areas" and "boxes" of segments beside their pixels, the first of the specs
    `pixels`, or the second, of files: what `pngs` makes of the first. Zeros, or empty texts, fill all up to
    `most` segments.
    """
    names, threshold = tf.constant(labels), tf.constant(threshold, tf.float32)
    specs = {
        "labels": tf.TensorSpec((most,), tf.string),
        "scores": tf.TensorSpec((most,), tf.float32),
        "areas": tf.TensorSpec((most,), tf.int32),
        "boxes": tf.TensorSpec((most, 4), tf.float32),
    }
    covers, png = pixels

    def answer(outputs, are_files, *raw):
        name = png if are_files else covers
        own = {**specs, name: pixels[name]}

        def of_image(row):
            found = function.found(**row, threshold=threshold)
            found["labels"] = tf.gather(names, found["classes"])
            if are_files:
                found[png] = pngs(found[covers])
            return {name: filled(found[name], spec) for name, spec in own.items()}

        return tf.map_fn(of_image, outputs, fn_output_signature=own)

    return answer


def filled(x, spec):
    """`x` (N, ...) with zeros, or empty texts, up to the rows of `spec`; a scalar as it is."""
    if spec.shape.rank:
        filling = [[0, spec.shape[0] - tf.shape(x)[0]], *[[0, 0]] * (spec.shape.rank - 1)]
        x = tf.pad(x, filling, constant_values="" if x.dtype == tf.string else 0)
    return tf.ensure_shape(x, spec.shape)


def png_of(values):
    """Values (H, W), 8-bit, as a PNG of grey values."""
    return tf.io.encode_png(values[..., None])


TEXT = tf.TensorSpec((), tf.string)
ANSWERS = {"pixel-classes": as_pixel_classes, "instances": as_instances, "panoptic": as_panoptic}
