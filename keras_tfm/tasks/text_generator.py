"""Continuing texts by a language model that was trained on plain text."""

import codecs
import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import keras
import numpy as np
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Config, Count, Length, Option
from keras_tfm.data.batches.blocks import TextBlocks, hold_out_texts
from keras_tfm.data.batches.epochs import Batches
from keras_tfm.data.batches.pairs import encode_prompts
from keras_tfm.data.batches.streams import StreamBlocks
from keras_tfm.data.sources.documents import read_texts
from keras_tfm.data.sources.text_stream import TextStream
from keras_tfm.data.tokenizers.byte_pairs import ByteLevelTokenizer
from keras_tfm.data.tokenizers.huggingface import read_huggingface_special_tokens
from keras_tfm.data.tokenizers.kinds import load_tokenizer, train_tokenizer
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.generation import CompiledDecoding, DecodingOptions, EndTokens, StopSequences
from keras_tfm.generation.processors import require
from keras_tfm.heads import LanguageModel, TokenCrossEntropy, token_accuracy, token_cross_entropy
from keras_tfm.log import Bar
from keras_tfm.tasks.continuations import Continuations
from keras_tfm.tasks.decoding import DecodingDefaults, as_stops, check_ids, check_token_ids, refused_prompts
from keras_tfm.tasks.learning import ROWS, ModelOptions
from keras_tfm.tasks.measures import sums_over
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.streams import EPOCH_BATCHES, Texts, read_or_stream, sample_of
from keras_tfm.tasks.task import check_vocabulary, describe_language_model, make_language_model, refuse_rows
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.folder import Path
from keras_tfm.training.options import LanguageModelTraining

NEW_TOKENS = 128  # that are generated unless something else is said
STOPS = 8  # sets of strings that end a text, whose compiled decoding is kept: those used last


@dataclasses.dataclass(frozen=True)
class TextGeneratorConfig(Config):
    """Files are documents, or several between which `separator` stands. A prompt begins one where
    `add_start`: the start token, which was learnt before each, stands before it. Without a tokenizer a task
    generates ids alone. `decoding` is how it writes unless a call says otherwise.
    """

    separator: Annotated[
        str | None,
        Option(r"between a file's documents: \n\n for a blank line", default="it is one", has_escapes=True),
    ] = None
    add_start: bool = False
    has_tokenizer: bool = True
    decoding: DecodingDefaults = dataclasses.field(default_factory=DecodingDefaults)


@dataclasses.dataclass(frozen=True)
class GeneratorOptions(ModelOptions):
    """A GPT-2 with fresh weights, and its tokenizer."""

    set_here: ClassVar[Mapping[str, str]] = {"vocabulary_size": "--vocabulary"}

    size: Annotated[str, Option("a size of GPT-2")] = "tiny"
    tokenizer: Annotated[Literal["bytes", "characters"], Option("byte-level pairs, or characters")] = "bytes"
    vocabulary_size: Annotated[
        Count, Option("tokens at most, fewer for small files", flag="--vocabulary")
    ] = 8_000
    max_length: Annotated[
        Length | None,
        Option("tokens of a block, and of prompt and continuation together", default="the size's"),
    ] = None

    def base(self) -> keras_tfm.models.GPT2Config:
        return keras_tfm.models.GPT2.config_of_size(self.size)


