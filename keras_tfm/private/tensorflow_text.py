"""tensorflow-text 2.21, and its private names. Imported late: few need it, and it may be missing."""

import tensorflow as tf

try:
    import tensorflow_text as tf_text
    from tensorflow_text.python.ops import regex_split_ops, sentencepiece_tokenizer
except ImportError as error:
    raise ImportError(
        f"expected tensorflow-text, which reads texts in a SavedModel or another graph; got: {error} "
        "(pip install tensorflow-text, of TensorFlow's minor version; other formats need none)"
    ) from error

ATTRIBUTES: dict = {tf_text.SentencepieceTokenizer: ("_model_resource",)}
READ: dict = {regex_split_ops.regex_split_with_offsets: "99cc378b562548c2"}


def split(strings, delimiters, kept=""):
    """The parts (B, None) into which matches of the expression `delimiters` split strings (B,); delimiters
    that match `kept` are parts too. Also where each part begins and ends, in bytes, int64. The kernel's row
    splits are not checked again: tensorflow-text does so in 200 operations.
    """
    parts, begins, ends, splits = regex_split_ops.gen_regex_split_ops.regex_split_with_offsets(
        strings, f"({delimiters})", f"({kept})"
    )
    parts = tf.RaggedTensor.from_row_splits(parts, splits, validate=False)
    return parts, parts.with_flat_values(begins), parts.with_flat_values(ends)


def sentencepiece_model(model, shared_name):
    """The resource of a SentencePiece `model` (bytes) for TensorFlow's kernels; equal names share one."""
    return sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(
        model=model, shared_name=shared_name
    )


def use_model(tokenizer, resource):
    """Let a `SentencepieceTokenizer` use the model of a trackable `resource` instead of its own."""
    tokenizer._model_resource = resource
