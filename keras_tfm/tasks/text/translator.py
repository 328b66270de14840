"""Translation, and any other task that maps a text to a text."""

import dataclasses
import functools
import pathlib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import keras
import numpy as np
import sacrebleu
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import FieldError, Refusal
from keras_tfm.data.batches.epochs import Batches
from keras_tfm.data.batches.packing import PackedPairs
from keras_tfm.data.batches.pairs import PairBatches
from keras_tfm.data.sources.files import Pairs, read_pairs, read_sources
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.tokenizers.huggingface import read_huggingface_special_tokens, read_huggingface_tokenizer
from keras_tfm.data.tokenizers.kinds import load_tokenizer, train_tokenizer
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.generation import CompiledDecoding, DecodingOptions, ScheduledSampling
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models.text.decoder import DecoderModel
from keras_tfm.serving.examples import not_text
from keras_tfm.tasks.learning import TABLES
from keras_tfm.tasks.measures import token_metrics
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import Task
from keras_tfm.tasks.task_folder import is_task_folder
from keras_tfm.tasks.text.decoding import check_token_ids, ending, with_languages
from keras_tfm.tasks.text.text_signature import made_up_texts
from keras_tfm.tasks.text.translator_options import (
    HIGHEST_RATE,
    TABLE,
    WIDTH,
    Seq2SeqTraining,
    TranslatorConfig,
    TranslatorOptions,
    check_table,
    default_size,
    is_static,
    model_class,
    usual_for,
)
from keras_tfm.tasks.text.writing import Writing, WritingTask, prompts_signature, source_of
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.changed_steps import Change
from keras_tfm.training.folder import Path
from keras_tfm.training.options import TextTraining

PUBLISHED_LENGTH = 512  # tokens of a text where a published folder does not say


