"""Imagen: a text encoder and the base `ImagenUNet` that reads its output, as one model (Saharia et al. 2022,
"Photorealistic Text-to-Image Diffusion Models with Deep Language Understanding").

    token ids --> text encoder --> hidden states --\\
    noisy images, log of signal / noise ------------> U-Net --> prediction

The paper's encoder is T5's, of 4.6 billion weights, and stays as it was trained; here it is one of this
package's encoders, BERT for example, which learns with the U-Net unless `trains_encoder` is False.
"""

import dataclasses
from typing import Any, Literal

from keras import ops

from keras_tfm.configs import Config, Length, Refusal, Size
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.pictures.imagen import ImagenUNet, ImagenUNetConfig
from keras_tfm.models.text.bert import BERT
from keras_tfm.models.text.distilbert import DistilBERT
from keras_tfm.models.text.roberta import RoBERTa
from keras_tfm.models.vision.images import Side

ENCODERS: dict[str, Any] = {family.__name__: family for family in (DistilBERT, BERT, RoBERTa)}
OF_ENCODER = ("vocabulary_size", "max_length")  # the fields of an encoder that are this configuration's
OF_UNET = ("image_size", "num_channels", "max_length", "text_dim", "is_super_resolution")


@dataclasses.dataclass(frozen=True)
class ImagenConfig(Config):
    """The encoder, by its name and its own configuration, and the U-Net of an `Imagen`.

    Args:
        max_length: the most tokens of a text.
        encoder: "DistilBERT", "BERT" or "RoBERTa".
        encoder_config: the fields of the encoder's configuration that differ from their defaults, without
            `vocabulary_size` and `max_length`, which are fields here.
        unet_config: the same of the U-Net, without `image_size`, `num_channels`, `max_length`, `text_dim` and
            `is_super_resolution`.
        is_super_resolution: whether it enlarges small images.
        trains_encoder: whether the encoder learns with the U-Net.
    """

    image_size: Side | tuple[Side, Side] = 64
    num_channels: Size = 3
    vocabulary_size: Size = 30_522
    max_length: Length = 128
    encoder: Literal[tuple(ENCODERS)] = "DistilBERT"  # type: ignore[valid-type]
    encoder_config: dict = dataclasses.field(default_factory=dict)
    unet_config: dict = dataclasses.field(default_factory=dict)
    is_super_resolution: bool = False
    trains_encoder: bool = True

    def __post_init__(self):
        super().__post_init__()
        for name, part, shared in (
            ("encoder_config", "of_encoder", OF_ENCODER),
            ("unet_config", "of_unet", OF_UNET),
        ):
            if here := getattr(self, name).keys() & set(shared):
                raise Refusal(name, f"without {', '.join(sorted(here))}, fixed by the whole model", "there")
            fields = dataclasses.asdict(getattr(self, part))
            object.__setattr__(self, name, {x: y for x, y in fields.items() if x not in shared})

    @property
    def of_encoder(self):
        """The configuration of the encoder."""
        shared = {name: getattr(self, name) for name in OF_ENCODER}
        return ENCODERS[self.encoder].config_class.from_json({**self.encoder_config, **shared})

    @property
    def of_unet(self):
        """The configuration of the U-Net."""
        shared = {name: getattr(self, name) for name in OF_UNET if name != "text_dim"}
        return ImagenUNetConfig.from_json({**self.unet_config, **shared, "text_dim": self.of_encoder.dim})

    @property
    def parts(self):
        """Configurations within this one, whose sizes are checked with its own."""
        return self.of_encoder, self.of_unet


class Imagen(ConfiguredModel):
    """Noisy images, their signal-to-noise ratios and texts in, predictions out: of the noise, or of what it
    was trained for.

    Inputs: `images` (B, H, W, C), floating-point, `log_snr` (B,), the logarithm of the signal-to-noise ratio,
    `token_ids` (B, S) and `padding_mask` (B, S): a text without any token is no text, for guidance. With
    `is_super_resolution` also `low_resolution` and `low_resolution_log_snr`, as in `ImagenUNet`. Output:
    `prediction` (B, H, W, C). `encoder` and `unet` are models of their own, `encode` gives the second the
    texts that the first has read.

    >>> model = keras_tfm.models.Imagen.from_size("tiny", image_size=16, vocabulary_size=20)
    >>> inputs = {"images": np.zeros((2, 16, 16, 3)), "log_snr": np.zeros(2)}
    >>> model(inputs | {"token_ids": np.array([[5, 6], [7, 0]])})["prediction"].shape
    TensorShape([2, 16, 16, 3])
    """

    config_class = ImagenConfig

    def __init__(self, config: ImagenConfig, name: str = "imagen", **kwargs: Any) -> None:
        encoder = ENCODERS[config.encoder](config.of_encoder, name="encoder")
        encoder.trainable = config.trains_encoder
        unet = ImagenUNet(config.of_unet, name="unet")
        tokens = {name: encoder.input[name] for name in ("token_ids", "padding_mask")}
        texts = _encode(encoder, **tokens)
        seen = {name: x for name, x in unet.input.items() if name not in texts}
        outputs = {"prediction": unet({**seen, **texts})["prediction"]}
        inputs = {**seen, **tokens}
        trace = Trace()
        for part in (encoder, unet):
            trace.blocks.update(part.blocks)
            trace.hidden_states.update(part.hidden_states)
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.encoder = encoder
        self.unet = unet

    def encode(self, token_ids, padding_mask=None):
        """The inputs of the U-Net, `text` (B, S, D) and `text_mask` (B, S), for tokens (B, S)."""
        if padding_mask is None:
            padding_mask = ops.ones_like(token_ids, dtype="bool")
        return _encode(self.encoder, *map(ops.convert_to_tensor, (token_ids, padding_mask)))


def _encode(encoder, token_ids, padding_mask):
    hidden = encoder({"token_ids": token_ids, "padding_mask": padding_mask})["sequence_output"]
    return {"text": hidden, "text_mask": padding_mask}


# Small ones of ours, for pictures of 32 x 32 pixels; Saharia et al. 2022, appendix F, with BERT for T5.
Imagen.sizes = {
    "tiny": ImagenConfig(
        32,
        encoder_config={"num_layers": 2, "dim": 64, "num_heads": 4, "intermediate_dim": 256, "dropout": 0.0},
        max_length=32,
        unet_config={
            "dims": (32, 64, 128),
            "num_layers": (1, 1, 1),
            "attends": (False, False, True),
            "attends_to_context": (True, True, True),
            "num_heads": 4,
            "key_dim": 32,
            "condition_dim": 64,
            "num_latents": 0,
            "kernels": (3,),
            "halves_first": True,
            "patch_size": 2,
        },
    ),
    "base": ImagenConfig(
        unet_config={"dims": (512, 1024, 1536, 2048), "num_layers": (3,) * 4},
        encoder_config={"num_layers": 24, "dim": 1024, "num_heads": 16, "intermediate_dim": 4096},
    ),
}
