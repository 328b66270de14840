"""Private names of tensorflow-text 2.21."""

from tensorflow_text import SentencepieceTokenizer
from tensorflow_text.python.ops import sentencepiece_tokenizer

ATTRIBUTES: dict = {SentencepieceTokenizer: ("_model_resource",)}
READ: dict = {}


def sentencepiece_model(model, shared_name):
    """The resource of a SentencePiece `model` (bytes) for TensorFlow's kernels; equal names share one."""
    return sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(
        model=model, shared_name=shared_name
    )


def use_model(tokenizer, resource):
    """Let a `SentencepieceTokenizer` use the model of a trackable `resource` instead of its own."""
    tokenizer._model_resource = resource
