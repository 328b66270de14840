"""Pre-training on documents, and filling in blanks."""

import dataclasses
import logging
from typing import Literal

import keras
import numpy as np
import tensorflow as tf
import tqdm

import keras_tfm.models
from keras_tfm.configs import Config, Length
from keras_tfm.data.bert_tokenizer import BERTTokenizer
from keras_tfm.data.documents import read_documents
from keras_tfm.data.encoding import are_cut
from keras_tfm.data.epochs import Epochs, hold_out
from keras_tfm.data.huggingface import read_huggingface_tokenizer
from keras_tfm.data.masking import Masking
from keras_tfm.data.sentence_pairs import SentencePairs
from keras_tfm.data.sources import fingerprint
from keras_tfm.data.tokenizer_kinds import load_tokenizer
from keras_tfm.heads import (
    EnhancedMaskedLM,
    MaskedLM,
    SpanMaskedLM,
    TokenCrossEntropy,
    classification_loss,
    token_accuracy,
    token_cross_entropy,
)
from keras_tfm.tasks.blanks import Blanks
from keras_tfm.tasks.task import Task, describe_backbone, make_backbone, refuse_columns
from keras_tfm.training.fit import fit_best, trains
from keras_tfm.training.optimizers import AdamW
from keras_tfm.training.schedules import WarmupSchedule

LOG = logging.getLogger(__name__)
MODELS = MaskedLM, SpanMaskedLM, EnhancedMaskedLM
VOCABULARY_DOCUMENTS = 10_000  # more change a vocabulary of thousands little


@dataclasses.dataclass(frozen=True)
class MaskedLanguageModelConfig(Config):
    """`max_length` bounds the tokens of a row, special ones included. `pairs` is what is learnt of two texts
    beside each other: "next" (BERT), "order" (ALBERT) or "none" (RoBERTa); `masking` the unit: "token",
    "word" or "span". Spans without pairs are SpanBERT, boundary objective included.
    """

    max_length: Length = 128
    pairs: Literal["next", "order", "none"] = "next"
    masking: Literal["token", "word", "span"] = "token"

    def __post_init__(self):
        super().__post_init__()
        if self.max_length < 8:
            raise ValueError(f"`max_length` must be at least 8; it is {self.max_length}.")


