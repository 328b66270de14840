"""SigLIP's checkpoints (Zhai et al. 2023), with the logits' scale and bias."""

from keras_tfm.convert.clip import BUFFERS, OF_BOTH, tower_defaults, tower_fields, tower_rows
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, Head
from keras_tfm.convert.keymap import JOINED, TRANSPOSED, Row, feedforward, linear, norm, weight
from keras_tfm.convert.vit import FIRST_OF_ONE
from keras_tfm.heads import Contrastive
from keras_tfm.models import SigLIP

LOGIT_BIAS = -10.0  # what it begins with (section 3.2)


def rows(config):
    """The table of a configuration; the pooling has one projection for queries, keys and values."""
    head, pooling = "vision_model.head", "image_pooling"
    table = [
        *tower_rows(config),
        *weight(f"{pooling}/query", f"{head}.probe"),
        *linear(f"{pooling}/attention/output", f"{head}.attention.out_proj"),
        *norm(f"{pooling}/feedforward/norm", f"{head}.layernorm"),
        *feedforward(f"{pooling}/feedforward", f"{head}.mlp.fc1", f"{head}.mlp.fc2"),
        *linear("text_projection", "text_model.head"),
    ]
    for ours, part in (("query", (0, 1, 3)), ("key_value", (1, 3, 3))):
        path = f"{pooling}/attention/projections/{ours}"
        table.append(Row(f"{path}/kernel", (f"{head}.attention.in_proj_weight",), TRANSPOSED, part))
        table.append(Row(f"{path}/bias", (f"{head}.attention.in_proj_bias",), JOINED, part))
    return table


FAMILY = Family(
    model_type="siglip",
    backbone="SiglipModel",
    model=SigLIP,
    prefix="",
    fields={
        **tower_fields(),
        "embedding_dim": Entry(
            "text_config.projection_size",
            lambda value, all_: all_.get("text_config.hidden_size", 768) if value is None else value,
            lambda config: config.embedding_dim,
        ),
    },
    default_entries={
        "text_config.projection_size": None,
        **tower_defaults(hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, attention_dropout=0.0),
    },
    nested_entries=("text_config", "vision_config"),
    equal_entries={f"text_config.{name}": f"vision_config.{name}" for name in OF_BOTH.values()},
    fixed_entries={"vision_config.vision_use_head": True},
    rows=rows,
    heads={
        "SiglipModel": Head(
            Contrastive,
            # Their scale and bias are arrays of one number.
            [
                *weight("head/logit_scale", "logit_scale", FIRST_OF_ONE),
                *weight("head/logit_bias", "logit_bias", FIRST_OF_ONE),
            ],
            {"logit_bias": LOGIT_BIAS},
        )
    },
    buffers=BUFFERS,
)
