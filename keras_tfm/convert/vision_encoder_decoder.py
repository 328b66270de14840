"""Checkpoints of transformers' `VisionEncoderDecoderModel`: an encoder of images, or TimeSformer, of videos,
and GPT-2's or BART's decoder, each with its own configuration and its own table of weights.

The pooling layer of their ViT and DeiT has no effect here: it is not read, and is written as zeros.
"""

import dataclasses

import numpy as np

from keras_tfm.convert import bart, dinov2, gpt2, timesformer
from keras_tfm.convert.deit import FAMILY as DEIT
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, Head
from keras_tfm.convert.keymap import batch_counts, embedding, linear, norm, renamed
from keras_tfm.convert.swin import FAMILY as SWIN
from keras_tfm.convert.swin_v2 import FAMILY as SWIN_V2
from keras_tfm.convert.vit import FAMILY as VIT
from keras_tfm.heads import LanguageModel
from keras_tfm.models import VisionEncoderDecoder
from keras_tfm.models.multimodal.vision_encoder_decoder import OF_DECODER, OF_ENCODER
from keras_tfm.training.safetensors import CheckpointError

AS_DECODER = {"is_decoder": True, "add_cross_attention": True, "is_encoder_decoder": False}


def as_decoder(family):
    """The `family` of a whole model for its decoder alone, with cross-attention."""
    return dataclasses.replace(family, fixed_entries={**family.fixed_entries, **AS_DECODER})


# {side: the families that both their model and this package may have there}
FAMILIES = {
    "encoder": (VIT, DEIT, dinov2.FAMILY, dinov2.WITH_REGISTERS, SWIN, SWIN_V2, timesformer.FAMILY),
    "decoder": tuple(map(as_decoder, (gpt2.FAMILY, bart.FAMILY, bart.MBART))),
}
OWN = {"encoder": OF_ENCODER, "decoder": OF_DECODER}
# {our decoder: (the prefix of its keys, the key of its token table)}
KEYS = {"GPT2": ("decoder.transformer.", "wte"), "BART": ("decoder.model.decoder.", "embed_tokens")}


def family_of(side, config):
    """The family of one side of our configuration; ValueError if they have none for it."""
    own = getattr(config, f"of_{side}")
    known = [family for family in FAMILIES[side] if family.model.config_class is type(own)]
    if not known:
        names = ", ".join(dict.fromkeys(family.model.__name__ for family in FAMILIES[side]))
        got = getattr(config, side)
        raise ValueError(f"VisionEncoderDecoderModel has only `{side}` {names}; it is {got!r}.")
    return next((family for family in known if family.computes(own)), known[0])


def read_side(side, entries):
    """(The name of our model, its configuration) for their entry `side`."""
    theirs = entries.get(side)
    kinds = {family.model_type: family for family in FAMILIES[side]}
    kind = theirs.get("model_type") if isinstance(theirs, dict) else None
    if kind not in kinds:
        raise CheckpointError("config.json", f"{side}.model_type", f"one of {', '.join(kinds)}", repr(kind))
    try:
        config = kinds[kind].read_config(theirs, "config.json")
    except CheckpointError as error:
        key = side if error.key is None else f"{side}.{error.key}"
        raise CheckpointError(error.path, key, error.expected, error.got) from None
    return kinds[kind].model.__name__, config


def fields_of(side):
    """Our fields for one side: the model's name, its configuration, and fields kept outside of it."""

    def write(config):
        return family_of(side, config).write_config(getattr(config, f"of_{side}"))

    def read_config(_, entries):
        fields = dataclasses.asdict(read_side(side, entries)[1])
        return {name: value for name, value in fields.items() if name not in OWN[side]}

    def entry(read):
        return Entry(side, read, write)

    def read_own(name):
        def read(_, entries):
            value = getattr(read_side(side, entries)[1], name)
            return list(value) if isinstance(value, tuple) else value  # JSON has lists

        return read

    return {
        side: entry(lambda _, entries: read_side(side, entries)[0]),
        f"{side}_config": entry(read_config),
        **{name: entry(read_own(name)) for name in OWN[side]},
    }


def decoder_rows(config):
    """The table of the decoder."""
    prefix, tokens = KEYS[config.decoder]
    if config.decoder == "BART":
        rows = [row for row in bart.ROWS if row.ours.startswith("decoder")]
        return renamed(rows, "", "decoder.model.") + embedding("decoder_embedding/token", prefix + tokens)
    branch, cross = "block_{}/context_attention/branch", "h.{}.crossattention"
    cross_attention = [
        *norm("block_{}/context_attention/norm", "h.{}.ln_cross_attn"),
        *gpt2.conv1d(f"{branch}/projections/query", f"{cross}.q_attn"),
        *gpt2.conv1d(f"{branch}/projections/key_value", f"{cross}.c_attn"),
        *gpt2.conv1d(f"{branch}/output", f"{cross}.c_proj"),
    ]
    return renamed([*gpt2.FAMILY.rows, *cross_attention], "decoder_", prefix)


def rows(config):
    """The table of weights for a configuration."""
    encoder = family_of("encoder", config).of(config.of_encoder).rows
    projection = linear("decoder_projection", "enc_to_dec_proj")
    return renamed(encoder, "", "encoder.") + projection + decoder_rows(config)


def copies(config):
    """The output table, which repeats the table of the decoder's tokens."""
    prefix, tokens = KEYS[config.decoder]
    return {"decoder.lm_head.weight": f"{{prefix}}{prefix}{tokens}.weight"}


def unread(tensors):
    """The tensors that theirs has in addition to ours: counts of batches, pooling layer of ViT or DeiT."""
    name = "encoder.encoder.layer.0.layernorm_before.weight"
    if name not in tensors or "encoder.embeddings.time_embeddings" in tensors:  # TimeSformer has no pooler
        return batch_counts(tensors)
    size = len(tensors[name])
    return {
        "encoder.pooler.dense.weight": np.zeros((size, size), "float32"),
        "encoder.pooler.dense.bias": np.zeros(size, "float32"),
    }


FAMILY = Family(
    model_type="vision-encoder-decoder",
    backbone="VisionEncoderDecoderModel",
    model=VisionEncoderDecoder,
    prefix="",
    fields={**fields_of("encoder"), **fields_of("decoder")},
    fixed_entries={"is_encoder_decoder": True},
    derived_entries={"tie_word_embeddings": lambda _: False},  # encoder and decoder share no table
    rows=rows,
    heads={"VisionEncoderDecoderModel": Head(LanguageModel, [], {"tied": True, "use_bias": False})},
    copies=copies,
    buffers=(
        r"encoder\.pooler\.dense\.(weight|bias)",
        r"encoder\..*\.(num_batches_tracked|relative_position_index)",
        r"encoder\.embeddings\.mask_token",
        r"decoder\.transformer\.h\.\d+\.(attn|crossattention)\.(masked_)?bias",
    ),
    buffers_of=unread,
)
