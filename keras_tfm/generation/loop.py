"""The decoding loop: one traced `while_loop` around a model's `start` and `step`.

The protocol, all that the loop knows of a model (encoder-decoder, decoder-only or recurrent):

    cache = model.start(batch_size, max_length, context)      context: {"token_ids", ...} or None
    logits, cache = model.step(token_ids, cache)              (B, T) -> (B, T, V)

A cache is any nest of tensors whose shapes do not change from step to step.
"""

import tensorflow as tf


def greedy_decode(model, context, batch_size, max_length, start_id, end_id, pad_id=0):
    """Decode the likeliest token at each step until every row has ended: (B, 1 + max_length).

    A row is `start_id`, its tokens, `end_id` and `pad_id`s; one that does not end within
    `max_length` tokens is cut there. `max_length` is a number or a scalar tensor.
    """
    cache = model.start(batch_size, max_length, context)
    first = tf.fill([batch_size], start_id)
    # Time first: a step writes one row. (An empty batch has none: it ends before the first step.)
    token_ids = tf.concat([first[None], tf.fill([max_length, batch_size], pad_id)], axis=0)

    def unfinished(index, last, finished, token_ids, cache):
        return (index < max_length) & ~tf.reduce_all(finished)

    def advance(index, last, finished, token_ids, cache):
        logits, cache = model.step(last[:, None], cache)
        token = tf.argmax(logits[:, -1], axis=-1, output_type=tf.int32)  # (B,)
        token = tf.where(finished, pad_id, token)
        index = index + 1
        token_ids = tf.tensor_scatter_nd_update(token_ids, [[index]], token[None])
        return index, token, finished | (token == end_id), token_ids, cache

    state = (0, first, tf.zeros([batch_size], tf.bool), token_ids, cache)
    token_ids = tf.while_loop(unfinished, advance, state, parallel_iterations=1)[3]
    return tf.transpose(token_ids)  # (B, 1 + max_length)
