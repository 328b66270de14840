"""Images, or videos, and texts in one vector space, where an image is close to the texts that describe it."""

import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import keras
import numpy as np
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Config, Count, Length, Option, Refusal, Whole
from keras_tfm.data.batches.encoding import model_inputs
from keras_tfm.data.batches.image_texts import ImageTextBatches, VideoTextBatches
from keras_tfm.data.batches.lengths import rows_by_length
from keras_tfm.data.sources.image_texts import identities
from keras_tfm.data.tokenizers.clip import CLIPTokenizer
from keras_tfm.data.tokenizers.huggingface import (
    read_huggingface_special_tokens,
    read_huggingface_tokenizer,
)
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.heads import Contrastive, CrossMatcher, LogitContrast, SigmoidContrast, SoftmaxContrast
from keras_tfm.models import CLIP, CLIP4Clip, SigLIP
from keras_tfm.serving.examples import check_batch_size, listed, not_text, reasons, refuse_rows
from keras_tfm.tasks.image_text.pair_task import (
    ImageTextTask,
    MatchTraining,
    SeenConfig,
    SeenOptions,
    VideoTextTask,
)
from keras_tfm.tasks.image_text.retrieval import pairs_of, recalls, recalls_of
from keras_tfm.tasks.learning import VOCABULARY, Vocabulary
from keras_tfm.tasks.signatures import Signature
from keras_tfm.tasks.task import (
    check_vocabulary,
)
from keras_tfm.training.folder import Path

SIGMOID = {"logit_scale": float(np.log(10)), "logit_bias": -10.0}  # Zhai et al. 2023, section 3.2
# {name on the command line: (class, what trains its tokenizer, arguments of its head)}
FAMILIES: dict[str, Any] = {
    "clip": (CLIP, CLIPTokenizer.train, {}),
    "clip4clip": (CLIP4Clip, CLIPTokenizer.train, {}),
    "siglip": (SigLIP, SentencePieceTokenizer.train_canonical, SIGMOID),
}


@dataclasses.dataclass(frozen=True)
class ImageTextMatcherConfig(SeenConfig):
    """The preprocessing of a matcher.

    `around` are the special tokens before and after each text, by default start and end for CLIP's tokenizer
    and only the end for others.
    """

    around: SpecialTokens | None = None

    def around_with(self, tokenizer: Tokenizer) -> SpecialTokens:
        """`around`, or its default for the tokenizer."""
        start = (tokenizer.start_id,) if isinstance(tokenizer, CLIPTokenizer) else ()
        return self.around or SpecialTokens(start, (tokenizer.end_id,))


@dataclasses.dataclass(frozen=True)
class MatcherOptions(SeenOptions):
    """An encoder of images or videos and a text encoder with fresh weights, and a vocabulary.

    >>> options = keras_tfm.tasks.MatcherOptions(family="siglip")
    >>> type(options.base()).__name__
    'SigLIPConfig'
    """

    set_here: ClassVar[Mapping[str, str]] = {
        "vocabulary_size": "--vocabulary",
        "max_length": "--max-length",
        "end_id": "--vocabulary",
        "num_frames": "--num-frames",
    }

    family: Annotated[
        Literal["clip", "siglip", "clip4clip"],
        Option(
            "clip learns to choose a text of a batch, siglip to judge each pair by itself; clip4clip is clip "
            "for videos"
        ),
    ] = "clip"
    size: Annotated[
        str, Option("a published size of the family, or tiny, for images of some 32 x 32 pixels")
    ] = "tiny"
    vocabulary_size: Vocabulary = VOCABULARY
    max_length: Annotated[Length, Option("tokens of a text at most, after which it is cut")] = 64
    num_frames: Annotated[
        Count | None, Option("frames that a model of videos reads", default="set by --size")
    ] = None

    cross_layers: Annotated[
        Whole,
        Option(
            "clip4clip: blocks that read a video and a text together; 0 compares their vectors, which alone "
            "can be searched"
        ),
    ] = 0

    def base(self) -> Any:
        config = FAMILIES[self.family][0].config_of_size(self.size)
        if self.cross_layers and self.family != "clip4clip":
            raise Refusal("cross_layers", f"0 for {self.family!r}, which compares vectors", self.cross_layers)
        if self.num_frames is None:
            return config
        if not hasattr(config, "num_frames"):
            raise Refusal("num_frames", f"left out: {self.family!r} reads images, no videos", self.num_frames)
        return dataclasses.replace(config, num_frames=self.num_frames)

    def make(
        self, texts: Sequence[str], changes: Mapping[str, Any], image_size: int | None
    ) -> tuple[Contrastive | CrossMatcher, Tokenizer]:
        """The model, with fields of its configuration changed, and a tokenizer learnt of the texts."""
        family, train, arguments = FAMILIES[self.family]
        tokenizer = train(texts, self.vocabulary_size)
        own = {"vocabulary_size": tokenizer.vocabulary_size, "max_length": self.max_length}
        if self.family != "siglip":
            own["end_id"] = tokenizer.end_id
        if image_size is not None:
            own["image_size"] = image_size
        config = family.config_class.from_json(dataclasses.asdict(self.config(changes)) | own)
        if self.cross_layers:
            return CrossMatcher(family(config), self.cross_layers), tokenizer
        return Contrastive(family(config), **arguments), tokenizer


