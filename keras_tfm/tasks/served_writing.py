"""Tasks that write texts, as model, tokenizers and decoding apart, for formats with decoding loops of their
own.
"""

import functools
import json
import pathlib
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.pairs import encode_prompts
from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.byte_pairs import ByteLevelTokenizer
from keras_tfm.data.tokenizers.characters import CharacterTokenizer
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.tasks.served_texts import check_tokenizer, made_up_texts
from keras_tfm.tasks.signatures import ServedWriter

FIRST_CHARACTER = 4  # the id of a `CharacterTokenizer`'s first character


def served_translator(task: Any, max_new_tokens: int | None = None, **options: Any) -> ServedWriter:
    """A `Translator` that decodes with these `options` of `generate`."""
    prompted, length = task._is_prompted, task.config.max_length
    before, after = [], [task.tokenizer.start_id] if prompted else [task.tokenizer.end_id]
    if task.config.around and not prompted:
        before, after = map(list, task.config.around[0])

    def encode(texts: list[str]) -> list[list[int]]:
        inputs = task._prompts(tf.constant(texts))
        return rows_of(inputs if prompted else inputs["context"])

    return _served(
        task,
        reads={"before": before, "after": after, "max_length": length, "cuts": True},
        target=task.target_tokenizer,
        options=task._options(max_new_tokens, **options),
        start_id=task._start_id,
        end_ids=task._stop.end_ids,
        examples=made_up_texts(task.tokenizer, length),
        encode=encode,
        answer=functools.partial(task.generate, max_new_tokens=max_new_tokens, **options),
    )


def served_generator(
    task: Any, max_new_tokens: int | None = None, stop: str | Iterable[str] = (), **options: Any
) -> ServedWriter:
    """A `TextGenerator` that decodes with these `options`; a prompt may have as many tokens as leave room for
    the new ones.
    """
    if task.tokenizer is None:
        raise ValueError("A generator without a tokenizer is exported as a SavedModel alone.")
    if stop:
        raise ValueError("`stop`: other formats than the SavedModel end a text by end tokens alone.")
    add_start = task.config.add_start
    chosen = task._options(1 + add_start, max_new_tokens, **options)
    longest = task.max_length - chosen.max_new_tokens
    texts = made_up_texts(task.tokenizer, max(1, longest - FIRST_CHARACTER))
    refused = task.refusals(texts, chosen.max_new_tokens)
    return _served(
        task,
        reads={
            "before": [task.tokenizer.start_id] * add_start,
            "after": [],
            "max_length": longest,
            "cuts": False,
        },
        target=task.tokenizer,
        options=chosen,
        start_id=task.tokenizer.start_id,
        end_ids=task._end_ids,
        examples=[text for row, text in enumerate(texts) if row not in refused],
        encode=lambda texts: rows_of(encode_prompts(tf.constant(texts), task.tokenizer, add_start)),
        answer=functools.partial(task.generate, max_new_tokens=chosen.max_new_tokens, **options),
        repeats=True,
    )


def _served(task: Any, reads: dict[str, Any], target: Tokenizer, **entries: Any) -> ServedWriter:
    if task.quantization() is not None:
        raise ValueError("The weights are in 8 bits already: export the RUN that they were made from.")
    has_source = "decoder_token_ids" in task.model.input
    symbols, unknown, rule = spelled(target)

    def write_reader(folder: pathlib.Path) -> None:
        text = json.dumps([symbol.decode("latin-1") for symbol in symbols])
        (folder / "symbols.json").write_text(text + "\n", "utf-8")
        if isinstance(task.tokenizer, SentencePieceTokenizer) and task.tokenizer.is_lossless:
            task.tokenizer.save(folder)
        elif not isinstance(task.tokenizer, CharacterTokenizer):
            task.tokenizer.save_huggingface(folder)

    def score(row: list[int], ids: list[int]) -> np.ndarray:
        inputs = {"token_ids": [row], "decoder_token_ids": [[entries["start_id"], *ids[:-1]]]}
        if not has_source:
            inputs = {"token_ids": [row + ids[:-1]]}
        logits = task.model({name: np.array(x, "int32") for name, x in inputs.items()})[0, -len(ids) :]
        scores = keras.ops.log_softmax(keras.ops.cast(logits, "float32"))
        return np.take_along_axis(np.array(scores), np.array(ids)[:, None], axis=1)[:, 0]

    return ServedWriter(
        model=task.model,
        reads={"tokenizer": tokenizer_reads(task.tokenizer), **reads},
        spelling={
            "end": target.end_id,
            "silent": list(target.silent_ids),
            "unknown": unknown.decode(),
            "rule": rule,
        },
        has_source=has_source,
        max_length=task.config.max_length if has_source else task.model.backbone.config.max_length,
        write_reader=write_reader,
        score=score,
        **entries,
    )


def rows_of(inputs: dict[str, Any]) -> list[list[int]]:
    """The ids (B, T) without their padding."""
    ids, mask = inputs["token_ids"].numpy(), inputs["padding_mask"].numpy()
    return [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)]


def tokenizer_reads(tokenizer: Tokenizer) -> dict[str, Any]:
    """The kind of `keras_tfm.serving.tokens.TOKENIZERS`, and its arguments; ValueError if there is none."""
    if isinstance(tokenizer, CharacterTokenizer):
        characters = "".join(tokenizer.tokens[FIRST_CHARACTER:])
        return {
            "kind": "characters",
            "characters": characters,
            "first": FIRST_CHARACTER,
            "unknown": tokenizer.unknown_id,
        }
    if isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.is_lossless:
        return {"kind": "sentencepiece"}
    check_tokenizer(tokenizer)
    ordinary = isinstance(tokenizer, ByteLevelTokenizer) and tokenizer.mask_id is None
    return {"kind": "tokenizers", "ordinary": ordinary}


def spelled(tokenizer: Tokenizer) -> tuple[list[bytes], bytes, str]:
    """What each id is spelled as, what any other id, and the rule of `keras_tfm.serving.tokens.Spelling`."""
    if isinstance(tokenizer, BERTTokenizer):
        begins = tokenizer.begins_word.numpy()
        words = [token.removeprefix("##").encode() for token in tokenizer.tokens]
        symbols = [b" " * bool(begin) + word for begin, word in zip(begins, words, strict=True)]
        return symbols, symbols[tokenizer.unknown_id], "words"
    symbols = tokenizer.symbols
    if isinstance(tokenizer, SentencePieceTokenizer):
        rule = "lossless" if tokenizer.is_lossless else "pieces"
        return symbols, symbols[tokenizer.unknown_id], rule
    return symbols, "\ufffd".encode(), "plain"
