"""Pictures written token by token: codes, colours or values, after a class or a text."""

import dataclasses
import functools
import logging
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.asking import Making
from keras_tfm.configs import Refusal
from keras_tfm.data.batches.degradations import as_bytes
from keras_tfm.data.batches.reconstructions import ReconstructionBatches
from keras_tfm.data.batches.written_pictures import WrittenPictureBatches
from keras_tfm.data.tokenizers.kinds import load_tokenizer, train_tokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.generation import Decoder, Guided, Sample
from keras_tfm.generation.processors import Suppress, Temperature, TopK, TopP
from keras_tfm.heads import LanguageModel, TextToCodes, TextToCodesLoss, TokenCrossEntropy
from keras_tfm.jit import jit_compile
from keras_tfm.log import Bar
from keras_tfm.models import DALLE, GPT2, ImageGPT, ImageTransformer
from keras_tfm.models.pictures.codec import ImageCodec
from keras_tfm.models.pictures.image_transformer import ImageTransformerConfig
from keras_tfm.serving.answering import Answerer
from keras_tfm.tasks.baselines import Baselines
from keras_tfm.tasks.columns import columns_of
from keras_tfm.tasks.images.conditions import Classes, Condition, Nothing, Texts, classes_of
from keras_tfm.tasks.images.decoded import DecodedImages, listed_images
from keras_tfm.tasks.images.generator_options import (
    OF_CODES,
    OF_NOISE_ALONE,
    SIDE,
    GeneratorOptions,
    GeneratorTraining,
    ImageGeneratorConfig,
)
from keras_tfm.tasks.images.image_generator import ImageGenerator
from keras_tfm.tasks.images.image_task import preprocessing_in, resizing_entries
from keras_tfm.tasks.images.picture_tokens import PictureTokens, colours_of, tokens_for
from keras_tfm.tasks.task import describe_backbone, load_any, make_backbone
from keras_tfm.training.folder import Path

LOG = logging.getLogger(__name__)
UNIGRAM = "the frequencies of tokens"  # the name of the baseline
KINDS = (GPT2, DALLE, ImageGPT, ImageTransformer)


