"""Masked language modelling: pre-train an encoder on documents, and fill in blanks."""

import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import keras
import numpy as np
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Config, Option
from keras_tfm.data.batches.epochs import Batches, HeldOut
from keras_tfm.data.batches.masking import Masking
from keras_tfm.data.batches.sentence_pairs import SentencePairs
from keras_tfm.data.batches.streams import StreamSentencePairs
from keras_tfm.data.sources.documents import read_documents
from keras_tfm.data.sources.labelled import read_unlabelled_texts
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.text_stream import TextStream
from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.huggingface import read_huggingface_tokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.heads import (
    EnhancedMaskedLM,
    MaskedLM,
    SpanMaskedLM,
    TokenCrossEntropy,
    TokenMean,
    classification_loss,
    token_accuracy,
    token_cross_entropy,
)
from keras_tfm.serving.answering import Answerer
from keras_tfm.serving.examples import check_batch_size, listed
from keras_tfm.tasks.asking import AskedTask, by_keras
from keras_tfm.tasks.learning import TABLES, VOCABULARY
from keras_tfm.tasks.measures import sums_over
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import Task, check_length, check_vocabulary
from keras_tfm.tasks.task_folder import is_task_folder
from keras_tfm.tasks.text.blanks import Blanks
from keras_tfm.tasks.text.encoder_task import EncoderOptions, TextLength
from keras_tfm.tasks.text.streams import EPOCH_BATCHES, Texts, read_or_stream, sample_of
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.folder import Path
from keras_tfm.training.options import MaskedTraining

MODELS = MaskedLM, SpanMaskedLM, EnhancedMaskedLM
LENGTH = 128  # tokens of a row, of a training and of a folder that does not say
VOCABULARY_DOCUMENTS = 10_000  # a vocabulary of thousands of pieces hardly changes with more


@dataclasses.dataclass(frozen=True)
class MaskedLanguageModelConfig(Config):
    """What a `MaskedLanguageModel` learns.

    Args:
        max_length: tokens of a row, special tokens included.
        pairs: what is learnt about two neighbouring texts: "next", whether the second follows (BERT);
            "order", which comes first (ALBERT); "none" (RoBERTa).
        masking: the unit that is masked: "token", "word" or "span". Spans without pairs are SpanBERT, whose
            boundary objective is then included.
    """

    max_length: Annotated[TextLength, Option("tokens of a row, special tokens included")] = LENGTH
    pairs: Annotated[
        Literal["next", "order", "none"],
        Option("what is learnt from pairs: whether the second text follows, which is first, or nothing"),
    ] = "next"
    masking: Annotated[Literal["token", "word", "span"], Option("the unit that is masked")] = "token"


@dataclasses.dataclass(frozen=True)
class MaskedOptions(EncoderOptions):
    """A BERT with fresh weights, and a vocabulary, existing or to be trained."""

    tokenizer: Annotated[
        str | None,
        Option(
            "folder with an existing tokenizer.json or BERT's vocab.txt",
            default="train a new one",
            metavar="FOLDER",
        ),
    ] = None


