"""Tasks that write texts, as model, tokenizers and decoding apart, for formats that hold no TensorFlow."""

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
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.generation import Stepwise
from keras_tfm.tasks.signatures import ServedWriter
from keras_tfm.tasks.text.text_signature import (
    FIRST_CHARACTER,
    made_up_texts,
    tokenizer_reads,
    write_tokenizer,
)


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
        stop=task.config.decoding.stop,
    )


def served_generator(
    task: Any, max_new_tokens: int | None = None, stop: str | Iterable[str] | None = None, **options: Any
) -> ServedWriter:
    """A `TextGenerator` that decodes with these `options`; a prompt may have as many tokens as leave room for
    the new ones.
    """
    if task.tokenizer is None:
        raise ValueError("A generator without a tokenizer is exported as a SavedModel alone.")
    stop = task._stops(stop)
    task.config.decoding.refuse_whole_lengths(max_new_tokens=max_new_tokens, **options)
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
        answer=functools.partial(task.generate, max_new_tokens=chosen.max_new_tokens, stop=stop, **options),
        repeats=True,
        stop=stop,
    )


def served_captioner(task: Any, max_new_tokens: int | None = None, **options: Any) -> ServedWriter:
    """A `Captioner` that decodes with these `options` of `generate`."""
    refuse_eight_bits(task)
    images = task.signature_of(lambda images: {}, {})

    def score(image: np.ndarray, ids: list[int]) -> np.ndarray:
        given = {"images": task.prepare(image[None]), "decoder_token_ids": before(task._start_id, ids)}
        return scores_of(task.model(given), ids)

    return ServedWriter(
        model=task.model,
        has_source=True,
        max_length=task.max_length,
        start_id=task._start_id,
        end_ids=task._stop.end_ids,
        options=task._options(max_new_tokens, **options),
        inputs=images.inputs,
        stepwise=functools.partial(
            Stepwise, task.model, {"images": task.prepare(np.zeros((1, *task.image_shape), "float32"))}
        ),
        context=lambda inputs: {"images": task.prepare(inputs["images"])},
        reads=images.reads,
        spelling=spelling_of(task.tokenizer),
        write_files=lambda folder: write_symbols(task.tokenizer, folder),
        examples=images.examples,
        encode=lambda images: [image.astype("float32") / 255 for image in images],
        answer=lambda images: task.generate(np.stack(images), max_new_tokens, **options),
        score=score,
    )


def _served(task: Any, reads: dict[str, Any], target: Tokenizer, **entries: Any) -> ServedWriter:
    refuse_eight_bits(task)
    has_source = "decoder_token_ids" in task.model.input
    inputs = {name: tf.TensorSpec([None, None], tf.int32) for name in ("token_ids", "padding_mask")}

    def context(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**inputs, "padding_mask": inputs["padding_mask"] > 0}

    def write_files(folder: pathlib.Path) -> None:
        write_symbols(target, folder)
        write_tokenizer(task.tokenizer, folder)

    def score(row: list[int], ids: list[int]) -> np.ndarray:
        given = {"token_ids": [row], "decoder_token_ids": before(entries["start_id"], ids)}
        if not has_source:
            given = {"token_ids": [row + ids[:-1]]}
        return scores_of(task.model({name: np.array(x, "int32") for name, x in given.items()}), ids)

    one_token = {name: tf.ones([1, 1], tf.int32) for name in inputs}
    return ServedWriter(
        model=task.model,
        reads={"kind": "prompts", "tokenizer": tokenizer_reads(task.tokenizer), **reads},
        spelling=spelling_of(target),
        has_source=has_source,
        max_length=task.config.max_length if has_source else task.model.backbone.config.max_length,
        inputs=inputs if has_source else {},
        stepwise=functools.partial(Stepwise, task.model, context(one_token) if has_source else None),
        context=context,
        write_files=write_files,
        score=score,
        **entries,
    )


def refuse_eight_bits(task: Any) -> None:
    """Raise ValueError if the weights are in 8 bits: formats round those of 32 bits by themselves."""
    if task.quantization() is not None:
        raise ValueError("The weights are in 8 bits already: export the RUN that they were made from.")


def before(start_id: int, ids: list[int]) -> np.ndarray:
    """What a decoder reads to predict `ids`: (1, T)."""
    return np.array([[start_id, *ids[:-1]]], "int32")


def scores_of(logits: tf.Tensor, ids: list[int]) -> np.ndarray:
    """log p of the `ids` by the last of the logits (1, T, V)."""
    scores = keras.ops.log_softmax(keras.ops.cast(logits[0, -len(ids) :], "float32"))
    return np.take_along_axis(np.array(scores), np.array(ids)[:, None], axis=1)[:, 0]


def spelling_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """The arguments of `keras_tfm.serving.tokens.Spelling`."""
    _, unknown, rule = spelled(tokenizer)
    silent = list(tokenizer.silent_ids)
    return {"end": tokenizer.end_id, "silent": silent, "unknown": unknown.decode(), "rule": rule}


def write_symbols(tokenizer: Tokenizer, folder: pathlib.Path) -> None:
    """Write symbols.json, what each id is spelled as."""
    text = json.dumps([symbol.decode("latin-1") for symbol in spelled(tokenizer)[0]])
    (folder / "symbols.json").write_text(text + "\n", "utf-8")


def rows_of(inputs: dict[str, Any]) -> list[list[int]]:
    """The ids (B, T) without their padding."""
    ids, mask = inputs["token_ids"].numpy(), inputs["padding_mask"].numpy()
    return [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)]


def spelled(tokenizer: Tokenizer) -> tuple[list[bytes], bytes, str]:
    """The bytes of each id, of any other id, and the rule of `keras_tfm.serving.tokens.Spelling`."""
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
