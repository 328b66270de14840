"""timm's classes, by the files of their families in `keras_tfm.convert`."""

from keras import ops

from keras_tfm.convert import cait, levit, mlp_mixer, pit, resnet, swin, swin_v2, tnt, twins, visformer, xcit
from keras_tfm.convert.keymap import read_state
from keras_tfm.convert.timm import BUFFERS
from keras_tfm.heads import Classifier, DistilledClassifier
from tests.parity.references.state import as_sequences
from tests.parity.references.variant import features_of


def reader(family, features, **usual):
    """The `read` of the `family` in a file; `features(backbone)` are outputs beside the logits, and `usual`
    are defaults of timm's class.
    """
    family = family.TIMM

    def read(arguments, weights):
        """The model for timm's `arguments` and `weights`, and its outputs by the reference's names."""
        if family is levit.TIMM:  # timm has two classes here, and no argument
            arguments = {**arguments, "distilled": "head_dist.bn.weight" in weights}
        config = family.read_config({**usual, **arguments})
        backbone = family.model(config)
        head = DistilledClassifier if "distilled_output" in backbone.output else Classifier
        model = head(backbone, arguments.get("num_classes", 1000))
        buffers = [key for key in weights if key.endswith(BUFFERS)]
        read_state(model, weights, family.rows_of(config), buffers)
        return model, {"logits": model.output, **features(backbone)}

    return read


def numbered(name, states):
    """{"features/block_0": the first of the `states`, ...} for the name "block_{}"."""
    return {f"features/{name.format(i)}": x for i, x in enumerate(states)}


def of_maps(backbone):
    """What comes out of every stage."""
    return numbered("stage_{}", backbone.maps)


def of_cait(backbone):
    """What comes out of the patches, of every block and of the last norm; of class blocks, one token."""
    tokens = [ops.take(x, [0], axis=1) for x in backbone.hidden_states["class"][1:]]
    return features_of(backbone) | numbered("class_block_{}", tokens)


def of_levit(backbone):
    """What comes out of the stem and of every stage."""
    states, last = backbone.hidden_states["encoder"], -1
    outputs = {"features/stem": backbone.get_layer("stem").output}
    for i, num_layers in enumerate(backbone.config.num_layers):
        last += num_layers + (i > 0)
        outputs[f"features/stage_{i}"] = states[last + 1]
    return outputs


def of_mlp_mixer(backbone):
    """What comes out of the patches, of every block and of the last norm."""
    embedded, *states = backbone.hidden_states["encoder"]
    ends = {"features/embed": embedded, "features/norm": backbone.output["sequence_output"]}
    return ends | numbered("block_{}", states)


def of_pit(backbone):
    """What comes out of the patches, the map of every stage, and the tokens after the last norm."""
    tokens = list(range(backbone.config.num_tokens))
    return {
        "features/embed": backbone.get_layer("patch_embedding").output,
        "features/norm": ops.take(backbone.output["sequence_output"], tokens, axis=1),
        **numbered("stage_{}_map", backbone.maps),
    }


def of_swin(backbone):
    """What comes out of the patches, of every stage and of the last norm."""
    embedded, normalized = backbone.hidden_states["encoder"][0], backbone.get_layer("norm").output
    return {"features/embed": embedded, "features/norm": normalized, **of_maps(backbone)}


def of_tnt(backbone):
    """What comes out of the embedding of pixels, of their blocks, and of the last norm."""
    embedded, *pixels = backbone.hidden_states["pixels"]
    ends = {"features/pixel_embed": embedded, "features/norm": backbone.output["sequence_output"]}
    return ends | numbered("block_{}_pixels", pixels)


def of_twins(backbone):
    """What comes out of every stage, as sequences, and of the last norm."""
    states, depths = backbone.hidden_states["encoder"], backbone.config.depths
    lasts = [states[sum(depths[: i + 1])] for i in range(len(depths))]
    return {"features/norm": backbone.output["sequence_output"], **as_sequences(lasts)}


def of_visformer(backbone):
    """What comes out of every stage and of the last norm."""
    return {"features/norm": backbone.get_layer("norm").output, **of_maps(backbone)}


def of_xcit(backbone):
    """What comes out of the stem, of the positions, of every block and of the last norm."""
    stem = backbone.get_layer("stem").output
    return {
        "features/embed": ops.reshape(stem, (-1, stem.shape[1] * stem.shape[2], stem.shape[3])),  # (B, N, D)
        "features/position": backbone.get_layer("position").output,
        "features/norm": backbone.output["sequence_output"],
        **numbered("block_{}", backbone.hidden_states["encoder"][1:]),
        **numbered("class_block_{}", backbone.hidden_states["class"][1:]),
    }


read_cait, read_levit, read_xcit = reader(cait, of_cait), reader(levit, of_levit), reader(xcit, of_xcit)
read_mlp_mixer, read_pit = reader(mlp_mixer, of_mlp_mixer), reader(pit, of_pit)
read_resnet = reader(resnet, of_maps, block="Bottleneck", channels=(64, 128, 256, 512))
read_tnt = reader(tnt, of_tnt, embed_dim=768, num_heads_outer=12, inner_dim=48)
read_swin, read_swin_v2 = reader(swin, of_swin), reader(swin_v2, of_swin)
read_twins, read_visformer = reader(twins, of_twins), reader(visformer, of_visformer)