class MaskedLanguageModel(AskedTask, TrainableTask):
    r"""Pre-trains an encoder on documents, and fills in the blanks of texts.

    A document is a string with one paragraph per line. A blank is written as the tokenizer spells its mask
    token: "[MASK]" for BERT, "<mask>" for RoBERTa. `backbone` is an encoder such as `BERT`, or a model with
    the heads that `config` asks for, such as `EnhancedMaskedLM` of a `DeBERTa`.

    Raises:
        ValueError: for a `tokenizer` without a mask token.

    >>> documents = ["The cat sat.\nIt slept.", "The dog ran.\nIt barked."] * 4
    >>> task = keras_tfm.tasks.MaskedLanguageModel.from_documents(documents, size="tiny", vocabulary_size=300)
    >>> history = task.fit(documents, documents, epochs=1)
    >>> "[MASK]" in task.predict(["The [MASK] sat."])[0]
    False
    """

    name = "masked-lm"
    files = (
        "text (plain, .gz, .xz), a paragraph per line, blank lines between documents; folders of .txt files; "
        f"or a text per row in {TABLES}"
    )
    columns = (1,)
    unit = "documents"
    held_out = HeldOut(0.02, 500)
    training = MaskedTraining(epochs=40, epoch_batches=500, schedule="inverse-root")
    given_weights = types.MappingProxyType({"learning_rate": 1e-4})
    optimizer_options = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-6, "clipnorm": 1.0}
    model_options = MaskedOptions
    head_classes = MODELS
    config_class = MaskedLanguageModelConfig

    def __init__(
        self, backbone: keras.Model, tokenizer: Tokenizer, config: MaskedLanguageModelConfig | None = None
    ):
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
        check_length(self.config.max_length, self.model.backbone.config)
        check_vocabulary(self.model.backbone.config, tokenizer)
        self._blanks = Blanks(self.model, tokenizer, self.config.max_length)

    @classmethod
    def from_documents(
        cls,
        documents: Sequence[str],
        size: str = "mini",
        vocabulary_size: int = VOCABULARY,
        lowercase: bool = True,
        config: MaskedLanguageModelConfig | None = None,
        **changes: Any,
    ) -> Self:
        """A task with fresh weights, and a WordPiece vocabulary trained on `documents`.

        `changes` replace fields of the configuration of BERT's `size`; ValueError for an unknown size or
        field.
        """
        sample = sample_of(cls.as_examples(documents))
        sample = sample[:: -(-len(sample) // VOCABULARY_DOCUMENTS) or 1]
        lines = [line for document in sample for line in document.splitlines()]
        return cls.from_tokenizer(
            BERTTokenizer.train(lines, vocabulary_size, lowercase), size, config, **changes
        )

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Tokenizer,
        size: str = "mini",
        config: MaskedLanguageModelConfig | None = None,
        **changes: Any,
    ) -> Self:
        """A task with fresh weights for an existing tokenizer; the other arguments are as in
        `from_documents`.
        """
        config = config or MaskedLanguageModelConfig()
        changes = {"max_length": max(config.max_length, 512), "pooler": config.pairs != "none"} | changes
        changes["vocabulary_size"] = tokenizer.vocabulary_size
        return cls(keras_tfm.models.BERT.from_size(size, **changes), tokenizer, config)

    @classmethod
    def make(
        cls, examples: Sequence[str], options: MaskedOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        config = MaskedLanguageModelConfig(**fields)
        if options.tokenizer is not None:
            tokenizer = BERTTokenizer.from_huggingface(options.tokenizer)
            return cls.from_tokenizer(tokenizer, options.size, config, **changes)
        return cls.from_documents(
            examples, options.size, options.vocabulary_size, options.lowercase, config, **changes
        )

    @classmethod
    def adopt(cls, task: Task, examples: Any, **fields: Any) -> Self:
        if not isinstance(task, cls):
            return super().adopt(task, examples, **fields)
        return cls(task.model, task.tokenizer, dataclasses.replace(task.config, **fields))

    @classmethod
    def start_from(cls, start: Path, examples: Any, **fields: Any) -> Self:
        task = super().start_from(start, examples, **fields)
        if is_task_folder(start) or "max_length" in fields or task.config.max_length <= LENGTH:
            return task
        # All rows of a training are as long as the longest: what is longer is for whoever asks for it.
        return cls(task.model, task.tokenizer, dataclasses.replace(task.config, max_length=LENGTH))

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, MaskedLM)

    @classmethod
    def from_huggingface(cls, name: Path, max_length: int | None = None, **fields: Any) -> Self:
        """The masked language model in the folder `name` (or of this hub id), with its tokenizer.

        It reads `max_length` tokens of a text, by default as many as tokenizer_config.json says
        (`model_max_length`), or else 128.

        Raises:
            CheckpointError, DataError: if a file of the folder is missing or not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface
        from keras_tfm.convert.folder import read_max_length

        folder = find_folder(name)
        model = from_huggingface(folder)
        if not cls.takes(model):
            raise CheckpointError(name, "architectures", "one for masked language modelling", model.name)
        tokenizer = read_huggingface_tokenizer(folder, encloses=True)
        length = max_length or min(read_max_length(folder) or LENGTH, model.backbone.config.max_length)
        # ALBERT's second head tells the order of two texts (Lan et al. 2020, section 3.1).
        pairs = "order" if isinstance(model.backbone, keras_tfm.models.ALBERT) else "next"
        fields = {"pairs": pairs if model.next_sentence else "none", **fields}
        config = MaskedLanguageModelConfig(length, **fields)
        return cls(model, tokenizer, config)

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, model.safetensors and tokenizer.json."""
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.folder import max_length_writer

        writers = [max_length_writer(self.config.max_length)]
        save_huggingface(self.model, folder, overwrite, tokenizer=self.tokenizer, writers=writers)

    def hold_out(self, documents: Sequence[str], share: float | None, seed: int) -> tuple[Any, Any]:
        # At least two: a false pair takes its second text from another document.
        if len(documents) * (share or self.held_out.share) < 2:
            share = min(0.5, 2 / max(1, len(documents)))
        return super().hold_out(documents, share, seed)

    def batches(self, documents: Texts, training: MaskedTraining, is_validation: bool = False) -> Batches:
        if isinstance(documents, TextStream):
            return StreamSentencePairs(
                documents,
                self.tokenizer,
                Masking.of(self.tokenizer, self.config.masking),
                objective=self.config.pairs,
                max_length=self.config.max_length,
                batch_size=max(1, training.batch_tokens // self.config.max_length),
                epoch_batches=training.epoch_batches or EPOCH_BATCHES,
                seed=training.seed,
                segments="segment_ids" in self.model.input,
            )
        if is_validation:
            return self._pairs(documents, training.batch_tokens)
        return self._pairs(documents, training.batch_tokens, training.seed, training.num_drawings)

    def _pairs(
        self,
        documents: Sequence[str],
        batch_tokens: int = 4_096,
        seed: int = 0,
        num_drawings: int | None = None,
    ) -> SentencePairs:
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

    def objective(self, training: MaskedTraining) -> dict[str, Any]:
        """Losses, which are summed, and metrics, for each head."""
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        of_words = {"loss": TokenCrossEntropy(), "weighted_metrics": [TokenMean(token_accuracy)]}
        of_pairs = {"loss": classification_loss(), "weighted_metrics": [accuracy]}
        if not isinstance(self.model.output, dict):
            return of_words
        of_heads = {name: of_pairs if name == "nsp" else of_words for name in self.model.output}
        return {
            argument: {name: parts[argument] for name, parts in of_heads.items()} for argument in of_words
        }

    def measure(self, documents: Sequence[str], seed: int = 0) -> dict[str, Any]:
        """How well masked tokens, next to a unigram baseline, and true and false pairs are predicted.

        "mlm_accuracy" (0 to 1) and "mlm_loss" (nats) stand next to "unigram_accuracy" and "unigram_loss",
        which only know the frequencies of the masked tokens; with pairs, "nsp_accuracy" stands next to
        "nsp_baseline", the share of the commoner answer. `seed` draws masks and pairs.
        """
        batches = self._pairs(documents, seed=seed)
        size = self.tokenizer.vocabulary_size

        def count(inputs: dict[str, tf.Tensor], labels: Any, weights: Any) -> dict[str, tf.Tensor]:
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
                sums["right_pairs"] = tf.reduce_sum(weights["nsp"] * tf.cast(is_right, tf.float32))
                sums["false"] = tf.reduce_sum(weights["nsp"] * tf.cast(labels["nsp"], tf.float32))
            return sums

        totals = sums_over(batches, count)
        tokens = totals["tokens"][totals["tokens"] > 0]
        num_tokens = max(1.0, tokens.sum())
        shares = tokens / num_tokens
        measures = {
            "mlm_accuracy": totals["right"] / num_tokens,
            "unigram_accuracy": max(shares, default=0.0),
            "mlm_loss": totals["loss"] / num_tokens,
            "unigram_loss": -np.sum(shares * np.log(shares)),
        }
        if "right_pairs" in totals:
            false = totals["false"] / batches.num_rows
            measures["nsp_accuracy"] = totals["right_pairs"] / batches.num_rows
            measures["nsp_baseline"] = max(false, 1 - false)
        return measures | {"masked_tokens": int(tokens.sum())}

    def predict(self, texts: Iterable[str], /, *, batch_size: int = 64) -> list[str]:
        """The strings `texts` with every blank replaced by the likeliest token.

        Blanks beyond `config.max_length` tokens stay; `count_truncated` counts such texts.
        """
        return [answer["text"] for answer in self.ask(texts, batch_size)]

    def candidates(
        self, texts: Iterable[str], count: int = 5, batch_size: int = 64
    ) -> list[list[list[tuple[str, float]]]]:
        """The `count` likeliest tokens for each blank of each text: [[[(token, probability), …], …], …]."""
        if not 1 <= count <= self.tokenizer.vocabulary_size:
            raise ValueError(f"`count` must lie in [1, {self.tokenizer.vocabulary_size}]; it is {count}.")
        check_batch_size(batch_size)

        def finish(outputs: list, rows: list, text: str) -> list[list[tuple[str, float]]]:
            found = []
            for output, row in zip(outputs, rows, strict=True):
                for place in range(len(row.more)):
                    pieces = [self._blanks.pieces[i] for i in output["ids"][place]]
                    found.append(list(zip(pieces, output["probabilities"][place].tolist(), strict=True)))
            return found

        def function() -> Any:
            signature = self.signature()
            inputs = {**signature.inputs, "count": tf.TensorSpec([], tf.int32)}
            return by_keras(signature._replace(function=self._blanks.candidates, inputs=inputs))

        find = self.traced("candidates", function)
        reader, number = self.answerer.reader, np.array(count, "int32")
        asked = Answerer(reader, lambda inputs: find({**inputs, "count": number}), finish)
        return asked.ask(listed(texts), batch_size)

    @classmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> list[str]:
        return read_documents(paths, columns)

    @classmethod
    def read_training(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Texts:
        return read_or_stream(paths, lambda paths: read_documents(paths, columns), "\n\n")

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_unlabelled_texts(path, columns)

    def signature(self) -> Signature:
        return self._blanks.signature()