class TextGenerator(TrainableTask):
    """Continues texts by a decoder-only model: a `LanguageModel` over a `GPT2`, for example.

    `tokenizer` spells the tokens (`symbols`): a `ByteLevelTokenizer` or a `CharacterTokenizer`.
    """

    name = "generate"
    help = "train a language model on plain text, which continues texts"
    files = f"plain text (or .gz, .xz), a document each; or a text in {ROWS}"
    columns = (1,)
    unit = "texts"
    training = LanguageModelTraining(
        epochs=20, epoch_batches=500, batch_tokens=8_192, schedule="inverse-root", weight_decay=0.1
    )
    optimizer_options = {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-8, "clipnorm": 1.0}
    held_out = (0.02, 500)
    model_options = GeneratorOptions
    config_class = TextGeneratorConfig

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer | None, config: TextGeneratorConfig | None = None
    ):
        size = model.backbone.config.vocabulary_size
        if tokenizer is not None:
            check_vocabulary(model.backbone.config, tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self.config = config or TextGeneratorConfig()
        self.max_length = model.backbone.config.max_length
        defaults = self.config.decoding
        check_ids(defaults, size)
        if tokenizer is None and not defaults.end_ids:
            raise ValueError("A generator without a tokenizer needs the `end_ids` of `config.decoding`.")
        self._end_ids: tuple = defaults.end_ids or (self.tokenizer.end_id,)
        self._pad_id: int = self._end_ids[0] if tokenizer is None else tokenizer.pad_id
        if defaults.pad_id is not None:
            self._pad_id = defaults.pad_id
        self._decoding = functools.lru_cache(maxsize=STOPS)(self._compiled_decoding)

    @classmethod
    def from_texts(
        cls,
        texts: Texts,
        size: str = "tiny",
        vocabulary_size: int = 8_000,
        tokenizer: Literal["bytes", "characters"] = "bytes",
        separator: str | None = None,
        **changes: Any,
    ) -> Self:
        """A generator with fresh weights and a tokenizer, "bytes" or "characters", trained on `texts`, or on
        passages of a `TextStream`.

        `changes` replace fields of the configuration of GPT-2's `size`: `max_length`, the length of the
        blocks to train on and of the context, among them. Raises ValueError for what is unknown.
        """
        if tokenizer not in ("bytes", "characters"):
            raise ValueError(f"`tokenizer` must be bytes or characters; it is {tokenizer!r}.")
        tokenizer = train_tokenizer(sample_of(texts), tokenizer, vocabulary_size)
        changes = {"vocabulary_size": tokenizer.vocabulary_size} | changes
        model = LanguageModel(keras_tfm.models.GPT2.from_size(size, **changes))
        return cls(
            model,
            tokenizer,
            TextGeneratorConfig(separator, add_start=isinstance(texts, TextStream) or len(texts) > 1),
        )

    @classmethod
    def make(
        cls,
        examples: Sequence[str],
        options: GeneratorOptions,
        changes: Mapping[str, Any],
        separator: str | None = None,
        **fields: Any,
    ) -> Self:
        if options.max_length:
            changes = {**changes, "max_length": options.max_length}
        return cls.from_texts(
            examples, options.size, options.vocabulary_size, options.tokenizer, separator, **changes
        )

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, LanguageModel) and "decoder_token_ids" not in model.input

    @classmethod
    def start_from(cls, start: Path, examples: Any, separator: str | None = None, **fields: Any) -> Self:
        task = super().start_from(start, examples, **fields)
        if task.tokenizer is None:
            raise ValueError(f"{start}: expected a tokenizer, tokenizer.json or vocab.json; there is none")
        if separator is not None:
            task.config = dataclasses.replace(task.config, separator=separator)
        return task

    @classmethod
    def from_huggingface(cls, name: Path) -> Self:
        """The task in the folder `name`, or of this hub id, in which the tokenizer may be missing.

        Raises CheckpointError or DataError where something in it is not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface, read_decoding

        model, folder = from_huggingface(name), find_folder(name)
        if not cls.takes(model):
            raise CheckpointError(name, "architectures", "one of a language model", model.name)
        decoding, tokenizer, around = read_decoding(folder, False), None, SpecialTokens([], [])
        if any((folder / file).exists() for file in ("tokenizer.json", "vocab.json")):
            tokenizer = ByteLevelTokenizer.from_huggingface(folder)
            around = read_huggingface_special_tokens(folder, tokenizer)
            if around not in (SpecialTokens([], []), SpecialTokens([tokenizer.start_id], [])):
                got = f"{around.prefix} and {around.suffix}"
                raise CheckpointError(folder, "post_processor", "at most a start token before a text", got)
        elif not decoding.end_ids:
            raise CheckpointError(folder / "config.json", "eos_token_id", "a token's id", "none")
        config = TextGeneratorConfig(None, bool(around.prefix), tokenizer is not None, decoding)
        try:
            return cls(model, tokenizer, config)
        except ValueError as error:
            raise CheckpointError(name, None, "tokens of the vocabulary", str(error)) from None

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
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

    def hold_out(self, texts: Sequence[str], share: float | None, seed: int) -> tuple[Any, Any]:
        """Whole texts at random or, of few texts, the last tenth of each."""
        return hold_out_texts(texts, seed) if share is None else super().hold_out(texts, share, seed)

    def batches(self, texts: Texts, training: LanguageModelTraining, is_validation: bool = False) -> Batches:
        if isinstance(texts, TextStream):
            sizes = {"max_length": self.max_length, "batch_tokens": training.batch_tokens}
            sizes["epoch_batches"] = training.epoch_batches or EPOCH_BATCHES
            return StreamBlocks(texts, self.tokenizer, seed=training.seed, **sizes)
        return self._blocks(texts, **training.batching(is_validation))

    def objective(self, training: LanguageModelTraining) -> dict[str, Any]:
        return {"loss": TokenCrossEntropy(), "weighted_metrics": [token_cross_entropy, token_accuracy]}

    judged_by = ("val_token_cross_entropy", "min")

    def _blocks(self, texts: Sequence[str], **options: Any) -> TextBlocks:
        return TextBlocks(texts, self.tokenizer, max_length=self.max_length, **options)

    def measure(self, texts: Sequence[str]) -> dict[str, Any]:
        """How well `texts`, cut into blocks of the model's length, are predicted.

        "loss" is the cross-entropy in nats a token, ends included, "perplexity" its exponential,
        "bits_per_byte" the whole cost by the texts' bytes, which tokenizers leave comparable.
        """
        blocks = self._blocks(texts, min_batches=1)

        def count(inputs: Any, labels: tf.Tensor, weights: tf.Tensor) -> dict[str, tf.Tensor]:
            logits = self.model(inputs, training=False)
            return {"nats": tf.reduce_sum(weights * token_cross_entropy(labels, logits))}

        nats = float(sums_over(blocks, count)["nats"])
        loss = nats / blocks.num_tokens
        return {
            "loss": loss,
            "perplexity": np.exp(loss),
            "bits_per_byte": nats / math.log(2) / max(1, blocks.num_bytes),
            "tokens": blocks.num_tokens,
        }

    @classmethod
    def read_files(
        cls, paths: Sequence[Path], columns: ColumnNames = None, separator: str | None = None, **fields: Any
    ) -> list[str]:
        return read_texts(paths, separator, columns)

    @classmethod
    def read_training(
        cls, paths: Sequence[Path], columns: ColumnNames = None, separator: str | None = None, **fields: Any
    ) -> Texts:
        return read_or_stream(paths, lambda paths: read_texts(paths, separator, columns), separator)

    def generate(
        self,
        prompts: Iterable[str],
        max_new_tokens: int | None = None,
        batch_size: int = 64,
        stop: str | Iterable[str] = (),
        **options: Any,
    ) -> list[str]:
        """The strings `prompts` with their continuations, of at most `max_new_tokens` tokens (default: 128,
        or what the context leaves).

        `options` are the fields of `DecodingOptions`: `beam_size`, `temperature`, `seed`, ... A text ends
        as soon as one of the strings `stop` stands in its continuation. Bytes that are no UTF-8 become
        U+FFFD. Raises ValueError, naming its row, for a prompt that is empty or leaves no room.
        """
        prompts, answers, decoding = list(prompts), [], self._decoding(as_stops(stop))
        refuse_rows(self.refusals(prompts, max_new_tokens, **options))
        with Bar(total=len(prompts), desc="answering", unit="text") as bar:
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

    def stream(
        self, prompt: str, max_new_tokens: int | None = None, stop: str | Iterable[str] = (), **options: Any
    ) -> Iterator[str]:
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

    def generate_ids(
        self,
        token_ids: np.ndarray,
        padding_mask: np.ndarray | None = None,
        max_new_tokens: int | None = None,
        **options: Any,
    ) -> np.ndarray:
        """Prompts (B, P), padded on the left where `padding_mask` is False, and their continuations:
        (B, P + max_new_tokens), padded after an end.

        `options` as in `generate`. Raises ValueError for ids outside the vocabulary, and for no prompt.
        """
        token_ids = np.asarray(token_ids)
        if token_ids.ndim != 2 or not token_ids.shape[1]:
            raise ValueError(f"`token_ids` must be (B, P), P at least 1; its shape is {token_ids.shape}.")
        check_token_ids(token_ids, self.model.backbone.config.vocabulary_size)
        chosen = self._options(token_ids.shape[1], max_new_tokens, **options)
        return self._decoding(())(chosen, token_ids, padding_mask).numpy()

    def refusals(
        self, examples: Iterable, max_new_tokens: int | None = None, **options: Any
    ) -> dict[int, str]:
        if self.tokenizer is None:
            raise ValueError("A generator without a tokenizer continues ids alone: use `generate_ids`.")
        self._options(1 + self.config.add_start, max_new_tokens, **options)  # refuses what no prompt allows
        room = self.config.add_start, self.max_length, max_new_tokens
        return refused_prompts(examples, self.tokenizer, *room)

    def _prepare(self, prompts: list[str], max_new_tokens: int | None = None, **options: Any) -> tuple:
        """The inputs and the options of decoding."""
        texts = tf.constant([prompt.encode() for prompt in prompts])
        inputs = encode_prompts(texts, self.tokenizer, self.config.add_start)
        return inputs, self._options(inputs["token_ids"].shape[1], max_new_tokens, **options)

    def _options(self, length: int, max_new_tokens: int | None = None, **options: Any) -> DecodingOptions:
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

    def _compiled_decoding(self, stop: tuple[str, ...]) -> CompiledDecoding:
        return CompiledDecoding(self.model, self._stop(stop), self._pad_id, max_length=self.max_length)

    def _stop(self, strings: Sequence[str]) -> EndTokens | StopSequences:
        """What ends a text: one of the `strings`, or an end token."""
        if not strings:
            return EndTokens(*self._end_ids)
        unused = self.model.backbone.config.vocabulary_size - len(self.tokenizer.symbols)
        symbols = [*self.tokenizer.symbols, *[b""] * unused]
        return StopSequences([string.encode() for string in strings], symbols, self._end_ids)

    def export_endpoints(
        self, max_new_tokens: int = NEW_TOKENS, stop: str | Iterable[str] = (), **options: Any
    ) -> Endpoints:
        """`serving_default(text)`, decoded by `options`, and `generate(text, temperature, top_p, seed)`."""
        room = self._options(1, max_new_tokens).max_new_tokens
        end = self._stop(as_stops(stop))
        texts = Continuations(self.model, self.tokenizer, self.config, end, self._pad_id, room)
        text = tf.TensorSpec([None], tf.string, "text")
        numbers = [tf.TensorSpec([], tf.float32, name) for name in ("temperature", "top_p")]
        return {
            "serving_default": (lambda text: texts.decode(text, **options), [text]),
            "generate": (texts.sample, [text, *numbers, tf.TensorSpec([], tf.int32, "seed")]),
        }

    def describe_model(self) -> dict[str, Any]:
        return describe_language_model(self.model)

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: TextGeneratorConfig, model: dict[str, Any]) -> Self:
        tokenizer = load_tokenizer(folder) if config.has_tokenizer else None
        return cls(make_language_model(model), tokenizer, config)
