"""The signatures of tasks that read texts: the arguments of their readers, and which files these need."""

import pathlib
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.byte_pairs import ByteLevelTokenizer
from keras_tfm.data.tokenizers.characters import CharacterTokenizer
from keras_tfm.data.tokenizers.residues import ResidueTokenizer
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.tasks.signatures import Signature

NUM_EXAMPLES = 8
FIRST_CHARACTER = 4  # the id of a `CharacterTokenizer`'s first character


def text_signature(
    tokenizer: Tokenizer,
    max_length: int,
    names: Collection[str],
    run: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
    answers: dict[str, Any],
    kind: str = "texts",
    **options: Any,
) -> Signature:
    """The `Signature` of texts, of pairs of them (`pairs=True`), of either (`pairs=None`), or of another
    `kind` of reader.

    Args:
        tokenizer, max_length: what makes tokens of a text, and how many are read.
        names: of the model's inputs.
        run: {input: (B, T)} to {output: tensor}, in a graph.
        answers: see `Signature`.
        options: further arguments of the reader.
    """
    by = tokenizer_reads(tokenizer)
    names = [name for name in ("token_ids", "segment_ids", "padding_mask") if name in names]

    def function(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        masks = {name: tf.cast(x, tf.bool) for name, x in inputs.items() if name == "padding_mask"}
        return run({**inputs, **masks})

    if kind == "words":
        options["unknown"] = tokenizer.unknown_id
        if isinstance(tokenizer, ByteLevelTokenizer):
            tokenizer = tokenizer.with_prefix_space()
            options["empty"] = " "
    texts = made_up_texts(tokenizer, max_length)
    if options.get("pairs", False) is None:
        texts = [text.replace("\t", " ") for text in texts]
    examples: list = [text.split() for text in texts] if kind == "words" else texts
    return Signature(
        reads={
            "kind": kind,
            "tokenizer": by,
            "inputs": names,
            "max_length": max_length,
            "start": tokenizer.start_id,
            "end": tokenizer.end_id,
            "pad": tokenizer.pad_id,
            "between": list(tokenizer.between_ids),
            **options,
        },
        function=function,
        inputs={name: tf.TensorSpec([None, None], tf.int32) for name in names},
        answers=answers,
        write_files=lambda folder: write_tokenizer(tokenizer, folder),
        examples=list(zip(texts, texts[::-1], strict=True)) if options.get("pairs") else examples,
        tokenizer=tokenizer,
    )


def tokenizer_reads(tokenizer: Tokenizer) -> dict[str, Any]:
    """The kind of `keras_tfm.serving.tokens.TOKENIZERS`, and its arguments; ValueError if there is none."""
    if isinstance(tokenizer, CharacterTokenizer):
        characters = "".join(tokenizer.tokens[FIRST_CHARACTER:])
        unknown = tokenizer.unknown_id
        return {"kind": "characters", "characters": characters, "first": FIRST_CHARACTER, "unknown": unknown}
    if isinstance(tokenizer, ResidueTokenizer):
        return {"kind": "residues", "vocabulary": tokenizer.tokens, "unknown": tokenizer.unknown_id}
    if isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.is_lossless:
        return {"kind": "sentencepiece"}
    if not isinstance(tokenizer, BERTTokenizer | ByteLevelTokenizer | SentencePieceTokenizer):
        raise ValueError(
            f"A {type(tokenizer).__name__} reads texts in graphs alone; a task needs a tokenizer of another "
            "class, such as BERTTokenizer."
        )
    is_silent = isinstance(tokenizer, ByteLevelTokenizer) and tokenizer.mask_id is None
    found = {token.content for token in tokenizer.added}
    ordinary = [name for name in tokenizer.special_tokens if name not in found] if is_silent else []
    return {"kind": "tokenizers", "ordinary": ordinary}


def write_tokenizer(tokenizer: Tokenizer, folder: pathlib.Path) -> None:
    """Write the file that the reader of `tokenizer_reads` needs, if it needs one."""
    if isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.is_lossless:
        tokenizer.save(folder)
    elif not isinstance(tokenizer, CharacterTokenizer | ResidueTokenizer):
        tokenizer.save_huggingface(folder)


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