class MaskedLanguageModel(Task):
    """Pre-trains an encoder on documents, then says what stands where a text has a blank: "[MASK]", or how
    its tokenizer spells it, RoBERTa's "<mask>".

    `backbone` is an encoder, a `BERT` for example, or the model with its heads that `config` asks for, such
    as `EnhancedMaskedLM` of a `DeBERTa`. A document is a string with a paragraph a line. ValueError for a
    `tokenizer` without a mask.
    """

    name = "masked-lm"
    config_class = MaskedLanguageModelConfig
    head_class = MaskedLM

    def __init__(self, backbone, tokenizer, config=None):
        self.config = config or MaskedLanguageModelConfig()
        self.tokenizer = tokenizer
        if tokenizer.blank is None:
            raise ValueError(f"tokenizer: expected one with a mask, got a {type(tokenizer).__name__}")
        if hasattr(backbone, "backbone"):
            self.model = backbone
        elif self.config.pairs == "none" and self.config.masking == "span":
            self.model = SpanMaskedLM(backbone)
        else:
            self.model = MaskedLM(backbone, next_sentence=self.config.pairs != "none")
        sizes = self.model.backbone.config
        if self.config.max_length > sizes.max_length:
            raise ValueError(
                f"`max_length` must be at most the model's, {sizes.max_length}; "
                f"it is {self.config.max_length}."
            )
        if sizes.vocabulary_size < tokenizer.vocabulary_size:
            raise ValueError(
                f"The model knows {sizes.vocabulary_size} tokens, the tokenizer {tokenizer.vocabulary_size}."
            )
        self._blanks = Blanks(self.model, tokenizer, self.config.max_length)

    @classmethod
    def from_documents(
        cls, documents, size="mini", vocabulary_size=8_000, lowercase=True, config=None, **changes
    ):
        """A task with fresh weights and a WordPiece vocabulary trained on `documents`.

        `changes` replace fields of the configuration of BERT's `size`. ValueError for an unknown one.
        """
        sample = documents[:: -(-len(documents) // VOCABULARY_DOCUMENTS) or 1]
        lines = [line for document in sample for line in document.splitlines()]
        return cls.from_tokenizer(
            BERTTokenizer.train(lines, vocabulary_size, lowercase), size, config, **changes
        )

    @classmethod
    def from_tokenizer(cls, tokenizer, size="mini", config=None, **changes):
        """A task with fresh weights for a vocabulary that is there; `changes` as in `from_documents`."""
        config = config or MaskedLanguageModelConfig()
        changes = {"max_length": max(config.max_length, 512), "pooler": config.pairs != "none"} | changes
        changes["vocabulary_size"] = tokenizer.vocabulary_size
        return cls(keras_tfm.models.BERT.from_size(size, **changes), tokenizer, config)

    @classmethod
    def from_huggingface(cls, name, max_length=None):
        """The task in the folder `name`, or of this hub id: its model with the head of masked language
        modelling, and its tokenizer. CheckpointError or DataError where something is not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface

        model = from_huggingface(name)
        if not isinstance(model, MaskedLM):
            raise CheckpointError(name, "architectures", "one for masked language modelling", model.name)
        tokenizer = read_huggingface_tokenizer(find_folder(name))
        length = max_length or min(128, model.backbone.config.max_length)
        config = MaskedLanguageModelConfig(length, "next" if model.next_sentence else "none")
        return cls(model, tokenizer, config)

    def save_huggingface(self, folder, overwrite=False):
        """Write a new `folder` for `transformers`: config.json, model.safetensors and tokenizer.json."""
        from keras_tfm.convert import save_huggingface

        save_huggingface(self.model, folder, overwrite, tokenizer=self.tokenizer)

    @trains
    def fit(
        self,
        documents,
        validation=None,
        *,
        epochs=40,
        minutes=None,
        batch_tokens=4096,
        epoch_batches=500,
        learning_rate=1e-3,
        weight_decay=0.01,
        num_drawings=None,
        patience=5,
        seed=0,
        run=None,
        save_minutes=10,
        resume=False,
        overwrite=False,
        tensorboard=False,
    ):
        """Train on `documents` and keep the best epoch: {measure: [value an epoch]}.

        `validation` documents judge the epochs; by default a random 2 %, at most 500, are held out. An epoch
        is a pass over the documents, or `epoch_batches` where a pass has more; the next goes on from there.
        `num_drawings` is how often masks and pairs are drawn, always anew by default, 1 for static masking.
        The learning rate warms up over two epochs, at most 10,000 steps, or over a tenth of the `minutes`.
        With `run` the best task so far stands in that folder, new or to `resume`, with checkpoints after
        every epoch and every `save_minutes`, metrics.csv and, with `tensorboard`, logs/; training stops after
        `patience` epochs without progress, or `minutes` in all.
        """
        if validation is None:
            share = min(0.5, max(0.02, 2 / len(documents)))  # two: of one alone no false pair can be made
            rows, held = hold_out(len(documents), seed, share, most=500)
            documents, validation = ([documents[row] for row in part] for part in (rows, held))
        batches = self._batches(documents, batch_tokens, seed, num_drawings)
        judge = self._batches(validation, batch_tokens)
        if batches.num_dropped:
            LOG.warning(
                "%d of %d documents have too few sentences, and are left out.",
                batches.num_dropped,
                len(documents),
            )
        num_train = len(documents) - batches.num_dropped
        batches = Epochs.of(batches, epoch_batches)
        settings = {
            "batch_tokens": batch_tokens,
            "epoch_batches": epoch_batches,
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "num_drawings": num_drawings,
            "seed": seed,
            "data": fingerprint(documents),
        }
        return fit_best(
            self.model,
            batches,
            judge.dataset(),
            schedule=WarmupSchedule(learning_rate, min(10_000, 2 * batches.num_batches)),
            optimizer=lambda schedule, **averages: AdamW(
                schedule, weight_decay, 0.9, 0.98, 1e-6, clipnorm=1.0, **averages
            ),
            objective=self._objectives(),
            monitor="val_loss",
            counts=("documents", num_train, len(validation)),
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

    def _batches(self, documents, batch_tokens=4096, seed=0, num_drawings=None):
        length = self.config.max_length
        return SentencePairs(
            documents,
            self.tokenizer,
            Masking.of(self.tokenizer, self.config.masking),
            objective=self.config.pairs,
            max_length=length,
            batch_size=max(1, batch_tokens // length),
            seed=seed,
            num_drawings=num_drawings,
            segments="segment_ids" in self.model.input,
        )

    def _objectives(self):
        """The losses, which are summed, and the measures, by head."""
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        of_words = {"loss": TokenCrossEntropy(), "weighted_metrics": [token_accuracy]}
        of_pairs = {"loss": classification_loss(), "weighted_metrics": [accuracy]}
        if not isinstance(self.model.output, dict):
            return of_words
        of_heads = {name: of_pairs if name == "nsp" else of_words for name in self.model.output}
        return {
            argument: {name: parts[argument] for name, parts in of_heads.items()} for argument in of_words
        }

    def evaluate(self, documents, seed=0):
        """How well masked tokens of `documents` are predicted, and pairs told apart, beside what knows
        nothing.

        "mlm_accuracy" from 0 to 1 and "mlm_loss" in nats stand beside "unigram_accuracy" and "unigram_loss",
        of the frequencies of these very tokens; "nsp_accuracy" (with pairs) beside "nsp_baseline", the
        commoner answer. Masks and pairs are drawn by `seed`.
        """
        batches = self._batches(documents, seed=seed)
        size = self.tokenizer.vocabulary_size

        @tf.function(autograph=False)
        def count(inputs, labels, weights):
            outputs = self.model(inputs, training=False)
            if not isinstance(outputs, dict):
                outputs, labels, weights = {"mlm": outputs}, {"mlm": labels}, {"mlm": weights}
            logits, truth, weight = outputs["mlm"], labels["mlm"], weights["mlm"]
            sums = {
                "right": tf.reduce_sum(weight * token_accuracy(truth, logits)),
                "loss": tf.reduce_sum(weight * token_cross_entropy(truth, logits)),
                "tokens": tf.math.bincount(truth, tf.cast(weight, tf.float32), size, size),
            }
            if "nsp" in outputs:
                is_right = tf.argmax(outputs["nsp"], -1, tf.int32) == labels["nsp"]
                sums["told"] = tf.reduce_sum(weights["nsp"] * tf.cast(is_right, tf.float32))
                sums["false"] = tf.reduce_sum(weights["nsp"] * tf.cast(labels["nsp"], tf.float32))
            return sums

        totals: dict[str, np.ndarray] = {}
        bar = tqdm.tqdm(batches.dataset(), total=batches.num_batches, unit="batch", leave=False,
                        disable=batches.num_batches < 20)  # fmt: skip
        for inputs, labels, weights in bar:
            for name, value in count(inputs, labels, weights).items():
                totals[name] = totals.get(name, 0) + value.numpy().astype("float64")
        tokens = totals["tokens"][totals["tokens"] > 0]
        num_tokens = max(1.0, tokens.sum())
        shares = tokens / num_tokens
        measures = {
            "mlm_accuracy": totals["right"] / num_tokens,
            "unigram_accuracy": max(shares, default=0.0),
            "mlm_loss": totals["loss"] / num_tokens,
            "unigram_loss": -np.sum(shares * np.log(shares)),
        }
        if "told" in totals:
            false = totals["false"] / batches.num_rows
            measures["nsp_accuracy"] = totals["told"] / batches.num_rows
            measures["nsp_baseline"] = max(false, 1 - false)
        measures = {name: round(float(value), 4) for name, value in measures.items()}
        return measures | {"masked_tokens": int(tokens.sum()), "documents": len(documents)}

    def predict(self, texts, batch_size=64):
        """The strings `texts`, in each every blank replaced by the likeliest piece: a list of strings.

        What is cut off beyond `config.max_length` tokens keeps its blank; `count_truncated` tells how many.
        """
        return [
            text.decode("utf-8", "replace")
            for batch in _in_batches(texts, batch_size)
            for text in self._blanks.fill(tf.constant(batch, tf.string)).numpy()
        ]

    def candidates(self, texts, count=5, batch_size=64):
        """The likeliest pieces for each blank of each text: [[[(piece, probability), …], …], …]."""
        if not 1 <= count <= self.tokenizer.vocabulary_size:
            raise ValueError(f"`count` must lie in [1, {self.tokenizer.vocabulary_size}]; it is {count}.")
        answers = []
        for batch in _in_batches(texts, batch_size):
            ids, probabilities, is_blank = self._blanks.candidates(tf.constant(batch, tf.string), count)
            for row, chances, blanks in zip(
                ids.numpy(), probabilities.numpy(), is_blank.numpy(), strict=True
            ):
                pieces = [[self._blanks.pieces[i] for i in each] for each in row[blanks]]
                answers.append(
                    [
                        list(zip(p, c, strict=True))
                        for p, c in zip(pieces, chances[blanks].tolist(), strict=True)
                    ]
                )
        return answers

    def count_truncated(self, texts):
        """How many of the strings `texts` have more tokens than a row holds, and are cut."""
        return int(are_cut(self.tokenizer, self.config.max_length, texts).sum())

    @staticmethod
    def read_examples(paths, columns=None):
        """What `evaluate` takes, from files: documents."""
        refuse_columns(columns, "documents have none")
        return read_documents(paths)

    def export_endpoints(self):
        return {"serving_default": (lambda text: {"text": self._blanks.fill(text)},
                                    [tf.TensorSpec([None], tf.string, "text")])}  # fmt: skip

    def export_resources(self):
        return [self.tokenizer]

    def describe_model(self):
        head = {"class": type(self.model).__name__, **self.model.head_arguments}
        return {**describe_backbone(self.model.backbone), "head": head}

    def save_parts(self, folder):
        self.tokenizer.save(folder)

    @classmethod
    def load_parts(cls, folder, config, model):
        head = {**model["head"]}
        model_class = {known.__name__: known for known in MODELS}[head.pop("class")]
        return cls(model_class(make_backbone(model), **head), load_tokenizer(folder), config)


def _in_batches(texts, size):
    texts = list(texts)
    return (texts[first : first + size] for first in range(0, len(texts), size))