class Translator(WritingTask, TrainableTask):
    """Maps strings to strings by an encoder-decoder, or by a decoder alone that reads the source before it
    writes.

    `model` is a `LanguageModel` over a backbone with `start` and `step`; one `tokenizer` serves both sides
    unless there is a `target_tokenizer`. For a decoder alone, the source and the start token are the prompt,
    and only the target counts in the loss.

    >>> pairs = ["one two", "two one"] * 4, ["1 2", "2 1"] * 4
    >>> task = keras_tfm.tasks.Translator.from_pairs(pairs, size="tiny", vocabulary_size=300)
    >>> history = task.fit(pairs, pairs, epochs=1)
    >>> len(task.generate(["one one"], beam_size=2))
    1
    """

    name = "translate"
    files = f"two parallel text files; or {TABLES}"
    columns = (2,)
    examples_class = Pairs
    column_kinds = types.MappingProxyType({"sources": not_text, "targets": not_text})
    unit = "pairs"
    digits = 2
    training = Seq2SeqTraining(weight_decay=0.0)
    optimizer_options = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9, "clipnorm": 1.0}
    judged_by = ("val_token_cross_entropy", "min")
    model_options = TranslatorOptions
    make_head = LanguageModel
    config_class = TranslatorConfig

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        config: TranslatorConfig | None = None,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer or tokenizer
        self.config = config or self.config_class()
        self._is_prompted = "decoder_token_ids" not in model.input
        limit = model.backbone.config.max_length if self._is_prompted else None
        if limit is not None and limit < 2 * self.config.max_length:
            raise ValueError(f"The model holds {limit} tokens, less than twice {self.config.max_length}.")
        if self._is_prompted and self.target_tokenizer is not tokenizer:
            raise ValueError("A decoder alone reads and writes by one tokenizer; it was given two.")
        tokenizer, defaults = self.target_tokenizer, self.config.decoding
        defaults.check_ids(model.head.vocabulary_size)
        self._start_id = tokenizer.start_id if defaults.start_id is None else defaults.start_id
        self._pad_id = tokenizer.pad_id if defaults.pad_id is None else defaults.pad_id
        ends = defaults.end_ids or (tokenizer.end_id,)
        self._stop = ending(defaults.stop, tokenizer, ends)
        self._limits = limit, self.config.max_length

    @classmethod
    def from_pairs(
        cls,
        pairs: tuple[Sequence[str], Sequence[str]],
        family: str = "transformer",
        size: str | None = None,
        vocabulary_size: int | None = None,
        tokenizer: Literal["sentencepiece", "wordpiece", "characters"] = "sentencepiece",
        separate_tokenizers: bool = False,
        max_length: int | None = None,
        **changes: Any,
    ) -> Self:
        """A translator with fresh weights, and tokenizers trained on `pairs`, (sources, targets). `family` is
        "transformer", "recurrent", "gpt2", a decoder alone, or a plugin's; `size` one of its sizes, by
        default "tiny", for more than 100,000 pairs "small". `vocabulary_size` is by default 8,000, and
        less for little text. `separate_tokenizers` gives each side its own tokenizer. `changes` replace
        fields of the size's configuration, for example `dropout=0.3`. ValueError for an unknown family, size
        or field.
        """
        chosen = model_class(family)
        sources, targets = cls.as_examples(pairs)
        sides = [sources, targets] if separate_tokenizers else [[*sources, *targets]]
        if vocabulary_size is None:
            vocabulary_size = usual_for((sources, targets)).vocabulary_size
        tokenizers = [train_tokenizer(lines, tokenizer, vocabulary_size) for lines in sides]
        changes["vocabulary_size"] = tokenizers[0].vocabulary_size
        config = cls.config_class() if max_length is None else cls.config_class(max_length)
        if issubclass(chosen, DecoderModel):
            changes["max_length"] = 2 * config.max_length
        elif separate_tokenizers:
            changes["target_vocabulary_size"] = tokenizers[1].vocabulary_size
        model_config = chosen.config_of_size(size or default_size(chosen, len(sources)), **changes)
        if is_static(model_config):
            model_config = dataclasses.replace(
                model_config, **dict.fromkeys(TABLE - changes.keys(), config.max_length)
            )
        check_table(config.max_length, model_config)
        model = LanguageModel(chosen(model_config))
        return cls(model, tokenizers[0], tokenizers[-1], config)

    @classmethod
    def make(
        cls, examples: Pairs, options: TranslatorOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        return cls.from_pairs(examples, **vars(options), **fields, **changes)

    @classmethod
    def adopt(cls, task: Task, examples: Any, **fields: Any) -> Self:
        """The model and tokenizers of any task that maps texts to texts: a translator may learn to
        summarise.
        """
        if not isinstance(task, Translator):
            return super().adopt(task, examples, **fields)
        config = dataclasses.replace(task.config, **fields)
        check_table(config.max_length, task.model.backbone.config)
        return cls(task.model, task.tokenizer, task.target_tokenizer, config)

    @classmethod
    def start_from(cls, start: Path, examples: Any, **fields: Any) -> Self:
        if not is_task_folder(start):  # a training's pairs are no longer than whoever asks for more
            fields = {"max_length": PUBLISHED_LENGTH, **fields}
        return super().start_from(start, examples, **fields)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        published = keras_tfm.models.T5, keras_tfm.models.BART  # families with published checkpoints
        return isinstance(model, LanguageModel) and isinstance(model.backbone, published)

    @classmethod
    def from_huggingface(
        cls,
        name: Path,
        max_length: int | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> Self:
        """The task in a folder of T5, BART or mBART, or of this hub id; it answers as generation_config.json
        there says, and reads `max_length` tokens of a text, by default as many as tokenizer_config.json says,
        or else 512. Texts for T5 begin with the prefix of a task. The languages, "ro_RO" for example, are
        mBART's, by default the folder's. CheckpointError or DataError if a file of the folder is missing or
        not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface, read_decoding
        from keras_tfm.convert.folder import read_max_length

        folder = find_folder(name)
        model = from_huggingface(folder, LanguageModel)
        if not cls.takes(model):
            raise CheckpointError(name, "architectures", "T5, BART or mBART that generates", model.name)
        config, tokenizer = model.backbone.config, read_huggingface_tokenizer(folder)
        if config.vocabulary_size < tokenizer.vocabulary_size:
            expected = f"{tokenizer.vocabulary_size} or more, as the tokenizer says"
            raise CheckpointError(name, "vocab_size", expected, f"{config.vocabulary_size}")
        for role in ("pad_id", "end_id"):
            if getattr(config, role) != getattr(tokenizer, role):
                expected = f"the tokenizer's {getattr(tokenizer, role)}"
                raise CheckpointError(name, role, expected, f"{getattr(config, role)}")
        around, decoding = read_huggingface_special_tokens(folder, tokenizer), read_decoding(folder, True)
        languages = getattr(tokenizer, "language_ids", {})
        around, decoding = with_languages(around, decoding, languages, source_language, target_language)
        length = max_length or read_max_length(folder) or PUBLISHED_LENGTH
        length = min(length, getattr(config, "max_length", length))
        first = decoding.options.get("forced_first_id")
        before = (decoding.start_id, *(around.prefix if first is None else [first]))
        target = SpecialTokens(before, [i for i in around.suffix if i not in languages.values()])
        try:
            return cls(model, tokenizer, config=cls.config_class(length, (around, target), decoding))
        except ValueError as error:
            raise CheckpointError(name, None, "tokens of the vocabulary", str(error)) from None

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, generation_config.json, model.safetensors and
        tokenizer.json. TypeError if transformers has no such model or tokenizer.
        """
        from keras_tfm.convert import save_huggingface, write_decoding
        from keras_tfm.convert.folder import max_length_writer

        decoding = dataclasses.replace(
            self.config.decoding, start_id=self._start_id, pad_id=self._pad_id, end_ids=self._stop.end_ids
        )
        save = self.tokenizer.save_huggingface
        if self.config.around and isinstance(self.tokenizer, SentencePieceTokenizer):
            save = functools.partial(save, special=self.config.around[0])
        writers = [write_decoding(decoding), save, max_length_writer(self.config.max_length)]
        save_huggingface(self.model, folder, overwrite, writers=writers)

    def batches(self, pairs: Pairs, training: Seq2SeqTraining, is_validation: bool = False) -> Batches:
        sides, length = (pairs.sources, pairs.targets), self.config.max_length
        if self._is_prompted:
            return PackedPairs(*sides, self.tokenizer, max_length=length, **training.batching(is_validation))
        options = training.batching_by_length(is_validation)
        if self.config.around:
            options["source_special"], options["target_special"] = self.config.around
        return PairBatches(*sides, self.tokenizer, self.target_tokenizer, max_length=length, **options)

    def settled(self, training: Seq2SeqTraining, examples: Any) -> Seq2SeqTraining:
        if training.learning_rate is None:
            rate = HIGHEST_RATE * min(1.0, WIDTH / self.model.backbone.config.dim)
            training = dataclasses.replace(training, learning_rate=rate)
        usual = usual_for(examples)
        longest = min(2 * self.config.max_length, TextTraining.batch_tokens)  # of both sides, in a batch
        epochs = training.epochs or usual.epochs
        batch_tokens = training.batch_tokens or max(usual.batch_tokens, longest)
        training = dataclasses.replace(training, epochs=epochs, batch_tokens=batch_tokens)
        return super().settled(training, examples)

    def objective(self, training: Seq2SeqTraining) -> dict[str, Any]:
        return {
            "loss": TokenCrossEntropy(training.label_smoothing),
            "weighted_metrics": token_metrics(),
        }

    def change_of(self, training: Seq2SeqTraining) -> Change | None:
        if not training.scheduled_sampling:
            return None
        if self._is_prompted:
            raise FieldError("{scheduled_sampling} needs an encoder-decoder; the model is a decoder alone.")
        return ScheduledSampling(self.model, training.scheduled_sampling, training.seed)

    def generate(
        self,
        prompts: Iterable[str],
        /,
        *,
        max_new_tokens: int | None = None,
        batch_size: int = 64,
        **options: Any,
    ) -> list[str]:
        """The translations of the strings `prompts`, in order, of at most `max_new_tokens` tokens. `options`
        are fields of `DecodingOptions`: `beam_size`, `temperature`, `seed` and others. Sources of more than
        `config.max_length` tokens are cut; `count_truncated` counts them.
        """
        asked = self.asked(prompts, batch_size)
        chosen = self._options(max_new_tokens, **options)
        order = np.argsort([len(text) for text in asked], kind="stable")[::-1].tolist()  # the longest first
        parts = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
        batches = [(rows, chosen.reseeded(min(rows))) for rows in parts]
        decoding = self._decoding(self.target_tokenizer.pad_id)
        return self.write(asked, self._writing(chosen), decoding, batches)

    predict = generate
    measures_texts = True

    def generate_ids(
        self,
        token_ids: np.ndarray,
        padding_mask: np.ndarray | None = None,
        max_new_tokens: int | None = None,
        **options: Any,
    ) -> np.ndarray:
        """The start token and the translation, (B, 1 + max_new_tokens), of sources (B, S). `padding_mask` is
        False for padding, which stands on the left for a decoder alone. ValueError for ids outside the
        vocabulary.
        """
        token_ids = np.asarray(token_ids)
        check_token_ids(token_ids, self.tokenizer.vocabulary_size)
        if padding_mask is None:
            padding_mask = np.ones_like(token_ids, bool)
        context = {
            "token_ids": tf.constant(token_ids, tf.int32),
            "padding_mask": tf.constant(padding_mask, tf.bool),
        }
        chosen = self._options(max_new_tokens, **options)
        if self._is_prompted:
            width = token_ids.shape[1] + 1
            inputs = {"token_ids": tf.concat([context["token_ids"], self._starts(context)], axis=1)}
            inputs["padding_mask"] = tf.pad(context["padding_mask"], [[0, 0], [0, 1]], constant_values=True)
            return self._decoding(self._pad_id)(chosen, **inputs)[:, width - 1 :].numpy()
        return self._decoding(self._pad_id)(chosen, self._starts(context), context=context).numpy()

    def _decoding(self, pad_id: int) -> CompiledDecoding:
        made_of = self.model, self._stop, pad_id, *self._limits
        return self.traced(("decoding", pad_id), lambda: CompiledDecoding(*made_of))

    def measure(self, pairs: Pairs, **options: Any) -> dict[str, Any]:
        """sacreBLEU (cased, 13a), chrF and the share of exact matches, in percent; `options` are arguments of
        `generate`.
        """
        return self.compare(pairs.sources, self.generate(pairs.sources, **options), pairs.targets)

    def compare(
        self, sources: Sequence[str], answers: Sequence[str], targets: Sequence[str]
    ) -> dict[str, Any]:
        """The metrics of `answers` to `sources`, compared with `targets`."""
        bleu = sacrebleu.metrics.BLEU()
        return {
            "bleu": bleu.corpus_score(answers, [targets]).score,
            "chrf": sacrebleu.metrics.CHRF().corpus_score(answers, [targets]).score,
            "exact_match": 100 * sum(map(str.__eq__, answers, targets)) / max(1, len(targets)),
            "bleu_signature": str(bleu.get_signature()),
        }

    @classmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Pairs:
        return read_pairs(paths, columns)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_sources(path, columns)

    def _starts(self, context: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return tf.fill([tf.shape(context["token_ids"])[0], 1], self._start_id)

    def _options(self, max_new_tokens: int | None = None, **options: Any) -> DecodingOptions:
        most, size = self.config.max_length, self.model.head.vocabulary_size
        # What a folder states may be any number for T5, whose positions have no end.
        usual = min(most, PUBLISHED_LENGTH) if self.config.around else most
        chosen = self.config.decoding.within(most, usual, size, max_new_tokens, **options)
        for name in ("prompt_repetition_penalty", "prompt_no_repeat_ngram_size"):
            value = getattr(chosen, name)
            if self.tokenizer is not self.target_tokenizer and value != getattr(DecodingOptions, name):
                raise Refusal(name, "left out, as sources have other tokens than targets", value)
        return chosen

    def signature(self, max_new_tokens: int | None = None, **options: Any) -> Signature:
        length, around = self.config.max_length, SpecialTokens([], [self.tokenizer.end_id])
        if self._is_prompted:
            around = SpecialTokens([], [self.tokenizer.start_id])
        elif self.config.around:
            around = self.config.around[0]
        return prompts_signature(
            self.tokenizer,
            self._writing(self._options(max_new_tokens, **options)),
            made_up_texts(self.tokenizer, length),
            before=list(around.prefix),
            after=list(around.suffix),
            max_length=length,
            cuts=True,
        )

    def _writing(self, options: DecodingOptions) -> Writing:
        return Writing(
            self.model,
            self.target_tokenizer,
            self._start_id,
            self._stop.end_ids,
            self.config.decoding.stop,
            options,
            None if self._is_prompted else source_of,
        )

    def export_resources(self) -> list:
        return [self.tokenizer, self.target_tokenizer]

    def save_parts(self, folder: pathlib.Path) -> None:
        self.tokenizer.save(folder)
        if self.target_tokenizer is not self.tokenizer:
            self.target_tokenizer.save(folder, "target_tokenizer")

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: TranslatorConfig, model: dict[str, Any]) -> Self:
        tokenizer = load_tokenizer(folder)
        separate = bool(list(folder.glob("target_tokenizer.*")))
        target_tokenizer = load_tokenizer(folder, "target_tokenizer") if separate else None
        return cls(cls.make_model(model, config), tokenizer, target_tokenizer, config)