@dataclasses.dataclass(frozen=True)
class HeadArguments(Config):
    """The arguments of `Contrastive`, or of a `CrossMatcher` of some layers, other than the model."""

    logit_scale: float = float(np.log(1 / 0.07))
    logit_bias: float | None = None
    num_layers: Whole = 0
    cross_layers: Whole = 0  # what older folders call `num_layers`


class ImageTextMatcher(ImageTextTask):
    """Maps images and texts to vectors of one space, by the two encoders of a `CLIP` or `SigLIP` model.

    `fit` and `evaluate` take (images, texts), where a row is a pair that belongs together, or a
    `data.ImageTexts`. Images may have the forms that `ImageTask` describes. A `CLIP4Clip` makes a
    `VideoTextMatcher`.

        task = ImageTextMatcher.from_huggingface("clip-vit-base-patch32/")
        task.similarity(["photo.jpg"], ["a cat", "a dog"])  # (1, 2), cosines

    Args:
        model: a `heads.Contrastive` model.
        tokenizer: the tokenizer of the texts.
        config: the preprocessing of images and texts.

    Raises:
        ValueError: if the tokenizer does not fit the model.

    >>> images, texts = np.zeros((8, 32, 32, 3), "uint8"), ["a dark picture", "a black picture"] * 4
    >>> options = keras_tfm.tasks.MatcherOptions(vocabulary_size=600)
    >>> small = {"num_image_layers": 1, "num_text_layers": 1}
    >>> task = keras_tfm.tasks.ImageTextMatcher.make(keras_tfm.data.ImageTexts(images, texts), options, small)
    >>> history = task.fit((images, texts), (images, texts), epochs=1)
    >>> task.similarity(images[:1], ["a cat", "a dog"]).shape
    (1, 2)
    """

    name = "match-images"
    training = MatchTraining(epochs=30, patience=None, schedule="cosine", weight_decay=0.1)
    given_weights = types.MappingProxyType({"learning_rate": 1e-5})
    model_options = MatcherOptions
    config_class = ImageTextMatcherConfig
    make_batches: ClassVar[Any] = ImageTextBatches

    def __init__(
        self, model: Contrastive, tokenizer: Tokenizer, config: ImageTextMatcherConfig | None = None
    ):
        self.config, self.tokenizer = config or ImageTextMatcherConfig(), tokenizer
        self.model, towers = model, model.backbone
        self.resized(towers, self.config.image_size)  # raises for another size: positions fix it
        self.take_images(towers)
        check_vocabulary(towers.config, tokenizer)
        end = getattr(towers.config, "end_id", tokenizer.end_id)
        if end != tokenizer.end_id:
            raise ValueError(
                f"The model ends texts with the token {end}, the tokenizer with {tokenizer.end_id}."
            )

    # Where it comes from -------------------------------------------------------------------------------

    @classmethod
    def make(cls, examples: Any, options: MatcherOptions, changes: Mapping[str, Any], **fields: Any) -> Self:
        model, tokenizer = options.make(examples.texts, changes, fields.get("image_size"))
        return cls(model, tokenizer, ImageTextMatcherConfig(**fields))

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, Contrastive | CrossMatcher)

    @classmethod
    def from_huggingface(cls, name: Path, **fields: Any) -> Self:
        """Read the CLIP or SigLIP model, the tokenizer and the preprocessing of a folder or hub id.

        Raises CheckpointError or DataError if anything is missing or not as expected.
        """
        from keras_tfm.convert import CheckpointError, find_folder
        from keras_tfm.convert.preprocessing import image_model

        folder = find_folder(name)
        model, published = image_model(folder)
        if not cls.takes(model):
            raise CheckpointError(name, "model_type", "clip or siglip", type(model).__name__)
        tokenizer = read_huggingface_tokenizer(folder)
        around = read_huggingface_special_tokens(folder, tokenizer)
        return cls(model, tokenizer, ImageTextMatcherConfig(**published | {"around": around} | fields))

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for transformers: configurations, tokenizer and weights.

        Raises TypeError for a tokenizer that transformers does not have.
        """
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.folder import max_length_writer
        from keras_tfm.convert.preprocessing import preprocessor_writer

        is_clip = isinstance(self.model.backbone, keras_tfm.models.CLIP)
        kind = "CLIPImageProcessor" if is_clip else "SiglipImageProcessor"
        images = preprocessor_writer(self.preprocessing, self.image_shape, kind)
        writers = [images, self.tokenizer.save_huggingface, max_length_writer(self.max_length)]
        save_huggingface(self.model, folder, overwrite, writers=writers)

    @staticmethod
    def make_head(backbone: keras.Model, **arguments: Any) -> Contrastive | CrossMatcher:
        head = HeadArguments.from_json(arguments)
        if num_layers := head.num_layers or head.cross_layers:
            return CrossMatcher(backbone, num_layers)
        return Contrastive(backbone, head.logit_scale, head.logit_bias)

    # What it learns ------------------------------------------------------------------------------------

    @property
    def around(self) -> SpecialTokens:
        return self.config.around_with(self.tokenizer)

    @property
    def max_length(self) -> int:
        return self.model.backbone.config.max_length

    def batches(
        self, examples: Any, training: MatchTraining, is_validation: bool = False
    ) -> ImageTextBatches:
        packed = self.encode_all(examples.texts)
        order = {} if is_validation else {"seed": training.seed, "max_shift": training.max_shift}
        texts = self._inputs(packed)
        return self.make_batches(examples[0], texts, self.prepare, training.batch_size, **order)

    def objective(self, training: MatchTraining) -> dict[str, Any]:
        return {"loss": SoftmaxContrast() if self.model.logit_bias is None else SigmoidContrast()}

    def learner(self, training: MatchTraining) -> keras.Model:
        return self.model.learner()

    def measure(self, examples: Any) -> dict[str, Any]:
        """Recall at 1, 5 and 10, from 0 to 1, in both directions.

        It is the share of images for which one of their own texts is among the 1, 5 or 10 nearest texts, and
        the share of texts for which one of their images is. Equal images, and equal texts, count once.
        """
        self.tell_cut(examples.texts)
        shown, texts = examples
        return recalls(self.encode_images(shown), self.encode_texts(texts), identities(shown), texts)

    # What it answers -----------------------------------------------------------------------------------

    def __call__(self, batch: Mapping[str, Any], training: bool = False) -> tf.Tensor:
        """The logits (I, T) of raw {"images": I, "texts": T}."""
        images = np.asarray(self.check_images(batch[self.seen]))
        texts = self.text_inputs(tf.constant(list(batch["texts"])))
        return self.model({self.seen: self.prepare(images), **texts}, training=training)

    def text_inputs(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The inputs of the text encoder for strings (B,). Runs in a graph."""
        return self._inputs({"token_ids": self.tokens(texts)["token_ids"]})

    def _inputs(self, packed: dict[str, tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Dense inputs, padded to the full length if the text encoder also attends to padding."""
        inputs = model_inputs(packed, self.tokenizer.pad_id)
        if "padding_mask" in self.model.backbone.input:
            return inputs
        missing = self.max_length - tf.shape(inputs["token_ids"])[1]
        padded = tf.pad(inputs["token_ids"], [[0, 0], [0, missing]], constant_values=self.tokenizer.pad_id)
        return {"token_ids": padded}

    def encode(self, images: tf.Tensor) -> tf.Tensor:
        """Vectors (B, E) of length 1 for raw images (B, H, W, C). Runs in a graph."""
        tower = getattr(self.model.backbone, self.model.backbone.sides[0])
        outputs = tower({self.seen: self.prepare(images)}, training=False)
        return tf.cast(outputs["embeddings"], tf.float32)

    def encode_strings(self, texts: tf.Tensor) -> tf.Tensor:
        """Vectors (B, E) of length 1 for strings (B,). Runs in a graph."""
        outputs = self.model.backbone.text(self.text_inputs(texts), training=False)
        return tf.cast(outputs["embeddings"], tf.float32)

    @property
    def width(self) -> int:
        """E, the width of the vectors."""
        return self.model.backbone.config.embedding_dim

    def encode_images(self, images: Any, /, *, batch_size: int = 64) -> np.ndarray:
        """The vectors of the images: an array (I, E), each of length 1; ValueError for a broken file."""
        return self.outputs(images, "vector", self.width, batch_size)

    predict = encode_images

    def encode_texts(self, texts: Iterable[str], /, *, batch_size: int = 64) -> np.ndarray:
        """The vectors of the strings: an array (T, E), each of length 1.

        Only the first `max_length` tokens of a text are read.
        """
        check_batch_size(batch_size)
        strings: list[str] = listed(texts, "texts")
        refuse_rows(reasons(strings, not_text))
        vectors = np.zeros((len(strings), self.width), "float32")
        encode = self.traced(
            "texts", lambda: tf.function(self.encode_strings, autograph=False, reduce_retracing=True)
        )
        for rows in rows_by_length(map(len, strings), batch_size, "text"):
            vectors[rows] = encode(tf.constant([strings[row] for row in rows]))
        return vectors

    def encode_labels(self, labels: Sequence[str], templates: Sequence[str] = ("{}",)) -> np.ndarray:
        """The vectors (L, E) of `labels`, which replace "{}" in each of the `templates`.

        A label's vector is the mean over the templates, scaled to length 1 (Radford et al. 2021, section
        3.1.4). Raises ValueError for a template without "{}".
        """
        labels, templates = listed(labels, "labels"), listed(templates, "templates")
        for template in templates:
            if "{}" not in template:
                raise ValueError(f"`template` must have {{}} where the label goes; it is {template!r}.")
        means = np.mean(
            [self.encode_texts([template.replace("{}", x) for x in labels]) for template in templates], axis=0
        )
        return means / np.linalg.norm(means, axis=-1, keepdims=True)

    def similarity(self, images: Any, texts: Iterable[str]) -> np.ndarray:
        """The cosine of each image and each text: an array (I, T), from -1 to 1."""
        return self.encode_images(images) @ self.encode_texts(texts).T

    def probabilities(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """The probabilities (I, T) that the vectors `images` (I, E) and `texts` (T, E) belong together.

        With CLIP they sum to 1 for each image; with SigLIP each pair has a probability by itself.
        """
        head = self.model.head
        logits = np.exp(float(head.scale.numpy())) * (images @ texts.T)
        if head.bias is None:
            return tf.nn.softmax(logits, axis=-1).numpy()
        return tf.nn.sigmoid(logits + float(head.bias.numpy())).numpy()

    def as_line(self, answer: np.ndarray) -> str:
        return " ".join(f"{x:.6g}" for x in answer)

    def signature(self) -> Signature:
        """The signature for images; a SavedModel also has "texts", which returns the vectors of strings."""
        strings = [tf.TensorSpec([None], tf.string, "text")]
        texts = {"texts": (lambda text: {"vector": self.encode_strings(text)}, strings)}
        signature = self.signature_of(lambda images: {"vector": self.encode(images)}, {"kind": "arrays"})
        return signature._replace(others=texts)


class VideoTextMatcher(VideoTextTask, ImageTextMatcher):
    """An `ImageTextMatcher` of videos: `fit` and `evaluate` take (videos, texts), `data.VideoTexts`.

    Videos are what `VideoTask` describes. In training each epoch shows other clips of a video.

        clip = ImageTextMatcher.from_huggingface("clip-vit-base-patch32/")
        model = heads.Contrastive(models.CLIP4Clip.around(clip.model.backbone, num_frames=12))
        task = VideoTextMatcher(model, clip.tokenizer, clip.config)

    >>> videos, texts = [np.zeros((6, 32, 32, 3), "uint8")] * 8, ["nothing happens", "no change"] * 4
    >>> options = keras_tfm.tasks.MatcherOptions("clip4clip", num_frames=3, vocabulary_size=600)
    >>> small = {"num_image_layers": 1, "num_text_layers": 1}
    >>> pairs = keras_tfm.data.VideoTexts(videos, texts)
    >>> task = keras_tfm.tasks.ImageTextMatcher.make(pairs, options, small)
    >>> history = task.fit(pairs, pairs, epochs=1)
    >>> task.similarity(videos[:1], ["a cat runs", "a dog sleeps"]).shape
    (1, 2)
    """

    make_batches = VideoTextBatches

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """TypeError: transformers has no such model."""
        raise TypeError(f"transformers has no {type(self.model.backbone).__name__} of videos and texts.")

    @property
    def has_vectors(self) -> bool:
        """Whether videos and texts have vectors: not where a `CrossMatcher` reads them together."""
        return isinstance(self.model, Contrastive)

    def objective(self, training: MatchTraining) -> dict[str, Any]:
        return super().objective(training) if self.has_vectors else {"loss": LogitContrast()}

    def measure(self, examples: Any) -> dict[str, Any]:
        if self.has_vectors:
            return super().measure(examples)
        self.tell_cut(examples.texts)
        videos, texts = examples
        rows, columns, is_right = pairs_of(identities(videos), texts)
        return recalls_of(self.similarity(videos[np.array(rows)], [texts[i] for i in columns]), is_right)

    def similarity(self, images: Any, texts: Iterable[str], batch_size: int = 8) -> np.ndarray:
        """The cosine of each video and each text, an array (I, T); of a `CrossMatcher` its logits."""
        if self.has_vectors:
            return super().similarity(images, texts)
        strings: list[str] = listed(texts, "texts")
        refuse_rows(reasons(strings, not_text))
        inputs = self.text_inputs(tf.constant(strings))
        parts = [
            self.model({self.seen: self.prepare(part), **inputs}, training=False)
            for part in self.image_parts(images, batch_size)
        ]
        return np.concatenate([np.zeros((0, len(strings)), "float32"), *parts])

    def probabilities(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        self._refuse_vectors()
        return super().probabilities(images, texts)

    def signature(self) -> Signature:
        self._refuse_vectors()
        return super().signature()

    def encode_texts(self, texts: Iterable[str], /, *, batch_size: int = 64) -> np.ndarray:
        self._refuse_vectors()
        return super().encode_texts(texts, batch_size=batch_size)

    def _refuse_vectors(self) -> None:
        """Raise ValueError where there are no vectors."""
        if not self.has_vectors:
            raise ValueError(
                "A matcher with cross layers has no vectors to predict, search or export: ask its "
                "`similarity`."
            )

    def encode_videos(self, videos: Any, /, *, batch_size: int = 8) -> np.ndarray:
        """The vectors of the videos: an array (I, E), each of length 1; ValueError for a broken file."""
        return self.encode_images(videos, batch_size=batch_size)


ImageTextMatcher.of_videos = VideoTextMatcher
