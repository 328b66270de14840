"""Translation, or any task that maps a line of text to a line of text."""

import dataclasses
import functools
import logging

import numpy as np
import sacrebleu
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Config, Length
from keras_tfm.data.epochs import hold_out
from keras_tfm.data.huggingface import read_huggingface_around, read_huggingface_tokenizer
from keras_tfm.data.inputs import read_sources
from keras_tfm.data.lengths import rows_by_length
from keras_tfm.data.packing import PackedPairs
from keras_tfm.data.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.sources import Pairs, fingerprint, read_pairs
from keras_tfm.data.text import Around, PairBatches, encode_prompts, encode_sources
from keras_tfm.data.tokenizer_kinds import load_tokenizer, train_tokenizer
from keras_tfm.generation import CompiledDecoding, DecodingOptions, EndTokens
from keras_tfm.generation.processors import require
from keras_tfm.heads.language_model import (
    LanguageModel,
    TokenCrossEntropy,
    token_accuracy,
    token_cross_entropy,
)
from keras_tfm.tasks.decoding import DecodingDefaults, check_ids, with_languages
from keras_tfm.tasks.task import Task, describe_language_model, make_language_model
from keras_tfm.training.fit import fit_best, trains
from keras_tfm.training.optimizers import Adam
from keras_tfm.training.schedules import WarmupSchedule

LOG = logging.getLogger(__name__)  # unless configured otherwise, warnings go to standard error
FAMILIES = {
    "transformer": keras_tfm.models.Transformer,
    "recurrent": keras_tfm.models.RecurrentSeq2Seq,
    "gpt2": keras_tfm.models.GPT2,
}


@dataclasses.dataclass(frozen=True)
class TranslatorConfig(Config):
    """`max_length` bounds the tokens of a source and of a target, the end token included.

    `around` are the ids before and behind a source and a target, where they are others than an end behind
    both; `decoding` is how it writes unless a call says otherwise.
    """

    max_length: Length = 128
    around: tuple[Around, Around] | None = None
    decoding: DecodingDefaults = dataclasses.field(default_factory=DecodingDefaults)


