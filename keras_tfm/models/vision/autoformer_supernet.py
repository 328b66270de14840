"""AutoFormer's supernet: one set of weights for all networks of a search space (Chen et al. 2021).

The networks share weights: one that is narrower, has fewer heads or fewer layers uses the leading part of
what a larger one uses. The supernet computes at its full size and sets to zero what a network does not have.
So each example of a batch may use another network, and one compiled graph serves all. Deviates from the
authors' code in the bias of queries, keys and values: here a network has the leading part of each of the
three, there of the three as one vector.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import SameShape
from keras_tfm.layers.cache import Keys
from keras_tfm.layers.masks import in_float32
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.autoformer import AutoFormer, embedded, parts
from keras_tfm.models.vision.autoformer_space import SearchSpace
from keras_tfm.models.vision.images import image_input


class AutoFormerSupernet(ConfiguredModel):
    """AutoFormer's supernet: images and networks in, hidden states out. Its configuration is the
    `SearchSpace`.

    Inputs: `images` (B, H, W, C), floating-point, and `network` (B, 1 + 2 L), int32, from
    `SearchSpace.encode`, for each example. Outputs: those of `AutoFormer` at the largest width, zero where a
    network has no feature. `sub_network` makes the model of one network.

    >>> space = keras_tfm.models.SearchSpace(image_size=32, dims=(16,), num_layers=(1,), num_heads=(2,))
    >>> keras_tfm.models.AutoFormerSupernet(space).output["sequence_output"].shape
    (None, 5, 16)
    """

    config_class = SearchSpace

    def __init__(self, config: SearchSpace, name: str = "autoformer_supernet", **kwargs: Any) -> None:
        largest = config.largest
        images = image_input(config)
        depth = len(largest.num_heads)
        network = keras.Input((1 + 2 * depth,), dtype="int32", name="network")
        blocks = []
        for i in range(depth):
            both = parts(largest, i, LeadingNormalization)
            blocks.append(EntangledBlock(**both, index=i, name=f"block_{i}"))
        x = LeadingFeatures(name="leading_features")(embedded(largest, images), network)
        trace = Trace()
        x = trace.run("encoder", blocks, x, network=network)
        x = LeadingNormalization(config.epsilon, name="norm")(x, network)
        outputs = {"sequence_output": x, "pooled_output": ops.mean(x[:, 1:], axis=1)}
        inputs = {"images": images, "network": network}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)

    def sub_network(self, config):
        """The `AutoFormer` of a network of the space, with a copy of its part of the weights."""
        model = AutoFormer(config, dtype=self.dtype_policy)
        copy_leading(self, model)
        return model


def copy_leading(source, target):
    """Set each weight of `target` to the leading part of the weight of `source` at the same path.

    Both are models of the same kind, such as `Classifier`s of a supernet and of one of its networks. Raises
    ValueError for a weight that is not a part of one of the source's.
    """
    wholes = {weight.path: weight for weight in source.weights}
    weights = [weight for weight in target.weights if keras.backend.is_float_dtype(weight.dtype)]
    for weight in weights:
        shape = tuple(weight.shape)
        whole = tuple(wholes[weight.path].shape) if weight.path in wholes else None
        if whole is None or any(n > size for n, size in zip(shape, whole, strict=True)):
            raise ValueError(f"{weight.path} {shape} must be a part of the supernet's, which is {whole}.")
    for weight in weights:
        array, shape = ops.convert_to_numpy(wholes[weight.path]), tuple(weight.shape)
        if "/query_key_value/" in weight.path:  # the leading part of each of the three
            array = array.reshape(*array.shape[:-1], 3, -1)
            shape = (*shape[:-1], 3, shape[-1] // 3)
        weight.assign(array[tuple(map(slice, shape))].reshape(tuple(weight.shape)))


def leading(count, size, dtype):
    """1 for the first `count` (B,) of `size` places, 0 for the others: (B, size)."""
    return ops.cast(ops.arange(size, dtype="int32") < count[:, None], dtype)


class LeadingFeatures(SameShape):
    """x (B, T, D) with zeros in place of the features that the network of each example does not have."""

    def call(self, x, network):
        """(B, T, D) -> (B, T, D)."""
        return x * leading(network[:, 0], x.shape[-1], x.dtype)[:, None]


class LeadingNormalization(SameShape):
    """Layer normalisation of the features that the network of each example has; the others stay zero."""

    def __init__(self, epsilon=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape, network_shape=None):
        self.gamma = self.add_weight((x_shape[-1],), "ones", name="gamma")
        self.beta = self.add_weight((x_shape[-1],), "zeros", name="beta")

    def call(self, x, network):
        """(B, T, D) -> (B, T, D)."""
        dtype, x = x.dtype, in_float32(x)
        shown = leading(network[:, 0], x.shape[-1], x.dtype)[:, None]  # (B, 1, D)
        count = ops.maximum(ops.sum(shown, axis=-1, keepdims=True), 1.0)
        centred = (x - ops.sum(x * shown, axis=-1, keepdims=True) / count) * shown
        variance = ops.sum(ops.square(centred), axis=-1, keepdims=True) / count
        y = centred * ops.rsqrt(variance + self.epsilon) * self.gamma + self.beta * shown
        return ops.cast(y, dtype)


class EntangledBlock(SameShape):
    """Layer number `index` of a supernet: AutoFormer's two residuals, of which each network uses a part.

    It is no `Block`: what a network lacks is hidden inside the residuals, between their stages.
    """

    is_block = True

    def __init__(self, attention, feedforward, index, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.feedforward = feedforward
        self.index = index

    def build(self, x_shape, network_shape=None):
        self.attention.build(x_shape)
        self.feedforward.build(x_shape)

    def call(self, x, network, training=None):
        """(B, T, D) -> (B, T, D); `x` itself for networks without this layer."""
        depth, i = (network.shape[-1] - 1) // 2, self.index
        num_heads, hidden_dim = network[:, 1 + i], network[:, 1 + depth + i]
        shown = leading(network[:, 0], x.shape[-1], x.dtype)[:, None]  # (B, 1, D)
        shown = shown * ops.cast(num_heads > 0, x.dtype)[:, None, None]

        attention = self.attention.branch
        query, *keys = attention.projections.project(self.attention.norm(x, network))
        heads = attention.attend(query, Keys(*keys), training=training)  # (B, H, T, K)
        heads = heads * leading(num_heads, heads.shape[1], heads.dtype)[..., None, None]
        x = self.attention.after(x, attention.merge(heads) * shown, training)

        feedforward = self.feedforward.branch
        hidden = feedforward.hidden(self.feedforward.norm(x, network))  # (B, T, F)
        hidden = hidden * leading(hidden_dim, hidden.shape[-1], hidden.dtype)[:, None]
        return self.feedforward.after(x, feedforward.output_projection(hidden) * shown, training)


# The search spaces of Chen et al. 2021.
AutoFormerSupernet.sizes = {
    "T": SearchSpace(),
    "S": SearchSpace(dims=(320, 384, 448), num_heads=(5, 6, 7), mlp_ratios=(3.0, 3.5, 4.0)),
    "B": SearchSpace(
        dims=(528, 576, 624), num_layers=(14, 15, 16), num_heads=(8, 9, 10), mlp_ratios=(3.0, 3.5, 4.0)
    ),
}
