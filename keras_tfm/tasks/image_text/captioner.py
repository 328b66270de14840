"""Captions: an image, or a video, to a line of text."""

import dataclasses
import functools
import pathlib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import keras
import numpy as np
import sacrebleu
import tensorflow as tf

from keras_tfm.configs import Between, Count, Length, Option, Refusal, meant
from keras_tfm.data.batches.image_texts import CaptionBatches, VideoCaptionBatches
from keras_tfm.data.sources.image_texts import identities
from keras_tfm.data.tokenizers.huggingface import (
    read_huggingface_special_tokens,
    read_huggingface_tokenizer,
)
from keras_tfm.data.tokenizers.kinds import load_tokenizer, train_tokenizer
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.generation import CompiledDecoding, DecodingDefaults, DecodingOptions, EndTokens
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import VisionEncoderDecoder, VisionEncoderDecoderConfig, tiny_config
from keras_tfm.models.multimodal.vision_encoder_decoder import ENCODERS, OF_ENCODER, OF_VIDEOS
from keras_tfm.tasks.grouped import distinct
from keras_tfm.tasks.image_text.pair_task import (
    ImageTextTask,
    MatchTraining,
    SeenConfig,
    SeenOptions,
    VideoTextTask,
)
from keras_tfm.tasks.learning import VOCABULARY, Vocabulary
from keras_tfm.tasks.measures import token_metrics
from keras_tfm.tasks.signatures import Inspection, Signature
from keras_tfm.tasks.task import check_vocabulary
from keras_tfm.tasks.text.writing import Writing, answers_of, without_search, write_symbols
from keras_tfm.training.folder import Path

NEW_TOKENS = 128  # that are generated at most unless something else is said
FAMILIES = {name.lower(): family for name, family in sorted(ENCODERS.items())}


def _names(of_videos: bool) -> str:
    return ", ".join(name for name, family in FAMILIES.items() if (family in OF_VIDEOS) == of_videos)


# The fields of a decoder of each size, where they are not the family's defaults.
DECODERS: dict[str, dict[str, Any]] = {
    "tiny": {"num_layers": 3, "dim": 128, "num_heads": 4},
    "base": {"dim": 768, "num_layers": 6, "num_heads": 12, "intermediate_dim": 3072},
}


@dataclasses.dataclass(frozen=True)
class CaptionerConfig(SeenConfig):
    """How a `Captioner` prepares images or videos, which special tokens surround a caption, how it decodes.

    Args:
        around: the ids before and after each caption, by default the tokenizer's start and end.
        decoding: the defaults of `generate`.
    """

    around: SpecialTokens | None = None
    decoding: DecodingDefaults = dataclasses.field(default_factory=DecodingDefaults)


