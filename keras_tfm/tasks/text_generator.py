"""Continuing texts by a language model that was trained on plain text."""

import codecs
import dataclasses
import functools
import math

import numpy as np
import tensorflow as tf
import tqdm

import keras_tfm.models
from keras_tfm.configs import Config
from keras_tfm.data.blocks import TextBlocks, hold_out_texts, read_texts
from keras_tfm.data.byte_pairs import ByteLevelTokenizer
from keras_tfm.data.epochs import Epochs
from keras_tfm.data.huggingface import read_huggingface_around
from keras_tfm.data.sources import fingerprint
from keras_tfm.data.text import Around, encode_prompts
from keras_tfm.data.tokenizer_kinds import load_tokenizer, train_tokenizer
from keras_tfm.generation import CompiledDecoding, DecodingOptions, EndTokens, StopSequences
from keras_tfm.generation.processors import require
from keras_tfm.heads.language_model import (
    LanguageModel,
    TokenCrossEntropy,
    token_accuracy,
    token_cross_entropy,
)
from keras_tfm.jit import jit_compile
from keras_tfm.tasks.decoding import DecodingDefaults, as_stops, check_ids, refused_prompts
from keras_tfm.tasks.task import (
    Task,
    describe_language_model,
    make_language_model,
    refuse_columns,
    refuse_rows,
)
from keras_tfm.training.fit import fit_best, trains
from keras_tfm.training.optimizers import AdamW
from keras_tfm.training.schedules import WarmupSchedule

NEW_TOKENS = 128  # that are generated unless something else is said
STOPS = 8  # sets of strings that end a text, whose compiled decoding is kept: those used last


@dataclasses.dataclass(frozen=True)
class TextGeneratorConfig(Config):
    """Files are documents, or several between which `separator` stands. A prompt begins one where
    `add_start`: the start token, which was learnt before each, stands before it. Without a tokenizer a task
    generates ids alone. `decoding` is how it writes unless a call says otherwise.
    """

    separator: str | None = None
    add_start: bool = False
    has_tokenizer: bool = True
    decoding: DecodingDefaults = dataclasses.field(default_factory=DecodingDefaults)