class ImageWriter(ImageGenerator):
    """An `ImageGenerator` that writes the tokens of pictures, one after another.

    `backbone` is a `GPT2` of the codes of a `codec`, an `ImageGPT` of `colours`, (K, 3) from -1 to 1, or an
    `ImageTransformer` of the values of channels, before which the token of a class stands; or a `DALLE` of
    texts and codes. Tokens are drawn as `temperature`, `top_k` and `top_p` say; with `guidance` their logits
    are u + `guidance` (c - u), where u are the logits without class or text.

    >>> codec = keras_tfm.models.VQGAN.from_size("tiny")  # of 64 codes
    >>> gpt = keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=64 + 2 + 1, max_length=64 + 1)
    >>> writer = keras_tfm.tasks.ImageWriter(gpt, class_names=["dark", "light"], codec=codec)
    >>> writer.generate(["dark"], seed=1).shape
    (1, 32, 32, 3)
    """

    def __init__(
        self,
        backbone: keras.Model,
        config: ImageGeneratorConfig | None = None,
        tokenizer: Tokenizer | None = None,
        codec: ImageCodec | None = None,
        colours: Any = None,
        side: int | None = None,
        **fields: Any,
    ):
        self.config = config = dataclasses.replace(config or ImageGeneratorConfig(), **fields)
        config.refuse_given(OF_NOISE_ALONE, "the model writes tokens")
        if colours is not None and side is None:
            side = round(backbone.config.max_length**0.5)
        self.alphabet = alphabet = tokens_for(backbone, codec, colours, side)
        self._set_condition(condition_of(backbone, config.class_names, tokenizer), tokenizer)
        refuse_unfit(backbone, alphabet, len(config.class_names))
        self.reads_texts = isinstance(backbone, DALLE)
        self.model = TextToCodes(backbone) if self.reads_texts else LanguageModel(backbone, tied=False)
        if codec is not None:
            codec.trainable = False
            self.model.codec = codec  # so that its weights are kept with the model's
        self.image_shape = alphabet.shape
        if config.image_size not in (None, *self.image_shape[:2]):
            raise Refusal(
                "image_size", f"{self.image_shape[0]}, the side of the tokens' images", config.image_size
            )

    @classmethod
    def make(
        cls, examples: Any, options: GeneratorOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        family, tokenizer = options.model_class, None
        names: tuple[str, ...] = ()
        config, given = dataclasses.asdict(options.base()) | dict(changes), parts_of(options, examples)
        if options.reads_texts:
            tokenizer = train_tokenizer(examples.texts, options.tokenizer, options.vocabulary_size)
            config |= {
                "text_vocabulary_size": tokenizer.vocabulary_size + 1,
                "text_length": options.max_length,
            }
            config |= {"num_codes": given["codec"].num_codes, "grid": given["codec"].grid}
        elif family is ImageTransformer:
            if side := fields.get("image_size"):
                config["image_size"] = [side, side]
            if isinstance(examples, tuple):
                LOG.warning("The classes of the images are left out: %s learns none.", options.family)
        else:
            names = classes_of(examples)
            side = fields.get("image_size") or SIDE
            count, length = side_and_count(given, side)
            # A GPT2 has a place for the last token too, which it does not read.
            config |= {"vocabulary_size": count + len(names) + 1, "max_length": length + (family is GPT2)}
            if "colours" in given:
                given["side"] = side
        backbone = family(family.config_class.from_json(config))
        task = cls(backbone, tokenizer=tokenizer, class_names=names, **given | fields)
        size, unit = "{} x {} pixels".format(*task.image_shape), task.alphabet
        made_of = "texts" if options.reads_texts else f"{len(names) or 'no'} classes"
        tokens = f"{unit.length} tokens of {unit.count:,}"
        LOG.info("a new %s, %s, for %s and %s: %s", family.__name__, options.size, size, made_of, tokens)
        return task

    @classmethod
    def of_parts(cls, folder: pathlib.Path, config: ImageGeneratorConfig, model: Mapping[str, Any]) -> Self:
        """A task with fresh weights from the values of `describe_model`."""
        backbone = make_backbone(model)
        codec: Any = make_backbone(model["codec"]) if "codec" in model else None
        tokenizer = load_tokenizer(folder) if isinstance(backbone, DALLE) else None
        others = {name: model[name] for name in ("colours", "side") if name in model}
        return cls(backbone, config, tokenizer, codec, **others)

    def describe_model(self) -> dict[str, Any]:
        codec = getattr(self.model, "codec", None)
        parts = {} if codec is None else {"codec": describe_backbone(codec)}
        return {**super().describe_model(), **parts, **self.alphabet.description()}

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        names = () if task.tokenizer is not None else classes_of(examples)
        if task.config.class_names and set(names) - set(task.config.class_names):
            known = ", ".join(task.config.class_names)
            raise ValueError(f"--from: its classes are {known}, the data's {', '.join(names)}")
        parts: dict[str, Any] = dict(task.alphabet.description())
        adopted = cls(
            task.model.backbone,
            task.config,
            task.tokenizer,
            getattr(task.model, "codec", None),
            **parts,
            **fields,
        )
        adopted.model.set_weights(task.model.get_weights())
        return adopted

    @classmethod
    def reading(
        cls, options: GeneratorOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if options.family in OF_CODES:
            coder = coder_of(options)
            fields = {"image_shape": coder.image_shape, "with_texts": options.reads_texts}
            return fields | {"preprocessing": preprocessing_in(coder.config)}
        config = dataclasses.replace(options.base(), **changes)
        shape = (SIDE, SIDE, 3)
        if isinstance(config, ImageTransformerConfig):
            shape = (*config.image_size, config.num_channels)
        return {"image_shape": shape}

    # What it learns ---------------------------------------------------------------------------------------

    def tokens_of(self, images: Any, flip: bool = False) -> np.ndarray:
        """The tokens (N, L) of checked images, of mirrored ones with `flip`."""
        encode, parts = self._encoder, []
        with Bar(total=len(images), desc="encoding", unit="image") as bar:
            for inputs, _ in ReconstructionBatches(images, self._fitted, ["images"], 64).dataset():
                part = inputs["images"]
                parts.append(encode(part[:, :, ::-1] if flip else part).numpy())
                bar.update(len(parts[-1]))
        return np.concatenate(parts)

    @functools.cached_property
    def _encoder(self) -> Any:
        """A compiled function of images (B, H, W, C) from 0 to 1 to tokens (B, L)."""
        specs = [tf.TensorSpec([None, *self.image_shape], tf.float32)]
        return tf.function(self.alphabet.encode, input_signature=specs, autograph=False)

    def learn(
        self, examples: Any, validation: Any, training: Any, callbacks: Iterable[Any], **keeping: Any
    ) -> dict[str, list[float]]:
        self._encoder.get_concrete_function()  # before --precision lets the codec compute in another one
        return super().learn(examples, validation, training, callbacks, **keeping)

    def _fitted(self, images: tf.Tensor) -> tf.Tensor:
        x = self.preprocessing.fitted(images, *self.image_shape[:2])
        return tf.cast(x, tf.float32) / (255.0 if x.dtype == tf.uint8 else 1.0)

    def batches(
        self, examples: Any, training: GeneratorTraining, is_validation: bool = False
    ) -> WrittenPictureBatches:
        images, *column = columns_of(examples)
        conditions = self.condition.inputs(*column) if column else {}
        learning: dict[str, Any] = {}
        if not is_validation:
            learning = {
                "seed": training.seed,
                "dropout": self.config.class_dropout,
                "absent": self.condition.absent,
            }
            learning["flipped"] = self.tokens_of(images, flip=True) if training.flip else None
        return WrittenPictureBatches(
            self.tokens_of(images), conditions, self._sequences, training.batch_size, **learning
        )

    def _sequences(self, tokens: tf.Tensor, **conditions: tf.Tensor) -> tf.Tensor:
        """Whole sequences (B, 1 + T): what describes the pictures, then their tokens (B, L), which count
        after all others of a `DALLE`.
        """
        prompt = self._prompt(tf.shape(tokens)[0], conditions)
        return tf.concat([prompt, tokens + self._first_token], 1)

    @property
    def _first_token(self) -> int:
        return self.model.backbone.config.num_text_tokens if self.reads_texts else 0

    def _prompt(self, count: Any, conditions: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """What stands before the tokens of pictures, (B, P)."""
        if not self.reads_texts:
            classes = conditions.get("classes", tf.zeros([count], tf.int32))
            return self.alphabet.count + classes[:, None]
        # Ids count from 1: DALL-E's padding is 0.
        ids = tf.where(conditions["padding_mask"], conditions["token_ids"] + 1, 0)
        return self.model.backbone.tokens_of(ids)

    def _forget(self, token_ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """The tokens without class or text."""
        if self.reads_texts:
            return self.model.backbone.forget_text(token_ids, positions)
        return tf.where(positions == 0, self.alphabet.count + len(self.config.class_names), token_ids)

    def objective(self, training: GeneratorTraining) -> dict[str, Any]:
        if self.reads_texts:
            return {"loss": TextToCodesLoss(self.model.backbone.config.text_length)}
        return {"loss": TokenCrossEntropy(name="loss")}

    def baselines(self, examples: Any, validation: Any, seed: int) -> Baselines | None:
        if self.reads_texts:
            return None  # the loss is of texts too
        counts = (
            np.bincount(self.tokens_of(columns_of(examples)[0]).ravel(), minlength=self.alphabet.count) + 1.0
        )
        asked = self.tokens_of(columns_of(validation)[0])
        return Baselines(
            "val_loss", "min", {UNIGRAM: float(-np.log(counts / counts.sum())[asked].mean())}, len(asked)
        )

    def measure(
        self,
        examples: Any,
        features: Any = None,
        seed: int = 0,
        steps: int | None = None,
        guidance: float | None = None,
    ) -> dict[str, Any]:
        """ "bits_per_code", of `ImageGPT` "bits_per_pixel", of `ImageTransformer` "bits_per_dimension", by
        which the model writes the examples, and beside it with "unigram_" before the name the entropy of the
        examples' own tokens. `features` are as in `ImageGenerator.measure`.
        """
        total, count = 0.0, self.alphabet.length
        run = tf.function(self._bits, autograph=False, reduce_retracing=True)
        batches = self.batches(examples, self.training, is_validation=True)
        for inputs, labels in batches.dataset():
            total += float(run(inputs["token_ids"], labels))
        counts = np.bincount(batches.tokens.numpy().ravel(), minlength=self.alphabet.count)
        shares = counts[counts > 0] / counts.sum()
        name = f"bits_per_{self.alphabet.unit}"
        measures = {
            name: total / (len(batches.tokens) * count),
            f"unigram_{name}": float(-(shares * np.log2(shares)).sum()),
        }
        return measures | self._compared(examples, features, seed, steps, guidance)

    def _bits(self, token_ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        logits = self.model({"token_ids": token_ids}, training=False)[:, -self.alphabet.length :]
        labels = labels[:, -self.alphabet.length :]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
        return tf.reduce_sum(losses) / np.log(2).astype("float32")

    # What it makes ----------------------------------------------------------------------------------------

    def _drawer(self, most: int, steps: int | None, guidance: float | None, **writing: Any) -> Any:
        complete = writing.pop("complete", None)
        Making(**writing)
        halves, prefix = self._begun(complete)
        make = self._maker(steps, guidance, length=prefix.shape[1], **writing)

        def draw(seeds: tf.Tensor, inputs: Mapping[str, tf.Tensor]) -> np.ndarray:
            # One shape is compiled: the last picture fills what a batch lacks.
            rows = np.minimum(np.arange(most), len(seeds) - 1)
            inputs = {name: tf.gather(x, rows) for name, x in inputs.items()}
            made = make(tf.gather(seeds, rows), inputs, tf.repeat(prefix, most, 0)).numpy()[: len(seeds)]
            if halves is not None:
                made[:, : len(halves)] = halves
            return made

        return draw

    def _begun(self, complete: Any) -> tuple[np.ndarray | None, tf.Tensor]:
        """The upper half of a picture, 8-bit (h, W, C), or a row of codes less than half, and its tokens
        (1, k); what is below is not seen.
        """
        if complete is None:
            return None, tf.zeros([1, 0], tf.int32)
        images = listed_images(complete)
        images = [images] if isinstance(images, np.ndarray) and images.ndim < 4 else images
        reader = DecodedImages(self.image_shape, self.preprocessing)
        ((rows, _),) = Answerer(reader).read_all(list(images), 0)
        image = reader.join(rows)["images"]
        height = self.image_shape[0] // self.alphabet.rows * (self.alphabet.rows // 2)  # whole codes
        # Convolutions look over the edge: below it stands the mirror image of what is above.
        whole = np.concatenate([image[:, :height], image[:, :height][:, ::-1]], 1)
        whole = np.concatenate([whole, whole[:, -1:]], 1)[:, : self.image_shape[0]]
        kept = self.alphabet.length // self.alphabet.rows * (self.alphabet.rows // 2)
        tokens = self.alphabet.encode(tf.constant(whole))[:, :kept]
        return as_bytes(tf.constant(image[0, :height])).numpy(), tf.cast(tokens, tf.int32)

    def _maker(
        self,
        steps: int | None,
        guidance: float | None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        length: int = 0,
    ) -> Any:
        """A function of seeds (B,), the condition's inputs and the first tokens (B, `length`), which may be
        left out, to pictures (B, H, W, C), 8-bit.
        """
        scale = self._scale(guidance)
        if steps is not None:
            raise Refusal("steps", "left out, as the model writes tokens", steps)
        config = self.config
        key = (
            scale,
            temperature or config.temperature,
            top_k or config.top_k,
            top_p or config.top_p,
            length,
        )
        if key not in self.graphs:
            more = self.alphabet.length - length
            model = self.model if scale == 1 else Guided(self.model, scale, self._forget)
            others = range(self.alphabet.count, self._first_token or self.num_outputs)
            processors: list[Any] = [Temperature(key[1])]
            processors += [Suppress(others)] if len(others) and not self.reads_texts else []
            processors += [TopK(key[2])] if key[2] else []
            processors += [TopP(key[3])] if key[3] else []

            def make(seeds: tf.Tensor, inputs: Mapping[str, tf.Tensor], begun: tf.Tensor) -> tf.Tensor:
                prompt = self._prompt(tf.shape(seeds)[0], inputs)
                prompt = tf.concat([prompt, begun + self._first_token], 1)
                decode = Decoder(model, more, Sample(seeds), processors)
                tokens = decode(prompt)[:, -self.alphabet.length :] - self._first_token
                return as_bytes(self.alphabet.decode(tokens))

            specs: list[Any] = [tf.TensorSpec([None], tf.int32, "seed"), dict(self.condition.specs)]
            specs.append(tf.TensorSpec([None, length], tf.int32, "begun"))
            self.graphs[key] = tf.function(
                make, input_signature=specs, autograph=False, jit_compile=jit_compile()
            )
        made = self.graphs[key]

        def from_the_first(seeds: tf.Tensor, inputs: Mapping[str, tf.Tensor], begun: Any = None) -> tf.Tensor:
            return made(
                seeds, dict(inputs), tf.zeros([tf.shape(seeds)[0], 0], tf.int32) if begun is None else begun
            )

        return from_the_first

    @property
    def num_outputs(self) -> int:
        """How many different tokens the model may write."""
        return self.model.output.shape[-1]


def refuse_unfit(backbone: keras.Model, alphabet: PictureTokens, num_classes: int) -> None:
    """ValueError for a decoder of other tokens than the `alphabet`'s, or of other lengths."""
    config = backbone.config
    if not isinstance(backbone, KINDS):
        raise Refusal(
            "backbone", f"one of {', '.join(kind.__name__ for kind in KINDS)}", type(backbone).__name__
        )
    if isinstance(backbone, DALLE):
        got = config.num_codes, config.grid[0] * config.grid[1]
        if got != (alphabet.count, alphabet.length):
            text = f"a model of {alphabet.length} of {alphabet.count} codes, as `codec` makes"
            raise Refusal("backbone", text, f"one of {got[1]} of {got[0]}")
        return
    if isinstance(backbone, ImageTransformer):
        if num_classes:
            raise Refusal("class_names", "left out, as an ImageTransformer has none", num_classes)
        return
    wanted, places = alphabet.count + num_classes + 1, alphabet.length + isinstance(backbone, GPT2)
    if config.vocabulary_size != wanted or config.max_length < places:
        text = f"a model of {wanted} tokens, {places} places: pictures, {num_classes} classes, no class"
        raise Refusal("backbone", text, f"one of {config.vocabulary_size}, {config.max_length}")


def condition_of(backbone: keras.Model, names: Sequence[str], tokenizer: Tokenizer | None) -> Condition:
    """What a decoder of pictures writes of; ValueError for a tokenizer or classes that do not fit."""
    is_of_texts = isinstance(backbone, DALLE)
    if is_of_texts != (tokenizer is not None):
        wanted = "given, as the model reads texts" if is_of_texts else "left out, as the model reads no texts"
        raise Refusal("tokenizer", wanted, tokenizer and type(tokenizer).__name__)
    if tokenizer is None:
        return Classes(names) if names else Nothing()
    if names:
        raise Refusal("class_names", "left out, as the model reads texts", names)
    if backbone.config.text_vocabulary_size < tokenizer.vocabulary_size + 1:
        raise Refusal(
            "tokenizer",
            f"one of fewer than {backbone.config.text_vocabulary_size} tokens",
            tokenizer.vocabulary_size,
        )
    return Texts(tokenizer, backbone.config.text_length)


def parts_of(options: GeneratorOptions, examples: Any) -> dict[str, Any]:
    """The codec of --codes, and how it reads images, or the colours of the examples, as arguments of
    `ImageWriter`.
    """
    if options.family in OF_CODES:
        coder = coder_of(options)
        return {"codec": coder.model, **resizing_entries(coder.preprocessing)}
    if options.codes is not None:
        raise Refusal("codes", f"left out, as {options.family} writes pixels", options.codes)
    if options.family != "imagegpt":
        return {}
    images = columns_of(examples)[0]
    some = images[np.random.default_rng(0).permutation(len(images))[:500]]
    parts = [
        tf.cast(x["images"], tf.float32) / (255.0 if x["images"].dtype == tf.uint8 else 1.0)
        for x, _ in ReconstructionBatches(some, tf.identity, ["images"], 64).dataset()
    ]
    return {"colours": colours_of(np.concatenate(parts), options.colours)}


def coder_of(options: GeneratorOptions) -> Any:
    """The task of --codes; ValueError for none, and for another task's RUN."""
    if options.codes is None:
        raise Refusal("codes", f"a RUN of image-codes, whose codes {options.family} writes", "left out")
    coder = load_any(options.codes)
    if coder.name != "image-codes":
        raise Refusal("codes", "a RUN of image-codes", f"one of {coder.name}")
    return coder


def side_and_count(given: Mapping[str, Any], side: int) -> tuple[int, int]:
    """How many different tokens pictures have, and how many each."""
    if "codec" in given:
        codec = given["codec"]
        return codec.num_codes, codec.grid[0] * codec.grid[1]
    return len(given["colours"]), side * side