class Translator(Task):
    """Strings to strings by an encoder-decoder, or by a decoder alone that reads the source before it writes.

    `model` is a `LanguageModel` over a backbone of the `start`/`step` protocol; `target_tokenizer`
    defaults to `tokenizer`, shared by both sides. A decoder-only model's prompt is the source and the start
    token, and its loss counts the target alone.
    """

    name = "translate"
    config_class = TranslatorConfig

    def __init__(self, model, tokenizer, target_tokenizer=None, config=None):
        self.model = model
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer or tokenizer
        self.config = config or TranslatorConfig()
        self._is_prompted = "decoder_token_ids" not in model.input
        limit = model.backbone.config.max_length if self._is_prompted else None
        if limit is not None and limit < 2 * self.config.max_length:
            raise ValueError(f"The model holds {limit} tokens, less than twice {self.config.max_length}.")
        if self._is_prompted and self.target_tokenizer is not tokenizer:
            raise ValueError("A decoder alone reads and writes by one tokenizer; it was given two.")
        tokenizer, defaults = self.target_tokenizer, self.config.decoding
        check_ids(defaults, model.head.vocabulary_size)
        self._start_id = tokenizer.start_id if defaults.start_id is None else defaults.start_id
        self._pad_id = tokenizer.pad_id if defaults.pad_id is None else defaults.pad_id
        self._stop = EndTokens(*defaults.end_ids or (tokenizer.end_id,))
        self._decoding = CompiledDecoding(model, self._stop, self._pad_id, limit, self.config.max_length)

    @classmethod
    def from_pairs(
        cls,
        pairs,
        family="transformer",
        size=None,
        vocabulary_size=8_000,
        tokenizer="sentencepiece",
        separate_tokenizers=False,
        max_length=128,
        **changes,
    ):
        """A translator with fresh weights and tokenizers trained on `pairs` (sources, targets).

        `family` is transformer, recurrent, or gpt2, a decoder alone; `size` one of its sizes, by default
        "small", or "tiny" where there is none. `changes` replace fields of the size's configuration, for
        example `dropout=0.3`. Raises ValueError for an unknown family or size.
        """
        if family not in FAMILIES:
            raise ValueError(f"There is no model family {family!r}; there are {', '.join(FAMILIES)}.")
        sources, targets = pairs
        sides = [sources, targets] if separate_tokenizers else [[*sources, *targets]]
        tokenizers = [train_tokenizer(lines, tokenizer, vocabulary_size) for lines in sides]
        changes["vocabulary_size"] = tokenizers[0].vocabulary_size
        if family == "gpt2":
            changes["max_length"] = 2 * max_length
        elif separate_tokenizers:
            changes["target_vocabulary_size"] = tokenizers[1].vocabulary_size
        model = LanguageModel(FAMILIES[family].from_size(size or default_size(family), **changes))
        return cls(model, tokenizers[0], tokenizers[-1], TranslatorConfig(max_length))

    @classmethod
    def from_huggingface(cls, name, max_length=512, source_language=None, target_language=None):
        """The task of T5's, BART's or mBART's folder `name`, or of this hub id: texts, T5's beginning with a
        task's prefix, are answered as its generation_config.json says.

        The languages, "ro_RO" for example, are mBART's, by default those of the folder. Raises
        CheckpointError or DataError where something in it is not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface, read_decoding

        model, folder = from_huggingface(name), find_folder(name)
        known = keras_tfm.models.T5, keras_tfm.models.BART
        if not isinstance(model, LanguageModel) or not isinstance(model.backbone, known):
            raise CheckpointError(name, "architectures", "T5, BART or mBART that generates", model.name)
        config, tokenizer = model.backbone.config, read_huggingface_tokenizer(folder)
        if config.vocabulary_size < tokenizer.vocabulary_size:
            expected = f"{tokenizer.vocabulary_size} or more, as the tokenizer says"
            raise CheckpointError(name, "vocab_size", expected, f"{config.vocabulary_size}")
        for role in ("pad_id", "end_id"):
            if getattr(config, role) != getattr(tokenizer, role):
                expected = f"the tokenizer's {getattr(tokenizer, role)}"
                raise CheckpointError(name, role, expected, f"{getattr(config, role)}")
        around, decoding = read_huggingface_around(folder, tokenizer), read_decoding(folder, True)
        languages = getattr(tokenizer, "language_ids", {})
        around, decoding = with_languages(around, decoding, languages, source_language, target_language)
        max_length = min(max_length, getattr(config, "max_length", max_length))
        first = decoding.options.get("forced_first_id")
        before = (decoding.start_id, *(around.before if first is None else [first]))
        target = Around(before, [i for i in around.after if i not in languages.values()])
        try:
            return cls(model, tokenizer, config=cls.config_class(max_length, (around, target), decoding))
        except ValueError as error:
            raise CheckpointError(name, None, "tokens of the vocabulary", str(error)) from None

    def save_huggingface(self, folder, overwrite=False):
        """Write a new `folder` for `transformers`: config.json, generation_config.json, model.safetensors and
        tokenizer.json.

        Raises TypeError for a model or tokenizer that it does not know.
        """
        from keras_tfm.convert import save_huggingface, write_decoding

        decoding = dataclasses.replace(
            self.config.decoding, start_id=self._start_id, pad_id=self._pad_id, end_ids=self._stop.end_ids
        )
        save = self.tokenizer.save_huggingface
        if self.config.around and isinstance(self.tokenizer, SentencePieceTokenizer):
            save = functools.partial(save, around=self.config.around[0])
        save_huggingface(self.model, folder, overwrite, writers=[write_decoding(decoding), save])

    @trains
    def fit(
        self,
        pairs,
        validation=None,
        *,
        epochs=30,
        minutes=None,
        batch_tokens=4096,
        learning_rate=1e-3,
        label_smoothing=0.1,
        patience=5,
        seed=0,
        run=None,
        save_minutes=10,
        resume=False,
        overwrite=False,
        tensorboard=False,
    ):
        """Train on `pairs` (sources, targets) and keep the best epoch: {measure: [value an epoch]}.

        `validation` pairs judge the epochs; by default a random 2 %, at most 1,000, are held out.
        A batch holds up to `batch_tokens` tokens, fewer where the data is small. The learning rate warms up
        over three epochs, at most 4,000 steps, or over a tenth of the `minutes`. With `run` the best task so
        far stands in that folder, new or to `resume`, with checkpoints after every epoch and every
        `save_minutes`, metrics.csv and, with `tensorboard`, logs/; training stops after `patience` epochs
        without progress, or `minutes` in all.
        """
        if validation is None:
            pairs, validation = hold_out_pairs(pairs, seed)
        pairs, validation = Pairs(*pairs), Pairs(*validation)
        batches = self._batches(pairs, batch_tokens, seed, epochs)
        judge = self._batches(validation, batch_tokens, is_judge=True)
        if batches.num_dropped:
            LOG.warning(
                "%d of %d pairs exceed %d tokens and are left out.",
                batches.num_dropped,
                len(pairs.sources),
                self.config.max_length,
            )
        settings = {
            "batch_tokens": batch_tokens,
            "learning_rate": learning_rate,
            "label_smoothing": label_smoothing,
            "seed": seed,
            "data": fingerprint(*pairs),
        }
        return fit_best(
            self.model,
            batches,
            judge.dataset(),
            schedule=WarmupSchedule(learning_rate, min(4_000, 3 * batches.num_batches)),
            optimizer=lambda schedule, **averages: Adam(schedule, 0.9, 0.98, 1e-9, clipnorm=1.0, **averages),
            objective={
                "loss": TokenCrossEntropy(label_smoothing),
                "weighted_metrics": [token_cross_entropy, token_accuracy],
            },
            monitor="val_token_cross_entropy",
            counts=("pairs", len(pairs.sources) - batches.num_dropped, len(validation.sources)),
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

    def _batches(self, pairs, batch_tokens, seed=None, num_epochs=100, is_judge=False):
        options = {"max_length": self.config.max_length, "batch_tokens": batch_tokens, "seed": seed}
        if is_judge:
            options["min_batches"] = 1
        if self._is_prompted:
            return PackedPairs(pairs.sources, pairs.targets, self.tokenizer, **options)
        options |= {"num_shapes": 4} if is_judge else {"num_epochs": num_epochs}
        if self.config.around:
            options["source_around"], options["target_around"] = self.config.around
        return PairBatches(pairs.sources, pairs.targets, self.tokenizer, self.target_tokenizer, **options)

    def generate(self, prompts, max_new_tokens=None, batch_size=64, **options):
        """The translations of the strings `prompts`, in their order, of at most `max_new_tokens` tokens.

        `options` are the fields of `DecodingOptions`: `beam_size`, `temperature`, `seed`, ... A source
        of more than `config.max_length` tokens is cut there; `count_truncated` tells how many.
        """
        prompts = list(prompts)
        options = self._options(max_new_tokens, **options)
        answers = [""] * len(prompts)
        for rows in rows_by_length(map(len, prompts), batch_size, "line"):
            inputs = self._prompts(tf.constant([prompts[row] for row in rows]))
            token_ids = self._decoding(options, **inputs)[:, inputs["token_ids"].shape[1] :]
            texts = self.target_tokenizer.detokenize(token_ids).numpy()
            for row, text in zip(rows, texts, strict=True):
                answers[row] = text.decode("utf-8", "replace")
        return answers

    predict = generate

    def count_truncated(self, prompts):
        """How many of the strings `prompts` have more tokens than a source may, and are cut."""
        lengths = self.tokenizer.tokenize(tf.constant(list(prompts), tf.string)).row_lengths()
        around = self.config.around[0] if self.config.around else Around([], [self.tokenizer.end_id])
        room = self.config.max_length - len(around.before) - len(around.after)
        return int(tf.reduce_sum(tf.cast(lengths > room, tf.int32)))

    def generate_ids(self, token_ids, padding_mask=None, max_new_tokens=None, **options):
        """Start token and continuation (B, 1 + max_new_tokens) of `token_ids` (B, S), padded, of a decoder
        alone on the left.

        `options` as in `generate`. Raises ValueError for ids outside the vocabulary.
        """
        token_ids = np.asarray(token_ids)
        size = self.tokenizer.vocabulary_size
        if token_ids.size and (token_ids.min() < 0 or token_ids.max() >= size):
            raise ValueError(
                f"`token_ids` must lie in [0, {size}); they span {token_ids.min()} to {token_ids.max()}."
            )
        if padding_mask is None:
            padding_mask = np.ones_like(token_ids, bool)
        context = {
            "token_ids": tf.constant(token_ids, tf.int32),
            "padding_mask": tf.constant(padding_mask, tf.bool),
        }
        options = self._options(max_new_tokens, **options)
        if self._is_prompted:
            width = token_ids.shape[1] + 1
            inputs = {"token_ids": tf.concat([context["token_ids"], self._starts(context)], axis=1)}
            inputs["padding_mask"] = tf.pad(context["padding_mask"], [[0, 0], [0, 1]], constant_values=True)
            return self._decoding(options, **inputs)[:, width - 1 :].numpy()
        return self._decoding(options, self._starts(context), context=context).numpy()

    def evaluate(self, pairs, **options):
        """sacreBLEU (cased, 13a), chrF and the share of exact matches on `pairs` (sources, targets).

        `options` as in `generate`.
        """
        sources, targets = pairs
        return self.measures(sources, self.generate(sources, **options), targets)

    def measures(self, sources, answers, targets):
        """How good the strings `answers` to `sources` are, beside `targets`: what `evaluate` returns."""
        bleu = sacrebleu.metrics.BLEU()
        return {
            "bleu": round(bleu.corpus_score(answers, [targets]).score, 2),
            "chrf": round(sacrebleu.metrics.CHRF().corpus_score(answers, [targets]).score, 2),
            "exact_match": round(100 * sum(map(str.__eq__, answers, targets)) / max(1, len(targets)), 2),
            "pairs": len(sources),
            "bleu_signature": str(bleu.get_signature()),
        }

    @staticmethod
    def read_examples(paths, columns=None):
        """What `evaluate` takes, from files: pairs."""
        return read_pairs(paths, columns)

    def read_inputs(self, path, columns=None):
        return read_sources(path, columns)

    def _prompts(self, texts):
        """What decoding takes for the strings `texts`; runs in a graph."""
        if self._is_prompted:
            return encode_prompts(texts, self.tokenizer, delimit=self.config.max_length)
        around = self.config.around and self.config.around[0]
        context = encode_sources(texts, self.tokenizer, self.config.max_length, around)
        return {"token_ids": self._starts(context), "context": context}

    def _starts(self, context):
        return tf.fill([tf.shape(context["token_ids"])[0], 1], self._start_id)

    def _options(self, max_new_tokens=None, **options):
        limit = self.config.max_length
        if max_new_tokens is not None:
            rule = f"must lie in [1, {limit}]"
            require("max_new_tokens", max_new_tokens, lambda n: 1 <= n <= limit, rule, whole=True)
        chosen = self.config.decoding.choose(1, max_new_tokens=max_new_tokens, **options)
        return DecodingOptions(**chosen | {"max_new_tokens": min(limit, chosen.get("max_new_tokens", limit))})

    def export_endpoints(self, max_new_tokens=None, **options):
        decoding = self._options(max_new_tokens, **options)

        def translate(text):
            inputs = self._prompts(text)
            decoder = decoding.decoder(self.model, self._stop, self._pad_id)
            token_ids = decoder(**inputs)[:, tf.shape(inputs["token_ids"])[1] :]
            return {"text": self.target_tokenizer.detokenize(token_ids)}

        return {"serving_default": (translate, [tf.TensorSpec([None], tf.string, "text")])}

    def export_resources(self):
        return [self.tokenizer, self.target_tokenizer]

    def describe_model(self):
        return describe_language_model(self.model)

    def save_parts(self, folder):
        self.tokenizer.save(folder)
        if self.target_tokenizer is not self.tokenizer:
            self.target_tokenizer.save(folder, "target_tokenizer")

    @classmethod
    def load_parts(cls, folder, config, model):
        tokenizer = load_tokenizer(folder)
        separate = bool(list(folder.glob("target_tokenizer.*")))
        target_tokenizer = load_tokenizer(folder, "target_tokenizer") if separate else None
        return cls(make_language_model(model), tokenizer, target_tokenizer, config)


def default_size(family):
    """The size of a `family`'s model where none is named."""
    return "small" if "small" in FAMILIES[family].sizes else "tiny"


def hold_out_pairs(pairs, seed):
    """Split `pairs` at random into those to train on and 2 %, at most 1,000, to judge by."""
    parts = hold_out(len(pairs[0]), seed, share=0.02, most=1_000)
    return tuple(Pairs(*([side[i] for i in rows] for side in pairs)) for rows in parts)