class TextGenerator(Task):
    """Continues texts by a decoder-only model: a `LanguageModel` over a `GPT2`, for example.

    `tokenizer` spells the tokens (`symbols`): a `ByteLevelTokenizer` or a `CharacterTokenizer`.
    """

    name = "generate"
    config_class = TextGeneratorConfig

    def __init__(self, model, tokenizer, config=None):
        size = model.backbone.config.vocabulary_size
        if tokenizer is not None and tokenizer.vocabulary_size > size:
            raise ValueError(
                f"The model's vocabulary holds {size} tokens, the tokenizer's {tokenizer.vocabulary_size}."
            )
        self.model = model
        self.tokenizer = tokenizer
        self.config = config or TextGeneratorConfig()
        self.max_length = model.backbone.config.max_length
        defaults = self.config.decoding
        check_ids(defaults, size)
        if tokenizer is None and not defaults.end_ids:
            raise ValueError("A generator without a tokenizer needs the `end_ids` of `config.decoding`.")
        self._end_ids: tuple = defaults.end_ids or (tokenizer.end_id,)
        self._pad_id: int = self._end_ids[0] if tokenizer is None else tokenizer.pad_id
        if defaults.pad_id is not None:
            self._pad_id = defaults.pad_id
        self._decoding = functools.lru_cache(maxsize=STOPS)(self._compiled_decoding)

    @classmethod
    def from_texts(
        cls, texts, size="tiny", vocabulary_size=8_000, tokenizer="bytes", separator=None, **changes
    ):
        """A generator with fresh weights and a tokenizer, "bytes" or "characters", trained on `texts`.

        `changes` replace fields of the configuration of GPT-2's `size`: `max_length`, the length of the
        blocks to train on and of the context, among them. Raises ValueError for what is unknown.
        """
        if tokenizer not in ("bytes", "characters"):
            raise ValueError(f"`tokenizer` must be bytes or characters; it is {tokenizer!r}.")
        tokenizer = train_tokenizer(texts, tokenizer, vocabulary_size)
        changes = {"vocabulary_size": tokenizer.vocabulary_size} | changes
        model = LanguageModel(keras_tfm.models.GPT2.from_size(size, **changes))
        return cls(model, tokenizer, TextGeneratorConfig(separator, add_start=len(texts) > 1))

    @classmethod
    def from_huggingface(cls, name):
        """The task in the folder `name`, or of this hub id, in which the tokenizer may be missing.

        Raises CheckpointError or DataError where something in it is not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface, read_decoding

        model, folder = from_huggingface(name), find_folder(name)
        if not isinstance(model, LanguageModel) or "decoder_token_ids" in model.input:
            raise CheckpointError(name, "architectures", "one of a language model", model.name)
        decoding, tokenizer, around = read_decoding(folder, False), None, Around([], [])
        if any((folder / file).exists() for file in ("tokenizer.json", "vocab.json")):
            tokenizer = ByteLevelTokenizer.from_huggingface(folder)
            around = read_huggingface_around(folder, tokenizer)
            if around not in (Around([], []), Around([tokenizer.start_id], [])):
                got = f"{around.before} and {around.after}"
                raise CheckpointError(folder, "post_processor", "at most a start token before a text", got)
        elif not decoding.end_ids:
            raise CheckpointError(folder / "config.json", "eos_token_id", "a token's id", "none")
        config = TextGeneratorConfig(None, bool(around.before), tokenizer is not None, decoding)
        try:
            return cls(model, tokenizer, config)
        except ValueError as error:
            raise CheckpointError(name, None, "tokens of the vocabulary", str(error)) from None

    def save_huggingface(self, folder, overwrite=False):
        """Write a new `folder` for `transformers`: config.json, generation_config.json, model.safetensors,
        tokenizer.json.

        Raises TypeError for a model or tokenizer that it does not know.
        """
        from keras_tfm.convert import save_huggingface, write_decoding

        decoding = dataclasses.replace(self.config.decoding, end_ids=self._end_ids, pad_id=self._pad_id)
        entries, writers = {"eos_token_id": self._end_ids[0]}, [write_decoding(decoding)]
        if self.tokenizer is not None:
            entries["bos_token_id"] = self.tokenizer.start_id
            save = self.tokenizer.save_huggingface
            if self.config.add_start and isinstance(self.tokenizer, ByteLevelTokenizer):
                save = functools.partial(save, add_start=True)
            writers.append(save)
        save_huggingface(self.model, folder, overwrite, entries, writers=writers)

    @trains
    def fit(
        self,
        texts,
        validation=None,
        *,
        epochs=20,
        minutes=None,
        batch_tokens=8192,
        epoch_batches=500,
        learning_rate=1e-3,
        weight_decay=0.1,
        patience=5,
        seed=0,
        run=None,
        save_minutes=10,
        resume=False,
        overwrite=False,
        tensorboard=False,
    ):
        """Train on the strings `texts`, a document each, and keep the best epoch: {measure: [an epoch's]}.

        `validation` texts judge the epochs; by default 2 % of the texts at random, at most 500, are held
        out, of few texts the last tenth of each. An epoch is a pass over the text, or `epoch_batches` where
        a pass has more; the next goes on from there. The learning rate warms up over an epoch, at most 2,000
        steps, or over a tenth of the `minutes`. With `run` the best task so far stands in that folder, new or
        to `resume`, with checkpoints after every epoch and every `save_minutes`, metrics.csv and, with
        `tensorboard`, logs/; training stops after `patience` epochs without progress, or `minutes` in all.
        """
        if validation is None:
            texts, validation = hold_out_texts(texts, seed)
        batches = Epochs.of(self._blocks(texts, batch_tokens, seed=seed), epoch_batches)
        judge = self._blocks(validation, batch_tokens, min_batches=1)
        settings = {
            "batch_tokens": batch_tokens,
            "epoch_batches": epoch_batches,
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "seed": seed,
            "data": fingerprint(texts),
        }
        return fit_best(
            self.model,
            batches,
            judge.dataset(),
            schedule=WarmupSchedule(learning_rate, min(2_000, batches.num_batches)),
            optimizer=lambda schedule, **averages: AdamW(
                schedule, weight_decay, 0.9, 0.99, 1e-8, clipnorm=1.0, **averages
            ),
            objective={
                "loss": TokenCrossEntropy(),
                "weighted_metrics": [token_cross_entropy, token_accuracy],
            },
            monitor="val_token_cross_entropy",
            counts=("characters", sum(map(len, texts)), sum(map(len, validation))),
            epochs=epochs,
            minutes=minutes,
            patience=patience,
            run=run,
            save=self.save,
            save_minutes=save_minutes,
            resume=resume,
            overwrite=overwrite,
            tensorboard=tensorboard,
            settings=settings,
        )

    def _blocks(self, texts, batch_tokens=8192, **options):
        return TextBlocks(
            texts, self.tokenizer, max_length=self.max_length, batch_tokens=batch_tokens, **options
        )

    def evaluate(self, texts):
        """How well `texts`, cut into blocks of the model's length, are predicted.

        "loss" is the cross-entropy in nats a token, ends included, "perplexity" its exponential,
        "bits_per_byte" the whole cost by the texts' bytes, which tokenizers leave comparable.
        """
        blocks = self._blocks(texts, min_batches=1)

        @tf.function(autograph=False, jit_compile=jit_compile())
        def cost(inputs, labels, weights):
            logits = self.model(inputs, training=False)
            return tf.reduce_sum(weights * token_cross_entropy(labels, logits))

        is_quick = blocks.num_batches < 20
        bar = tqdm.tqdm(blocks.dataset(), total=blocks.num_batches, unit="batch", disable=is_quick)
        nats = float(np.sum([cost(*batch).numpy() for batch in bar], dtype="float64"))
        loss = nats / blocks.num_tokens
        return {
            "loss": round(loss, 4),
            "perplexity": round(float(np.exp(loss)), 3),
            "bits_per_byte": round(nats / math.log(2) / max(1, blocks.num_bytes), 4),
            "tokens": blocks.num_tokens,
        }

    def read_examples(self, paths, columns=None):
        """What `evaluate` takes, from files: texts."""
        refuse_columns(columns, "plain text has no columns")
        return read_texts(paths, self.config.separator)

    def generate(self, prompts, max_new_tokens=None, batch_size=64, stop=(), **options):
        """The strings `prompts` with their continuations, of at most `max_new_tokens` tokens (default: 128,
        or what the context leaves).

        `options` are the fields of `DecodingOptions`: `beam_size`, `temperature`, `seed`, ... A text ends
        as soon as one of the strings `stop` stands in its continuation. Bytes that are no UTF-8 become
        U+FFFD. Raises ValueError, naming its row, for a prompt that is empty or leaves no room.
        """
        prompts, answers, decoding = list(prompts), [], self._decoding(as_stops(stop))
        refuse_rows(self.refusals(prompts, max_new_tokens, **options))
        with tqdm.tqdm(total=len(prompts), unit="text", disable=len(prompts) <= batch_size) as bar:
            for first in range(0, len(prompts), batch_size):
                some = prompts[first : first + batch_size]
                inputs, chosen = self._prepare(some, max_new_tokens, **options)
                if chosen.seed is not None and first:
                    chosen = dataclasses.replace(chosen, seed=(chosen.seed + first) % 2**31)
                token_ids = decoding(chosen, **inputs)[:, inputs["token_ids"].shape[1] :]
                texts = self.tokenizer.detokenize(token_ids).numpy()
                answers += [a + b.decode("utf-8", "replace") for a, b in zip(some, texts, strict=True)]
                bar.update(len(some))
        return answers

    predict = generate

    def stream(self, prompt, max_new_tokens=None, stop=(), **options):
        """Yield the continuation of the string `prompt` in pieces, as soon as they are generated.

        The arguments are those of `generate`; together the pieces are what it adds. No beam search.
        """
        refuse_rows(self.refusals([prompt], max_new_tokens, **options))
        inputs, chosen = self._prepare([prompt], max_new_tokens, **options)
        symbols = self.tokenizer.symbols
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        for (token_id,) in self._decoding(as_stops(stop)).stream(chosen, **inputs):
            if token_id == self.tokenizer.end_id:  # other ends are text
                break
            spelled = symbols[token_id] if token_id < len(symbols) else "\ufffd".encode()
            if piece := decode(spelled):
                yield piece
        if rest := decode(b"", True):
            yield rest

    def generate_ids(self, token_ids, padding_mask=None, max_new_tokens=None, **options):
        """Prompts (B, P), padded on the left where `padding_mask` is False, and their continuations:
        (B, P + max_new_tokens), padded after an end.

        `options` as in `generate`. Raises ValueError for ids outside the vocabulary, and for no prompt.
        """
        token_ids = np.asarray(token_ids)
        if token_ids.ndim != 2 or not token_ids.shape[1]:
            raise ValueError(f"`token_ids` must be (B, P), P at least 1; its shape is {token_ids.shape}.")
        size = self.model.backbone.config.vocabulary_size
        if token_ids.size and (token_ids.min() < 0 or token_ids.max() >= size):
            raise ValueError(
                f"`token_ids` must lie in [0, {size}); they span {token_ids.min()} to {token_ids.max()}."
            )
        chosen = self._options(token_ids.shape[1], max_new_tokens, **options)
        return self._decoding(())(chosen, token_ids, padding_mask).numpy()

    def refusals(self, examples, max_new_tokens=None, **options):
        if self.tokenizer is None:
            raise ValueError("A generator without a tokenizer continues ids alone: use `generate_ids`.")
        self._options(1 + self.config.add_start, max_new_tokens, **options)  # refuses what no prompt allows
        return refused_prompts(
            examples, self.tokenizer, self.config.add_start, self.max_length, max_new_tokens
        )

    def _prepare(self, prompts, max_new_tokens=None, **options):
        """The inputs and the options of decoding."""
        texts = tf.constant([prompt.encode() for prompt in prompts])
        inputs = encode_prompts(texts, self.tokenizer, self.config.add_start)
        return inputs, self._options(inputs["token_ids"].shape[1], max_new_tokens, **options)

    def _options(self, length, max_new_tokens=None, **options):
        room = self.max_length - length
        if room < 1:
            raise ValueError(
                f"A prompt has {length} tokens; the model holds {self.max_length}, new ones too."
            )
        if max_new_tokens is not None:
            rule = f"must be at most {room}, what a prompt of {length} tokens leaves of {self.max_length}"
            require("max_new_tokens", max_new_tokens, lambda n: n <= room, rule, whole=True)
        chosen = self.config.decoding.choose(length, max_new_tokens=max_new_tokens, **options)
        return DecodingOptions(min(room, chosen.pop("max_new_tokens", NEW_TOKENS)), **chosen)

    def _compiled_decoding(self, stop):
        return CompiledDecoding(self.model, self._stop(stop), self._pad_id, max_length=self.max_length)

    def _stop(self, strings):
        """What ends a text: one of the `strings`, or an end token."""
        if not strings:
            return EndTokens(*self._end_ids)
        unused = self.model.backbone.config.vocabulary_size - len(self.tokenizer.symbols)
        symbols = [*self.tokenizer.symbols, *[b""] * unused]
        return StopSequences([string.encode() for string in strings], symbols, self._end_ids)

    def export_endpoints(self, max_new_tokens=NEW_TOKENS, stop=(), **options):
        """`serving_default(text)`, decoded by `options`, and `generate(text, temperature, top_p, seed)`."""
        stop = self._stop(as_stops(stop))
        room = self._options(1, max_new_tokens).max_new_tokens

        def answer(text, **options):
            inputs = encode_prompts(text, self.tokenizer, self.config.add_start)
            length = tf.shape(inputs["token_ids"])[1]
            checks = [
                tf.debugging.assert_none_equal(text, "", message="A prompt is empty."),
                tf.debugging.assert_less_equal(
                    length + room, self.max_length, f"Prompt and {room} new tokens exceed {self.max_length}."
                ),
            ]
            with tf.control_dependencies(checks):
                inputs = {name: tf.identity(x) for name, x in inputs.items()}
            chosen = DecodingOptions(**self.config.decoding.choose(1, **options) | {"max_new_tokens": room})
            decoder = chosen.decoder(self.model, stop, self._pad_id)
            return {"text": text + self.tokenizer.detokenize(decoder(**inputs)[:, length:])}

        def sample(text, temperature, top_p, seed):
            checks = [
                tf.debugging.assert_positive(temperature, "`temperature` must be above 0."),
                tf.debugging.assert_positive(top_p, "`top_p` must lie in (0, 1]."),
                tf.debugging.assert_less_equal(top_p, 1.0, "`top_p` must lie in (0, 1]."),
            ]
            with tf.control_dependencies(checks):
                text = tf.identity(text)
            return answer(text, temperature=temperature, top_p=top_p, seed=seed)

        text = tf.TensorSpec([None], tf.string, "text")
        numbers = [tf.TensorSpec([], tf.float32, name) for name in ("temperature", "top_p")]
        return {
            "serving_default": (lambda text: answer(text, **options), [text]),
            "generate": (sample, [text, *numbers, tf.TensorSpec([], tf.int32, "seed")]),
        }

    def export_resources(self):
        return [self.tokenizer]

    def describe_model(self):
        return describe_language_model(self.model)

    def save_parts(self, folder):
        if self.tokenizer is not None:
            self.tokenizer.save(folder)

    @classmethod
    def load_parts(cls, folder, config, model):
        tokenizer = load_tokenizer(folder) if config.has_tokenizer else None
        return cls(make_language_model(model), tokenizer, config)
