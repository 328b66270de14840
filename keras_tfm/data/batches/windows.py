"""Questions and long texts, as windows that a model can read (Devlin et al. 2019, the released code)."""

import tensorflow as tf

from keras_tfm.data.batches.encoding import Ragged, join_pairs, surround
from keras_tfm.data.tokenizers.tokenizer import Tokenizer


def longest_question(tokenizer: Tokenizer, max_length: int, stride: int) -> int:
    """How many tokens a question may have, so that `stride` tokens of its context fit into the window."""
    return max_length - stride - tokenizer.num_added(2)


def question_windows(
    tokenizer: Tokenizer, max_length: int, stride: int, questions: tf.Tensor, contexts: tf.Tensor
) -> Ragged:
    """Windows of at most `max_length` tokens, [CLS] question [SEP] part of the context [SEP].

    Questions and contexts are strings (B,), valid UTF-8. A part of the context begins every `stride` tokens,
    until one reaches the context's end. W is the number of all windows.

        token_ids, segment_ids   (W, None)  int32   as `pack_texts` makes them
        starts, ends             (W, None)  int32   each token's bytes in its context; 0 and 0 for tokens
                                                    outside the context
        num_windows              (B,)       int32   windows of each question, at least one

    A question of more than `longest_question` tokens raises InvalidArgumentError. Runs in a graph.
    """
    question = tokenizer.tokenize(questions)
    most = longest_question(tokenizer, max_length, stride)
    message = f"A question has more than {most} tokens: too little room is left for its context."
    check = tf.debugging.assert_less_equal(question.row_lengths(), tf.constant(most, tf.int64), message)
    with tf.control_dependencies([check] if check is not None else []):
        room = most + stride - question.row_lengths()  # (B,)
    unique, places = tf.unique(contexts)  # several questions share a context
    pieces = [tf.gather(x, places) for x in tokenizer.tokenize_with_offsets(unique)]  # (B, pieces) each
    lengths = pieces[0].row_lengths()
    num_windows = tf.maximum(tf.constant(1, tf.int64), 1 - (room - lengths) // stride)  # (B,), rounded up
    firsts = tf.ragged.range(num_windows) * stride  # (B, windows)
    rows = firsts.value_rowids()  # (W,)
    firsts = firsts.flat_values
    sizes = tf.minimum(tf.gather(room, rows), tf.gather(lengths, rows) - firsts)
    firsts += tf.gather(pieces[0].row_starts(), rows)
    chosen = tf.ragged.range(firsts, firsts + sizes)  # (W, None)
    token_ids, starts, ends = (tf.gather(tf.cast(x.flat_values, tf.int32), chosen) for x in pieces)
    question = tf.gather(question, rows)
    front = surround(tf.zeros_like(question), [0], [0] * len(tokenizer.between_ids))
    starts, ends = (tf.concat([front, surround(x, [], [0])], axis=1) for x in (starts, ends))
    return {
        **join_pairs(tokenizer, question, token_ids),
        "starts": starts,
        "ends": ends,
        "num_windows": tf.cast(num_windows, tf.int32),
    }