@dataclasses.dataclass(frozen=True)
class CaptionerOptions(SeenOptions):
    """An encoder of images or videos and a text decoder with fresh weights, and a vocabulary.

    >>> options = keras_tfm.tasks.CaptionerOptions(encoder="deit", decoder="bart", max_length=32)
    >>> options.base().encoder, options.base().decoder, options.base().max_length
    ('DeiT', 'BART', 32)
    """

    set_here: ClassVar[Mapping[str, str]] = {
        "encoder": "--encoder",
        "decoder": "--decoder",
        "vocabulary_size": "--vocabulary",
        "max_length": "--max-length",
    }

    encoder: Annotated[
        str,
        Option(f"the family of the images' model: {_names(False)}; or of the videos' model: {_names(True)}"),
    ] = "vit"
    decoder: Annotated[Literal["gpt2", "bart"], Option("the family of the text's model")] = "gpt2"
    size: Annotated[
        Literal["tiny", "base"],
        Option("size of both models: tiny, for images of some 32 x 32 pixels, or base"),
    ] = "tiny"
    tokenizer: Annotated[
        Literal["bytes", "sentencepiece"], Option("byte-level pairs, or sub-words of SentencePiece")
    ] = "bytes"
    vocabulary_size: Vocabulary = VOCABULARY
    max_length: Annotated[Length, Option("tokens of a caption at most, after which it is cut")] = 64
    num_frames: Annotated[
        Count | None, Option("frames that a model of videos reads", default="set by --size")
    ] = None

    def base(self) -> VisionEncoderDecoderConfig:
        if self.encoder not in FAMILIES:
            raise ValueError(
                f"There is no encoder {self.encoder!r}{meant(self.encoder, FAMILIES)}; there are "
                f"{', '.join(FAMILIES)}."
            )
        family = FAMILIES[self.encoder]
        encoder = dataclasses.asdict(tiny_config(family) if self.size == "tiny" else family.config_class())
        encoder |= self._frames
        images = {name: encoder.pop(name) for name in OF_ENCODER}
        is_gpt2 = self.decoder == "gpt2"
        decoder = {} if is_gpt2 and self.size == "base" else dict(DECODERS[self.size])
        if self.decoder == "bart" and self.size == "tiny":
            decoder["intermediate_dim"] = 4 * decoder["dim"]
        return VisionEncoderDecoderConfig(
            **images,
            vocabulary_size=self.vocabulary_size,
            max_length=self.max_length,
            encoder=family.__name__,
            encoder_config=encoder,
            decoder="GPT2" if is_gpt2 else "BART",
            decoder_config=decoder,
        )

    @property
    def _frames(self) -> dict[str, int]:
        """The field of the encoder that `num_frames` sets; ValueError where it has none."""
        if self.num_frames is None:
            return {}
        if FAMILIES[self.encoder] not in OF_VIDEOS:
            raise Refusal(
                "num_frames", f"left out: {self.encoder!r} reads images, no videos", self.num_frames
            )
        return {"num_frames": self.num_frames}

    def config(self, changes: Mapping[str, Any]) -> VisionEncoderDecoderConfig:
        if "encoder_config" in changes:  # which replaces the size's as a whole
            changes = {**changes, "encoder_config": changes["encoder_config"] | self._frames}
        return super().config(changes)

    def make(
        self, texts: Sequence[str], changes: Mapping[str, Any], image_size: int | None
    ) -> tuple[LanguageModel, Tokenizer]:
        """The model, with fields of its configuration changed, and a tokenizer learnt of the texts."""
        tokenizer = train_tokenizer(texts, self.tokenizer, self.vocabulary_size)
        own: dict[str, Any] = {"vocabulary_size": tokenizer.vocabulary_size, "max_length": self.max_length}
        if image_size is not None:
            own["image_size"] = image_size
        fields = dataclasses.asdict(self.config(changes)) | own
        if fields["decoder"] == "BART":
            ids = {f"{role}_id": getattr(tokenizer, f"{role}_id") for role in ("pad", "start", "end")}
            fields["decoder_config"] = fields["decoder_config"] | ids
        config = VisionEncoderDecoderConfig.from_json(fields)
        return LanguageModel(VisionEncoderDecoder(config)), tokenizer


@dataclasses.dataclass(frozen=True)
class CaptionTraining(MatchTraining):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[Count, Option("pairs in a batch")] = 64
    label_smoothing: Annotated[
        Annotated[float, Between(0, 1, is_open=True)],
        Option("the share of each label that is spread over all tokens"),
    ] = 0.0


