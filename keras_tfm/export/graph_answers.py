"""Answers in graphs of TensorFlow, by their "kind": a model's outputs in, what a SavedModel returns out.

An answer, made as the one of its kind in `keras_tfm.serving.answers.ANSWERS`, is a function of the model's
outputs, of what the reader knows of the rows, and of what was read. Plugins name theirs `graph-answer.KIND`.
"""

import tensorflow as tf

from keras_tfm.data.batches.encoding import pad
from keras_tfm.export import segments
from keras_tfm.export.graph_readers import valid
from keras_tfm.heads import best_spans
from keras_tfm.serving.tokens import symbols_of

LOWEST = -3.4e38  # replaces sums of two logits that must not be chosen


def as_arrays(folder, labels=None):
    """The outputs, beside the names of `labels`, for each row: servers want a row of every output for each
    example.
    """

    def answer(outputs, rows, *raw):
        if labels is None:
            return outputs
        names = tf.constant(labels, tf.string)
        return {**outputs, "labels": tf.tile(names[None], [tf.shape(raw[0])[0], 1])}

    return answer


def as_classes(folder, labels):
    """The likeliest of the `labels`, beside what `as_arrays` gives."""
    beside = as_arrays(folder, labels)

    def answer(outputs, rows, *raw):
        label = tf.gather(tf.constant(labels, tf.string), tf.argmax(outputs["probabilities"], -1))
        return {"label": label, **beside(outputs, rows, *raw)}

    return answer


def as_boxes(folder, labels):
    """The "boxes" of objects, the `labels` of their classes and the "scores", the surest first."""
    names = tf.constant(labels)

    def answer(outputs, rows, *raw):
        labels = tf.gather(names, outputs["classes"])
        return {"boxes": outputs["boxes"], "labels": labels, "scores": outputs["scores"]}

    return answer


def as_triplets(folder, labels, predicates):
    """Triplets, the surest first: "subjects", "predicates" and "objects" by their names, the boxes of both
    and the "scores".
    """
    names = {"subjects": labels, "predicates": predicates, "objects": labels}

    def answer(outputs, rows, *raw):
        return {**outputs, **{part: tf.gather(tf.constant(of), outputs[part]) for part, of in names.items()}}

    return answer


def as_tags(folder, labels, outside):
    """The likeliest of the `labels` at each word's first token, with spaces between; words that are not
    read have none.
    """
    names = tf.constant(labels)

    def answer(outputs, is_first, text):
        scores = outputs["scores"]
        is_first = is_first.to_tensor(0, shape=tf.shape(scores)[:2]) == 1
        tags = tf.gather(names, tf.ragged.boolean_mask(tf.argmax(scores, axis=-1), is_first))
        return {"tags": tf.strings.reduce_join(tags, axis=1, separator=" ")}

    return answer


def as_choice(folder):
    """The number of the likeliest choice, beside the "probabilities" of all."""

    def answer(outputs, count, text, choices):
        probabilities = tf.nn.softmax(tf.reshape(outputs["score"], [-1, count]))  # (B, C)
        return {
            "choice": tf.argmax(probabilities, -1, output_type=tf.int32),
            "probabilities": probabilities,
        }

    return answer


def as_filled(folder, blank):
    """The text with each `blank` replaced by the likeliest token; blanks that were not read stay."""
    symbols = tf.constant(symbols_of(folder))

    def answer(outputs, is_blank, text):
        words = tf.ragged.boolean_mask(tf.gather(symbols, outputs["ids"]), is_blank)
        parts = tf.strings.split(text, blank)  # one more than there are blanks
        missing = parts.row_lengths() - words.row_lengths() - 1  # blanks that were cut off
        blanks = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(missing)], blank), missing)
        words = tf.concat([words, blanks, tf.fill([parts.nrows(), 1], "")], axis=1)
        joined = parts.with_flat_values(parts.flat_values + words.flat_values)
        return {"text": tf.strings.reduce_join(joined, axis=1)}

    return answer


def as_span(folder, longest, threshold):
    """The likeliest part of the context, of `longest` tokens at most, or "" where none is likelier by
    `threshold`.
    """

    def answer(outputs, windows, question, context):
        start, end = outputs["start"], outputs["end"]  # (W, T)
        starts, ends = (pad(windows[name], *tf.unstack(tf.shape(start))) for name in ("starts", "ends"))
        is_context = ends > starts
        first, last, score = best_spans(start, end, is_context, longest)
        is_candidate = tf.concat([tf.ones_like(is_context[:, :1]), is_context[:, 1:]], axis=1)
        total = sum(tf.reduce_logsumexp(tf.where(is_candidate, x, LOWEST / 2), axis=1) for x in (start, end))
        null = start[:, 0] + end[:, 0]
        begin, limit = (tf.gather(x, place, batch_dims=1) for x, place in ((starts, first), (ends, last)))

        def by_question(x, fill=0.0):
            parts = tf.RaggedTensor.from_row_lengths(x, windows["num_windows"])
            width = tf.maximum(1, parts.bounding_shape(1, out_type=tf.int32))
            return pad(parts, parts.nrows(), width, fill)  # (B, windows)

        best = tf.argmax(by_question(score, LOWEST), axis=1)  # (B,)
        score, begin, limit, probability = (
            tf.gather(by_question(x, fill), best, batch_dims=1)
            for x, fill in ((score, LOWEST), (begin, 0), (limit, 0), (score - total, LOWEST))
        )
        texts = tf.strings.substr(valid(context), begin, limit - begin)
        texts = tf.strings.regex_replace(texts, r"^[\s\p{Z}]+|[\s\p{Z}]+$", "")
        if threshold is not None:
            least = tf.argmin(by_question(null, -LOWEST), axis=1)
            null, null_probability = (
                tf.gather(by_question(x), least, batch_dims=1) for x in (null, null - total)
            )
            is_none = null - score > threshold
            texts, probability = (
                tf.where(is_none, "", texts),
                tf.where(is_none, null_probability, probability),
            )
        return {"answer": texts, "score": tf.exp(probability)}

    return answer


def as_text(folder, tokenizer, repeats):
    """The ids as the `tokenizer` spells them; behind the text, which they continue, if it `repeats` that."""

    def answer(outputs, rows, *raw):
        text = tokenizer.detokenize(outputs["ids"])
        return {"text": raw[0] + text if repeats else text}

    return answer


ANSWERS = {
    "arrays": as_arrays,
    "classes": as_classes,
    "boxes": as_boxes,
    "triplets": as_triplets,
    "tags": as_tags,
    "choice": as_choice,
    "filled": as_filled,
    "span": as_span,
    "text": as_text,
    **segments.ANSWERS,
}
