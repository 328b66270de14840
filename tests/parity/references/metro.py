"""METRO's three encoders (Lin et al. 2021) by their authors' names, of tokens that stand for image and
template.
"""

import keras

from keras_tfm.convert.keymap import attention, feedforward, linear, norm, read_state, weight
from keras_tfm.models import METRO, METROConfig
from keras_tfm.training.model import Model
from tests.parity.references.state import check_arguments

ARGUMENTS = {"input_feat_dim", "output_feat_dim", "hidden_feat_dim", "num_hidden_layers", "layer_norm_eps"}
ARGUMENTS |= {"num_attention_heads", "interm_size_scale", "hidden_act", "tokens"}


def rows():
    """The table of the stages."""
    encoder = "{}.bert.encoder.layer.{}"
    block, theirs = "encoder_{}_block_{}", f"{encoder}.attention"
    parts = [f"{theirs}.self.{name}" for name in ("query", "key", "value")]
    return [
        *linear("encoder_{}_embedding", "{}.bert.img_embedding"),
        *weight("encoder_{}_position/embedding/embeddings", "{}.bert.position_embeddings.weight"),
        *attention(f"{block}/attention", *parts, f"{theirs}.output.dense"),
        *norm(f"{block}/attention/norm", f"{theirs}.output.LayerNorm"),
        *feedforward(f"{block}/feedforward", f"{encoder}.intermediate.dense", f"{encoder}.output.dense"),
        *norm(f"{block}/feedforward/norm", f"{encoder}.output.LayerNorm"),
        *linear("encoder_{}_output", "{}.cls_head"),
        *linear("encoder_{}_shortcut", "{}.residual"),
    ]


def read(arguments, weights, shapes):
    """The stages for their arguments and weights and inputs of these `shapes`, and their outputs by name."""
    check_arguments(arguments, ARGUMENTS, "METRO")
    dims = arguments["hidden_feat_dim"]
    width = arguments["input_feat_dim"][0] - 3
    model = METRO(
        METROConfig(
            8,
            backbone_config={"stem_dim": 4, "dims": (width,), "depths": (1,), "block": "basic"},
            num_joints=1,
            num_vertices=arguments["tokens"] - 1,
            dims=dims,
            output_dims=arguments["output_feat_dim"][:-1],
            intermediate_dims=[arguments["interm_size_scale"] * dim for dim in dims],
            num_layers=arguments["num_hidden_layers"],
            num_heads=arguments["num_attention_heads"],
            max_length=len(weights["0.bert.position_embeddings.weight"]),
            epsilon=arguments["layer_norm_eps"],
        )
    )
    found = {}
    for stage in range(len(dims)):
        found[f"features/stage_{stage}_hidden"] = model.hidden_states[f"encoder_{stage}"][-1]
        if stage:
            found[f"features/stage_{stage - 1}"] = model.get_layer(f"encoder_{stage}_embedding").input
    found["output"] = model.output["sequence_output"]
    inner = Model(model.get_layer("masking").output, found)
    read_state(inner, weights, rows())
    inputs = {"tokens": keras.Input(shapes["tokens"][1:], name="tokens")}
    outputs = inner(inputs["tokens"])
    return Model(inputs, outputs), outputs | {f"features/stage_{len(dims) - 1}": outputs["output"]}
