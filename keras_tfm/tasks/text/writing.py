"""Tasks that write texts: the function of their signatures, which decodes, and how they are asked."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.pairs import left_padded
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.generation import CompiledDecoding, DecodingOptions, Stepwise
from keras_tfm.serving.answering import ReadExamples
from keras_tfm.serving.examples import check_batch_size, listed, refuse_rows
from keras_tfm.tasks.asking import AskedTask
from keras_tfm.tasks.signatures import Signature
from keras_tfm.tasks.text.decoding import ending, spelled
from keras_tfm.tasks.text.text_signature import tokenizer_reads, write_tokenizer

IDS = {name: tf.TensorSpec([None, None], tf.int32) for name in ("token_ids", "padding_mask")}  # (B, S)


@dataclasses.dataclass(frozen=True)
class Writing:
    """{input: tensor} to {"ids": (B, new tokens)} by `start` and `step` of a model, and by rules of decoding.

    Args:
        model: a `LanguageModel`, which reads a source, or prompts alone.
        tokenizer: what spells the ids.
        start_id, end_ids: the decoder's first token, and what ends a text. Behind its end stands the
            tokenizer's padding, which is not spelled, as a published padding token may be.
        stop: strings that end a text too.
        options: how it decodes.
        context: the source, {name: tensor}, of the inputs; None for prompts alone.
        sampled: the options for scalars `temperature`, `top_p` and `seed`, of a SavedModel that takes them.
    """

    model: Any
    tokenizer: Tokenizer
    start_id: int
    end_ids: tuple[int, ...]
    stop: tuple[str, ...]
    options: DecodingOptions
    context: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]] | None = None
    sampled: Callable[..., DecodingOptions] | None = None

    def __call__(self, inputs: Mapping[str, Any], decode: Callable | None = None) -> dict[str, tf.Tensor]:
        """The ids that `decode` writes, by default the options' decoder in a graph."""
        if decode is None:
            end = ending(self.stop, self.tokenizer, self.end_ids)
            decode = self.options.decoder(self.model, end, self.tokenizer.pad_id)
        begun = self.begun(inputs)
        return {"ids": decode(**begun)[:, tf.shape(begun["token_ids"])[1] :]}

    def begun(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What a decoder takes: what the texts begin with, padded on the left, and the source as context."""
        if self.context is None:
            return left_padded(**inputs)
        count = tf.shape(next(iter(inputs.values())))[0]
        return {"token_ids": tf.fill([count, 1], self.start_id), "context": self.context(dict(inputs))}

    def stepwise(self, inputs: Mapping[str, tf.TensorSpec]) -> Stepwise:
        """The model as functions `start` and `step`, for a signature's `inputs`."""
        one = {name: tf.ones([side or 1 for side in spec.shape], spec.dtype) for name, spec in inputs.items()}
        return Stepwise(self.model, self.context and self.context(one))


# Options of `DecodingOptions` that say how a text is searched for, which is not by drawing.
OF_SEARCH = ("beam_size", "length_penalty", "early_stopping", "contrastive_alpha", "draft")


def without_search(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the decoding `options` that hold for drawn tokens too."""
    return {name: value for name, value in options.items() if name not in OF_SEARCH}


class WritingTask(AskedTask):
    """A task that is asked for texts through its signature, whose function is a `Writing`. Abstract."""

    writes_texts = True

    def asked(self, prompts: Any, batch_size: int, **options: Any) -> ReadExamples:
        """The `prompts` beside the rows that they are read as; ValueError as from `answerable`."""
        check_batch_size(batch_size)
        refusals, _, asked = self.inspect(listed(prompts), **options)
        refuse_rows(refusals)
        return asked  # type: ignore[return-value]

    def write(
        self,
        asked: ReadExamples,
        writing: Writing,
        decoding: CompiledDecoding,
        batches: Iterable[tuple[list[int], DecodingOptions]],
    ) -> list[str]:
        """The answers to the prompts that were `asked`; `batches` are numbers of rows, and their options."""

        def run(options: DecodingOptions, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"ids": writing(inputs, functools.partial(decoding, options))["ids"].numpy()}

        plan = [(rows, functools.partial(run, options)) for rows, options in batches]
        return [answer["text"] for answer in self.ask(asked, len(asked) or 1, plan=plan)]


def prompts_signature(
    tokenizer: Tokenizer, writing: Writing, examples: list, repeats: bool = False, **reads: Any
) -> Signature:
    """The `Signature` of texts that are answered by texts; `reads` are arguments of the reader of prompts."""

    def write_files(folder: pathlib.Path) -> None:
        write_tokenizer(tokenizer, folder)
        write_symbols(writing.tokenizer, folder)

    return Signature(
        reads={"kind": "prompts", "tokenizer": tokenizer_reads(tokenizer), **reads},
        function=writing,
        inputs=IDS,
        answers=answers_of(writing.tokenizer, repeats),
        write_files=write_files,
        examples=examples,
        tokenizer=tokenizer,
    )


def source_of(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What an encoder takes of tokens, (B, S) each."""
    return {**inputs, "padding_mask": tf.cast(inputs["padding_mask"], tf.int32) > 0}


def answers_of(tokenizer: Tokenizer, repeats: bool = False) -> dict[str, Any]:
    """The answer of kind "text", as `keras_tfm.serving.answers.Written` takes it."""
    _, unknown, rule = spelled(tokenizer)
    return {
        "kind": "text",
        "end": tokenizer.end_id,
        "silent": list(tokenizer.silent_ids),
        "unknown": unknown.decode(),
        "rule": rule,
        "repeats": repeats,
        **({"replaced": [*map(list, tokenizer.replaced)]} if tokenizer.replaced else {}),
    }


def write_symbols(tokenizer: Tokenizer, folder: pathlib.Path) -> None:
    """Write symbols.json, what each id is spelled as."""
    text = json.dumps([symbol.decode("latin-1") for symbol in spelled(tokenizer)[0]])
    (folder / "symbols.json").write_text(text + "\n", "utf-8")
