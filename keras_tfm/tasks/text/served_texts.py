"""Tasks that read texts, as functions of token ids, for formats that hold no tokenizer."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.encoding import Ragged, model_inputs
from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.byte_pairs import ByteLevelTokenizer
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.tasks.signatures import Arrays, Served

NUM_EXAMPLES = 8


def served_texts(
    tokenizer: Tokenizer,
    max_length: int,
    names: Collection[str],
    run: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
    encode: Callable[[list], Ragged],
    answers: dict[str, Any],
    kind: str = "texts",
    pairs: bool = False,
    marks: str = "",
) -> Served:
    """A `Served` of texts, of pairs of them, or (kind "words") of lists of words.

    Args:
        tokenizer, max_length: what makes tokens of a text, and how many are read.
        names: of the model's inputs.
        run: {input: (B, T)} to {output: tensor}, in a graph.
        encode: raw inputs as ragged "token_ids" and "segment_ids".
        answers: see `Served`.
        marks: of sentences that come as one string, the words of their own at the ends of others.

    Raises:
        ValueError: if the tokenizer has no counterpart outside TensorFlow.
    """
    check_tokenizer(tokenizer)
    names = [name for name in ("token_ids", "segment_ids", "padding_mask") if name in names]

    def function(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        masks = {name: x > 0 for name, x in inputs.items() if name == "padding_mask"}
        return run({**inputs, **masks})

    def arrays(examples: list) -> Arrays:
        packed = model_inputs(encode(examples), tokenizer.pad_id)
        return {name: packed[name].numpy().astype("int32") for name in names}

    reads = {
        "kind": kind,
        "inputs": names,
        "max_length": max_length,
        "start": tokenizer.start_id,
        "end": tokenizer.end_id,
        "pad": tokenizer.pad_id,
        "between": list(tokenizer.between_ids),
        "pairs": pairs,
    }
    if kind == "words":
        reads |= {"unknown": tokenizer.unknown_id} | ({"marks": marks} if marks else {})
        if isinstance(tokenizer, ByteLevelTokenizer):
            tokenizer = tokenizer.with_prefix_space()
            reads |= {"empty": " "}
    texts = made_up_texts(tokenizer, max_length)
    examples: list = [text.split() for text in texts] if kind == "words" else texts
    return Served(
        function=function,
        inputs={name: tf.TensorSpec([None, None], tf.int32) for name in names},
        reads={name: value for name, value in reads.items() if kind == "texts" or name != "pairs"},
        answers=answers,
        write_reader=tokenizer.save_huggingface,
        examples=list(zip(texts, texts[::-1], strict=True)) if pairs else examples,
        encode=arrays,
    )


def check_tokenizer(tokenizer: Tokenizer) -> None:
    """Raise ValueError unless the library `tokenizers` computes the same."""
    is_known = isinstance(tokenizer, BERTTokenizer | ByteLevelTokenizer)
    if isinstance(tokenizer, SentencePieceTokenizer):
        is_known = not tokenizer.is_lossless
    if not is_known:
        raise ValueError(
            f"A {type(tokenizer).__name__} trained here works in TensorFlow alone: export a SavedModel."
        )


def made_up_texts(tokenizer: Tokenizer, max_length: int) -> list[str]:
    """Texts of random tokens, of one token to as many as the model reads and more, the same each time."""
    random = np.random.default_rng(0)
    special = {getattr(tokenizer, f"{name}_id", None) for name in ("pad", "start", "end", "unknown", "mask")}
    ids = [i for i in range(tokenizer.vocabulary_size) if i not in special]
    lengths = np.geomspace(1, max_length + 4, NUM_EXAMPLES).astype(int)
    rows = [random.choice(ids, length).tolist() for length in lengths]
    return [
        text.decode("utf-8", "replace") for text in tokenizer.detokenize(tf.ragged.constant(rows)).numpy()
    ]
