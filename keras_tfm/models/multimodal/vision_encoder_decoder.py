"""An encoder of images or videos and a text decoder that attends to its output, as in transformers'
`VisionEncoderDecoderModel`.

The decoder is GPT-2's (Radford et al. 2019) or BART's (Lewis et al. 2020). Each block of GPT-2 gains a
cross-attention between its self-attention and its feed-forward layer. If the encoder's width differs from the
decoder's, a dense layer projects the encoder's output.
"""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import keras
import numpy as np

from keras_tfm.configs import Length, Size
from keras_tfm.layers.embeddings import TokenAndPositionEmbedding, TokenEmbedding
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import Trace
from keras_tfm.models.text import bart, gpt2
from keras_tfm.models.text.seq2seq import DecodingModel, Stack
from keras_tfm.models.video.timesformer import TimeSformer
from keras_tfm.models.video.videomae import VideoMAE
from keras_tfm.models.video.vivit import ViViT
from keras_tfm.models.vision.images import ImageConfig
from keras_tfm.models.vision.swin import Swin
from keras_tfm.models.vision.tiny import FIELDS
from keras_tfm.models.vision.vit import ViT
from keras_tfm.training.model import Model
from keras_tfm.training.weights import assign_by_path, by_path

OF_VIDEOS = (ViViT, TimeSformer, VideoMAE)
ENCODERS = {family.__name__: family for family in (ViT, Swin, *FIELDS, *OF_VIDEOS)}
DECODERS: dict[str, Any] = {"GPT2": gpt2.GPT2, "BART": bart.BART}
OF_ENCODER = ("image_size", "num_channels")  # the fields of an encoder that are this configuration's
OF_DECODER = ("vocabulary_size", "max_length")


@dataclasses.dataclass(frozen=True)
class VisionEncoderDecoderConfig(ImageConfig):
    """The encoder and the decoder of a `VisionEncoderDecoder`, each by its name and its own configuration.

    Args:
        encoder: the name of a model of images, "ViT" for example, or of videos, "ViViT" for example.
        encoder_config: the fields of the encoder's configuration that differ from their defaults, without
            `image_size` and `num_channels`, which are fields here.
        decoder: "GPT2" or "BART".
        decoder_config: the same for the decoder, without `vocabulary_size` and `max_length`. For BART,
            `num_layers`, `num_heads` and `intermediate_dim` are the decoder's.
    """

    vocabulary_size: Size = 50_257
    max_length: Length = 1_024
    encoder: Literal[tuple(ENCODERS)] = "ViT"  # type: ignore[valid-type]
    encoder_config: dict = dataclasses.field(default_factory=dict)
    decoder: Literal[tuple(DECODERS)] = "GPT2"  # type: ignore[valid-type]
    decoder_config: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        for name, shared in (("encoder_config", OF_ENCODER), ("decoder_config", OF_DECODER)):
            if here := getattr(self, name).keys() & set(shared):
                raise ValueError(f"`{name}` must leave {', '.join(sorted(here))} to the whole model's own.")
        decoder = self.of_decoder
        if self.decoder == "BART":
            layers, heads, width = decoder.decoder_sizes
            alone = {"num_layers": layers, "num_heads": heads, "intermediate_dim": width}
            left_open = ("num_decoder_layers", "num_decoder_heads", "decoder_intermediate_dim")
            decoder = dataclasses.replace(decoder, **alone, **dict.fromkeys(left_open))
        for name, config, shared in (
            ("encoder_config", self.of_encoder, OF_ENCODER),
            ("decoder_config", decoder, OF_DECODER),
        ):
            fields = dataclasses.asdict(config)
            object.__setattr__(self, name, {x: y for x, y in fields.items() if x not in shared})

    @property
    def encoder_class(self):
        """The class of the encoder."""
        return ENCODERS[self.encoder]

    @property
    def of_encoder(self):
        """The configuration of the encoder."""
        shared = {name: getattr(self, name) for name in OF_ENCODER}
        return self.encoder_class.config_class.from_json({**self.encoder_config, **shared})

    @property
    def of_decoder(self):
        """The configuration of the decoder."""
        shared = {name: getattr(self, name) for name in OF_DECODER}
        return DECODERS[self.decoder].config_class.from_json({**self.decoder_config, **shared})

    @property
    def num_layers(self):
        """The blocks of both sides."""
        return int(np.sum(self.of_encoder.num_layers)) + self.of_decoder.num_layers

    @property
    def num_frames(self):
        """The frames of a clip, None where the encoder reads images."""
        return getattr(self.of_encoder, "num_frames", None)

    @property
    def parts(self):
        """Configurations within this one, whose sizes are checked with its own."""
        return self.of_encoder, self.of_decoder


