"""What the readers of DeiT's variants share: the fields, the classifier, and its outputs by their names."""

from keras import ops

from keras_tfm.convert.keymap import read_state
from keras_tfm.heads import Classifier


def fields_of(arguments):
    """The given fields of a `VariantConfig` that all their constructors name alike."""
    fields = {name: arguments[theirs] for name, theirs in FIELDS.items() if theirs in arguments}
    dim = arguments["embed_dim"]
    return {**fields, "intermediate_dim": int(arguments.get("mlp_ratio", 4) * dim)}


FIELDS = {
    "image_size": "img_size",
    "patch_size": "patch_size",
    "num_channels": "in_chans",
    "num_layers": "depth",
    "dim": "embed_dim",
    "num_heads": "num_heads",
}


def read_as(model_class, config, num_classes, weights, rows):
    """A classifier of `config` with their `weights`, and its outputs by the names of the stored numbers."""
    model = Classifier(model_class(config), num_classes)
    read_state(model, weights, rows)
    return model, outputs_of(model)


def outputs_of(model):
    """The outputs of a classifier by the names of the stored numbers: logits, embed, block_0, ..., norm."""
    return {"logits": model.output, **features_of(model.backbone)}


def features_of(backbone):
    """The same of a `backbone`, without the logits."""
    patches, states = backbone.get_layer("patch_embedding").output, backbone.hidden_states["encoder"]
    rows, columns, dim = patches.shape[1:]
    return {
        "features/embed": ops.reshape(patches, (-1, rows * columns, dim)),
        "features/norm": backbone.output["sequence_output"],
        **{f"features/block_{i}": state for i, state in enumerate(states[1:])},
    }
