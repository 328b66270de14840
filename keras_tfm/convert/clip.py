"""CLIP's checkpoints (Radford et al. 2021), with the logits' scale.

Their configuration contains one configuration for each tower, whose entries are called "tower.entry" here,
for example "text_config.hidden_size". In the first published folders `eos_token_id` is 2, which stands for
the last token of the vocabulary.
"""

from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, Head
from keras_tfm.convert.keymap import (
    TRANSPOSED,
    Transform,
    attention,
    embedding,
    feedforward,
    norm,
    patches,
    weight,
)
from keras_tfm.heads import Contrastive
from keras_tfm.models import CLIP

ROW = Transform(lambda array: array[None, None], lambda array, _: [array[0, 0]])  # theirs is (D,)
SIDES = {"image": "vision", "text": "text"}  # {our name of a tower: theirs}
OF_TOWERS = {
    "num_{}_layers": "num_hidden_layers",
    "{}_dim": "hidden_size",
    "num_{}_heads": "num_attention_heads",
    "{}_intermediate_dim": "intermediate_size",
}
LEGACY_END = 2


def block_rows(ours, theirs):
    """The blocks of a tower."""
    parts = ("q_proj", "k_proj", "v_proj", "out_proj")
    return [
        *attention(f"{ours}/attention", *(f"{theirs}.self_attn.{part}" for part in parts)),
        *norm(f"{ours}/attention/norm", f"{theirs}.layer_norm1"),
        *feedforward(f"{ours}/feedforward", f"{theirs}.mlp.fc1", f"{theirs}.mlp.fc2"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.layer_norm2"),
    ]


def tower_rows(config):
    """The rows that CLIP and SigLIP share: tokens, patches, positions, blocks and last norms."""
    image = "vision_model.embeddings"
    text = "text_model.embeddings"
    return [
        *patches("image_patch_encoder/patches", f"{image}.patch_embedding", config.patch_size),
        *embedding("image_patch_encoder/position/embedding", f"{image}.position_embedding"),
        *block_rows("image_block_{}", "vision_model.encoder.layers.{}"),
        *norm("image_norm", "vision_model.post_layernorm"),
        *embedding("text_embedding/token", f"{text}.token_embedding"),
        *embedding("text_embedding/position/embedding", f"{text}.position_embedding"),
        *block_rows("text_block_{}", "text_model.encoder.layers.{}"),
        *norm("text_norm", "text_model.final_layer_norm"),
    ]


def rows(config):
    """The table of weights for a configuration."""
    return [
        *tower_rows(config),
        *weight("image_patch_encoder/class_token/embedding", "vision_model.embeddings.class_embedding", ROW),
        *norm("image_embedding_norm", "vision_model.pre_layrnorm"),
        *weight("image_projection/kernel", "visual_projection.weight", TRANSPOSED),
        *weight("text_projection/kernel", "text_projection.weight", TRANSPOSED),
    ]


def tower_fields():
    """The configuration's fields, and the entries that repeat fields in the configuration of texts."""
    fields = {
        ours.format(side): f"{theirs}_config.{entry}"
        for side, theirs in SIDES.items()
        for ours, entry in OF_TOWERS.items()
    }
    fields |= {name: f"vision_config.{name}" for name in ("image_size", "patch_size", "num_channels")}
    fields |= {"vocabulary_size": "text_config.vocab_size"}
    fields |= {"max_length": "text_config.max_position_embeddings"}
    return fields | {ours: f"vision_config.{theirs}" for ours, theirs in OF_BOTH.items()}


# One entry for each tower, of the same value: ours by theirs.
OF_BOTH = {"activation": "hidden_act", "epsilon": "layer_norm_eps", "attention_dropout": "attention_dropout"}


def tower_defaults(**values):
    """The `default_entries` of both towers for the entries of `OF_BOTH`."""
    return {f"{side}_config.{name}": value for side in SIDES.values() for name, value in values.items()}


def read_end(value, entries):
    """Our `end_id` for their `eos_token_id`, a number or a list."""
    first = value[0] if isinstance(value, list) else value
    return entries.get("text_config.vocab_size", 49_408) - 1 if first == LEGACY_END else first


def write_end(config):
    """Their `eos_token_id`; ValueError for a 2 that they would take for the last token."""
    if config.end_id == LEGACY_END != config.vocabulary_size - 1:
        raise ValueError(f"CLIPModel takes {LEGACY_END} for the last token: `end_id` cannot be {LEGACY_END}.")
    return config.end_id


BUFFERS = (r"(vision|text)_model\.embeddings\.position_ids",)  # 0, 1, ... in older files

FAMILY = Family(
    model_type="clip",
    backbone="CLIPModel",
    model=CLIP,
    prefix="",
    fields={
        **tower_fields(),
        "embedding_dim": "projection_dim",
        "end_id": Entry("text_config.eos_token_id", read_end, write_end),
    },
    nested_entries=("text_config", "vision_config"),
    winning_entries={f"{theirs}_config": f"{theirs}_config_dict" for theirs in SIDES.values()},
    default_entries=tower_defaults(hidden_act="quick_gelu", layer_norm_eps=1e-5, attention_dropout=0.0),
    equal_entries={f"text_config.{name}": f"vision_config.{name}" for name in OF_BOTH.values()},
    rows=rows,
    heads={"CLIPModel": Head(Contrastive, weight("head/logit_scale", "logit_scale"), {"logit_bias": None})},
    buffers=BUFFERS,
)