class Captioner(ImageTextTask):
    """Writes a text about an image, by a `LanguageModel` around a `VisionEncoderDecoder`.

    Images are as in `ImageTask`. `fit` and `evaluate` take (images, texts), `data.ImageTexts`; an image may
    occur several times, each time with another text. A model of videos makes a `VideoCaptioner`. Raises
    ValueError if the tokenizer has more tokens than the model.

        task = Captioner.from_huggingface("vit-gpt2-image-captioning/")
        task.generate(["photo.jpg"], beam_size=4)  # ["a cat sitting on a sofa"]

    >>> images, texts = np.zeros((8, 32, 32, 3), "uint8"), ["a dark picture"] * 8
    >>> options = keras_tfm.tasks.CaptionerOptions(vocabulary_size=300)
    >>> small = {"encoder_config": {"patch_size": 8, "num_layers": 1}, "decoder_config": {"num_layers": 1}}
    >>> task = keras_tfm.tasks.Captioner.make(keras_tfm.data.ImageTexts(images, texts), options, small)
    >>> history = task.fit((images, texts), (images, texts), epochs=1)
    >>> len(task.generate(images[:2], max_new_tokens=4))
    2
    """

    name = "caption"
    digits = 2
    training = CaptionTraining(epochs=30, patience=None, schedule="cosine", weight_decay=0.05)
    given_weights = types.MappingProxyType({"learning_rate": 1e-4})
    judged_by = ("val_token_cross_entropy", "min")
    model_options = CaptionerOptions
    make_head = LanguageModel
    config_class = CaptionerConfig
    make_batches: ClassVar[Any] = CaptionBatches
    processor: ClassVar[str | None] = None  # the class with which transformers reads images, None for any

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, config: CaptionerConfig | None = None):
        self.config, self.tokenizer = config or CaptionerConfig(), tokenizer
        backbone = self.resized(model.backbone, self.config.image_size)
        self.model = model.on(backbone)
        self.take_images(backbone)
        check_vocabulary(backbone.config, tokenizer)
        defaults = self.config.decoding
        defaults.check_ids(backbone.config.vocabulary_size)
        self._start_id = tokenizer.start_id if defaults.start_id is None else defaults.start_id
        self._pad_id = tokenizer.pad_id if defaults.pad_id is None else defaults.pad_id
        self._stop = EndTokens(*defaults.end_ids or (tokenizer.end_id,))

    # Where it comes from -------------------------------------------------------------------------------

    @classmethod
    def make(
        cls, examples: Any, options: CaptionerOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        model, tokenizer = options.make(examples.texts, changes, fields.get("image_size"))
        return cls(model, tokenizer, CaptionerConfig(**fields))

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, LanguageModel) and isinstance(model.backbone, VisionEncoderDecoder)

    @classmethod
    def from_huggingface(cls, name: Path, **fields: Any) -> Self:
        """The `VisionEncoderDecoderModel` in the folder `name`, or with this hub id, its tokenizer, its
        preprocessing and its decoding defaults.

        Raises CheckpointError or DataError if a file is missing or invalid.
        """
        from keras_tfm.convert import CheckpointError, find_folder, read_decoding
        from keras_tfm.convert.preprocessing import image_model

        folder = find_folder(name)
        model, published = image_model(folder)
        if not cls.takes(model):
            raise CheckpointError(name, "model_type", "vision-encoder-decoder", type(model).__name__)
        tokenizer, decoding = read_huggingface_tokenizer(folder), read_decoding(folder, True, False)
        inner = read_huggingface_special_tokens(folder, tokenizer)
        start = tokenizer.start_id if decoding.start_id is None else decoding.start_id
        ends = inner.suffix or (decoding.end_ids or (tokenizer.end_id,))[:1]
        around = SpecialTokens([start, *inner.prefix], list(ends))
        published |= {"around": around, "decoding": decoding}
        try:
            return cls(model, tokenizer, CaptionerConfig(**published | fields))
        except ValueError as error:
            raise CheckpointError(name, None, "files that go together", str(error)) from None

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: the configurations of model, images and decoding, the
        tokenizer and the weights. Raises TypeError or ValueError if `transformers` has no such model.
        """
        from keras_tfm.convert import save_huggingface, write_decoding
        from keras_tfm.convert.preprocessing import preprocessor_writer

        ids = {"start_id": self._start_id, "pad_id": self._pad_id, "end_ids": self._stop.end_ids}
        writers = [
            write_decoding(dataclasses.replace(self.config.decoding, **ids)),
            preprocessor_writer(self.preprocessing, self.image_shape, self.processor),
            self.tokenizer.save_huggingface,
        ]
        entries = {
            "decoder_start_token_id": self._start_id,
            "pad_token_id": self._pad_id,
            "eos_token_id": self._stop.end_ids[0],
        }
        save_huggingface(self.model, folder, overwrite, entries, writers=writers)

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: CaptionerConfig, model: dict[str, Any]) -> Self:
        return cls(cls.make_model(model, config), load_tokenizer(folder), config)

    # What it learns ------------------------------------------------------------------------------------

    @property
    def around(self) -> SpecialTokens:
        return self.config.around or SpecialTokens([self._start_id], [self._stop.end_ids[0]])

    @property
    def max_length(self) -> int:
        return self.model.backbone.config.max_length

    def batches(
        self, examples: Any, training: CaptionTraining, is_validation: bool = False
    ) -> CaptionBatches:
        token_ids = self.encode_all(examples.texts)["token_ids"]
        order = {} if is_validation else {"seed": training.seed, "max_shift": training.max_shift}
        return self.make_batches(examples[0], token_ids, self.prepare, training.batch_size, **order)

    def objective(self, training: CaptionTraining) -> dict[str, Any]:
        return {
            "loss": TokenCrossEntropy(training.label_smoothing),
            "weighted_metrics": token_metrics(),
        }

    def measure(self, examples: Any, **options: Any) -> dict[str, Any]:
        """sacreBLEU (cased, 13a), chrF, and the percentage of answers that equal a text of their image.

        Each answer is compared with all texts of its image; equal images count once. `options` are arguments
        of `generate`.
        """
        rows, ids = distinct(identities(examples[0]))
        texts: list[list[str]] = [[] for _ in rows]
        for number, text in zip(ids, examples.texts, strict=True):
            texts[number].append(text)
        answers = self.generate(examples[0][np.asarray(rows)], **options)
        most = max(map(len, texts))
        references = [[x[i] if i < len(x) else None for x in texts] for i in range(most)]
        bleu = sacrebleu.metrics.BLEU()
        return {
            "bleu": bleu.corpus_score(answers, references).score,
            "chrf": sacrebleu.metrics.CHRF().corpus_score(answers, references).score,
            "exact_match": 100 * float(np.mean([a in x for a, x in zip(answers, texts, strict=True)])),
            "bleu_signature": str(bleu.get_signature()),
        }

    # What it answers -----------------------------------------------------------------------------------

    def generate(
        self, images: Any, /, *, max_new_tokens: int | None = None, batch_size: int = 64, **options: Any
    ) -> list[str]:
        """A text for each image, of at most `max_new_tokens` tokens; by default 128, or as many as the model
        has positions for.

        `options` are the fields of `DecodingOptions`: `beam_size`, `temperature`, `seed` and others. Invalid
        UTF-8 becomes U+FFFD. Raises ValueError for a file that is not an image.
        """
        texts: list[str] = []
        pad_id = self.tokenizer.pad_id
        for token_ids in self._continuations(images, pad_id, max_new_tokens, batch_size, **options):
            texts += [
                x.decode("utf-8", "replace") for x in self.tokenizer.detokenize(token_ids[:, 1:]).numpy()
            ]
        return texts

    predict = generate
    writes_texts, measures_texts = True, True

    def generate_ids(
        self, images: Any, max_new_tokens: int | None = None, batch_size: int = 64, **options: Any
    ) -> np.ndarray:
        """Start token and continuation of each image: (B, 1 + new tokens), padded; `options` as in
        `generate`.
        """
        chosen = self._options(max_new_tokens, **options)
        parts = self._continuations(images, self._pad_id, max_new_tokens, batch_size, **options)
        found = [x.numpy() for x in parts]
        return np.concatenate([np.zeros((0, 1 + chosen.max_new_tokens), "int32"), *found])

    def _continuations(
        self, images: Any, pad_id: int, max_new_tokens: int | None, batch_size: int, **options: Any
    ) -> Iterator[tf.Tensor]:
        """Start token and continuation of the images, batch by batch, with `pad_id` behind their ends."""
        chosen, first = self._options(max_new_tokens, **options), 0
        limits = self.model, self._stop, pad_id, self.max_length
        decode = self.traced(("decoding", pad_id), lambda: CompiledDecoding(*limits))
        for part in self.image_parts(images, batch_size):
            yield decode(chosen.reseeded(first), **self._inputs(part))
            first += len(part)

    def _inputs(self, images: np.ndarray | tf.Tensor) -> dict[str, Any]:
        """What decoding takes for raw images (B, H, W, C); runs in a graph."""
        starts = tf.fill([tf.shape(images)[0], 1], self._start_id)
        return {"token_ids": starts, "context": {self.seen: self.prepare(images)}}

    def _options(self, max_new_tokens: int | None = None, **options: Any) -> DecodingOptions:
        room, size = self.max_length - 1, self.model.backbone.config.vocabulary_size
        return self.config.decoding.within(room, NEW_TOKENS, size, max_new_tokens, **options)

    def inspect(self, examples: Any, max_new_tokens: int | None = None, **options: Any) -> Inspection:
        self._options(max_new_tokens, **options)
        return super().inspect(examples)

    def __call__(self, batch: Mapping[str, Any], training: bool = False) -> tf.Tensor:
        """The logits (B, T, V) of {"images": raw, "decoder_token_ids": (B, T)}."""
        images = np.asarray(self.check_images(batch[self.seen]))
        return self.model({**batch, self.seen: self.prepare(images)}, training=training)

    def signature(self, max_new_tokens: int | None = None, **options: Any) -> Signature:
        writing = Writing(
            self.model,
            self.tokenizer,
            self._start_id,
            self._stop.end_ids,
            (),
            self._options(max_new_tokens, **options),
            context=lambda inputs: {self.seen: self.prepare(inputs[self.seen])},
            sampled=functools.partial(self._options, max_new_tokens, **without_search(options)),
        )
        return self.signature_of(lambda images: {}, answers_of(self.tokenizer))._replace(
            function=writing, write_files=functools.partial(write_symbols, self.tokenizer)
        )


class VideoCaptioner(VideoTextTask, Captioner):
    """A `Captioner` of videos: `fit` and `evaluate` take (videos, texts), `data.VideoTexts`.

    Videos are what `VideoTask` describes. In training each epoch shows other clips of a video.

    >>> videos, texts = [np.zeros((6, 16, 16, 3), "uint8")] * 8, ["nothing happens"] * 8
    >>> options = keras_tfm.tasks.CaptionerOptions(encoder="vivit", num_frames=4, vocabulary_size=300)
    >>> encoder = {"tubelet_size": (2, 8, 8), "num_layers": 1, "dim": 32, "num_heads": 2}
    >>> small = {"image_size": 16, "encoder_config": encoder, "decoder_config": {"num_layers": 1}}
    >>> task = keras_tfm.tasks.Captioner.make(keras_tfm.data.VideoTexts(videos, texts), options, small)
    >>> history = task.fit((videos, texts), (videos, texts), epochs=1)
    >>> len(task.generate(videos[:2], max_new_tokens=4))
    2
    """

    make_batches = VideoCaptionBatches
    processor = "VideoMAEImageProcessor"


Captioner.of_videos = VideoCaptioner
