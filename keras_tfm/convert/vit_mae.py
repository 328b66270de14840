"""The masked autoencoder's checkpoints (He et al. 2022), of the encoder alone or with its decoder."""

from keras_tfm.configs import brief
from keras_tfm.convert.family import Family, Head, Option
from keras_tfm.convert.keymap import linear, norm, weight
from keras_tfm.convert.vit import FIELDS, FIRST_OF_ONE, SHAPES, embedding_rows, encoder_rows
from keras_tfm.heads import MaskedAutoencoder
from keras_tfm.models import ViTMAE
from keras_tfm.training.safetensors import CheckpointError

MAX_SIZE = 2**14  # the largest size of the decoder


def rows(config):
    """The table for patches of the configuration's size."""
    return [
        *embedding_rows(config),
        *encoder_rows("block_{}", "encoder.layer.{}"),
        *norm("norm", "layernorm"),
    ]


DECODER = [
    *linear("decoder_embedding", "decoder.decoder_embed"),
    *weight("restoring/mask_token", "decoder.mask_token"),
    *weight("decoder_position/embedding/embeddings", "decoder.decoder_pos_embed", FIRST_OF_ONE),
    *encoder_rows("decoder_block_{}", "decoder.decoder_encoder.layer.{}"),
    *norm("decoder_norm", "decoder.decoder_norm"),
    *linear("pixels", "decoder.decoder_pred"),
]


def size(name, default):
    """A size of the decoder, by the entry `name`."""

    def read(entries):
        value = entries.get(name, default)
        if type(value) is not int or not 0 < value <= MAX_SIZE:
            raise CheckpointError("config.json", name, f"1 to {MAX_SIZE}", brief(value))
        return value

    return Option(read, lambda value: {name: value})


FAMILY = Family(
    model_type="vit_mae",
    backbone="ViTMAEModel",
    model=ViTMAE,
    prefix="vit.",
    fields={**FIELDS, "mask_ratio": "mask_ratio"},
    default_entries={"layer_norm_eps": 1e-12},
    derived_entries={"attention_probs_dropout_prob": lambda config: config.dropout},
    fixed_entries={"qkv_bias": True},
    shapes=SHAPES,
    rows=rows,
    heads={
        "ViTMAEForPreTraining": Head(
            MaskedAutoencoder,
            DECODER,
            options={
                "num_layers": size("decoder_num_hidden_layers", 8),
                "dim": size("decoder_hidden_size", 512),
                "num_heads": size("decoder_num_attention_heads", 16),
                "intermediate_dim": size("decoder_intermediate_size", 2048),
                "normalize_pixels": Option(
                    lambda entries: bool(entries.get("norm_pix_loss", False)),
                    lambda value: {"norm_pix_loss": value},
                ),
            },
        ),
    },
)