class VisionEncoderDecoder(DecodingModel):
    """Images and texts in, hidden states out: at each position the decoder attends to the tokens before it
    and to the whole image.

    Inputs: `images` (B, H, W, C), or with an encoder of videos `videos` (B, F, H, W, C), floating-point,
    `decoder_token_ids` and `decoder_padding_mask`, both (B, T). Outputs: `encoder_sequence_output` (B, N, D),
    the encoder's output at the decoder's width, and `decoder_sequence_output` (B, T, D). `seen` is "images"
    or "videos", `encoder` a model of them alone. `maps` are the encoder's, if it has any.

    >>> model = keras_tfm.models.VisionEncoderDecoder.from_size("tiny", vocabulary_size=100)
    >>> batch = {"images": np.ones((2, 32, 32, 3)), "decoder_token_ids": np.array([[1, 2], [1, 3]])}
    >>> {name: tuple(x.shape) for name, x in model(batch).items()}
    {'encoder_sequence_output': (2, 65, 128), 'decoder_sequence_output': (2, 2, 128)}
    """

    config_class = VisionEncoderDecoderConfig

    def __init__(
        self, config: VisionEncoderDecoderConfig, name: str = "vision_encoder_decoder", **kwargs: Any
    ) -> None:
        encoder = config.encoder_class(config.of_encoder, name="encoder")
        encoded, width = encoder.output["sequence_output"], config.of_decoder.dim
        if encoded.shape[-1] != width:
            encoded = keras.layers.Dense(width, name="decoder_projection")(encoded)
        (seen,) = encoder.input
        inputs = {
            seen: encoder.input[seen],
            "decoder_token_ids": keras.Input((None,), dtype="int32", name="decoder_token_ids"),
            "decoder_padding_mask": keras.Input((None,), dtype="bool", name="decoder_padding_mask"),
        }
        parts = (_gpt2 if config.decoder == "GPT2" else _bart)(config.of_decoder)
        x = parts.dropout(parts.stack.embed(inputs["decoder_token_ids"]))
        context = {"context": encoded}
        trace, mask = Trace({**encoder.blocks}, {**encoder.hidden_states}), inputs["decoder_padding_mask"]
        decoded = parts.stack.run(trace, "decoder", x, mask, context_attention=context)
        outputs = {"encoder_sequence_output": encoded, "decoder_sequence_output": decoded}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.seen = seen
        self.embedding = self.output_embedding = parts.embedding
        self.decoder = parts.stack
        self.max_target_length = config.max_length
        self.maps = getattr(encoder, "maps", None)
        if config.decoder == "GPT2":
            gpt2.shrink_residuals(parts.stack.blocks)

    @classmethod
    def around(cls, encoder, decoder):
        """A model with the weights of an `encoder` of images or videos and of a `decoder` of texts, a `GPT2`
        or a `BART`.

        Only the cross-attention of GPT-2 and the projection between different widths have new weights. Raises
        ValueError for other families of models.
        """
        for name, model, families in (("encoder", encoder, ENCODERS), ("decoder", decoder, DECODERS)):
            if type(model) is not families.get(type(model).__name__):
                raise ValueError(
                    f"`{name}` must be one of {', '.join(families)}; it is a {type(model).__name__}."
                )
        fields: dict[str, Any] = {}
        for name, model, shared in (("encoder", encoder, OF_ENCODER), ("decoder", decoder, OF_DECODER)):
            config = dataclasses.asdict(model.config)
            fields |= {field: config.pop(field) for field in shared}
            fields |= {name: type(model).__name__, f"{name}_config": config}
        whole = cls(VisionEncoderDecoderConfig(**fields), dtype=encoder.dtype_policy)
        of_decoder = {
            path if path.startswith("decoder_") else f"decoder_{path}": weight
            for path, weight in by_path(decoder).items()
        }
        assign_by_path(whole, by_path(encoder) | of_decoder)
        return whole

    @functools.cached_property
    def encoder(self):
        """A model of what is `seen` alone, which shares its layers: `sequence_output` (B, N, D)."""
        outputs = {"sequence_output": self.output["encoder_sequence_output"]}
        return Model({self.seen: self.input[self.seen]}, outputs, name="encoder")

    def encoded(self, context):
        """The encoder's output (B, N, D) of what `context` shows, {"images": (B, H, W, C)} for example."""
        return (self.encoder({self.seen: context[self.seen]}, training=False)["sequence_output"],)


class DecoderParts(NamedTuple):
    """The table of token vectors, the blocks, and the dropout of the embedded tokens."""

    embedding: Any
    stack: Stack
    dropout: Any


def _gpt2(config):
    embedding = TokenAndPositionEmbedding(
        config.vocabulary_size,
        config.max_length,
        config.dim,
        initializer=NORMAL,
        name="decoder_embedding",
    )
    stack = gpt2.stack_of(config, embedding, "decoder_", cross_attention=True)
    return DecoderParts(embedding, stack, Dropout(config.embedding_dropout, name="decoder_embedding_dropout"))


def _bart(config):
    embedding = TokenEmbedding(
        config.vocabulary_size,
        config.dim,
        config.scale_embedding,
        initializer=NORMAL,
        name="decoder_embedding",
    )
    stack = bart.stack_of(config, embedding, "decoder")
    return DecoderParts(embedding, stack, Dropout(config.dropout, name="decoder_embedding_dropout"))


# base: ViT-B/16 before the smallest GPT-2, as in the published captioners. tiny is this package's own, for
# images of some 32 x 32.
_TINY = {name: x for name, x in dataclasses.asdict(ViT.sizes["tiny"]).items() if name not in OF_ENCODER}
VisionEncoderDecoder.sizes = {
    "tiny": VisionEncoderDecoderConfig(
        image_size=32,
        vocabulary_size=8_000,
        max_length=64,
        encoder_config=_TINY,
        decoder_config={"num_layers": 3, "dim": 128, "num_heads": 4},
    ),
    "base": VisionEncoderDecoderConfig(),
}
