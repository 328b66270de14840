"""The search space of AutoFormer's networks (Chen et al. 2021), with the steps of an evolutionary search."""

import dataclasses

import numpy as np

from keras_tfm.configs import Depth, Rate, Size
from keras_tfm.models.vision.autoformer import AutoFormerConfig
from keras_tfm.models.vision.images import PatchedImageConfig, Ratio


@dataclasses.dataclass(frozen=True)
class SearchSpace(PatchedImageConfig):
    """The choices for a network: its width, its number of layers, and each layer's heads and feed-forward
    width.

    The networks are `AutoFormerConfig`s. An evolutionary search takes `sample`, `mutate` and `cross`: see
    examples/search_networks.py.

    >>> space = keras_tfm.models.SearchSpace(dims=(16, 32), num_layers=(1, 2), num_heads=(1, 2))
    >>> space.largest.dim
    32
    """

    dims: tuple[Size, ...] = (192, 216, 240)
    num_layers: tuple[Depth, ...] = (12, 13, 14)
    num_heads: tuple[Size, ...] = (3, 4)
    mlp_ratios: tuple[Ratio, ...] = (3.5, 4.0)
    key_dim: Size = 64
    max_distance: Size = 14
    epsilon: Rate = 1e-5

    def __post_init__(self):
        super().__post_init__()
        for name in ("dims", "num_layers", "num_heads", "mlp_ratios"):
            if not getattr(self, name):
                raise ValueError(f"`{name}` must have at least one number; it is {getattr(self, name)}.")

    def network(self, dim, num_heads, mlp_ratios):
        """The configuration of one network."""
        names = {field.name for field in dataclasses.fields(AutoFormerConfig)}
        shared = {name: value for name, value in dataclasses.asdict(self).items() if name in names}
        shared |= {"dim": dim, "num_heads": tuple(num_heads), "mlp_ratios": tuple(mlp_ratios)}
        return AutoFormerConfig(**shared)

    @property
    def largest(self):
        """The configuration of the largest network, of which all others are parts."""
        depth = max(self.num_layers)
        return self.network(max(self.dims), [max(self.num_heads)] * depth, [max(self.mlp_ratios)] * depth)

    def encode(self, config):
        """A network as numbers for the supernet: int32 (1 + 2 L,).

        They are its width, then the heads of all layers, then their feed-forward widths. Layers that the
        network lacks have 0 heads.
        """
        missing = [0] * (max(self.num_layers) - len(config.num_heads))
        return np.array([config.dim, *config.num_heads, *missing, *config.hidden_dims, *missing], "int32")

    def sample(self, rng):
        """A random network."""
        depth = rng.choice(self.num_layers)
        return self.network(
            int(rng.choice(self.dims)),
            rng.choice(self.num_heads, depth).tolist(),
            rng.choice(self.mlp_ratios, depth).tolist(),
        )

    def mutate(self, config, rng, layer_rate=0.2, shape_rate=0.4):
        """`config` with each layer's choices drawn again with probability `layer_rate`, width and depth with
        `shape_rate`.
        """
        other = self.sample(rng)
        dim = other.dim if rng.random() < shape_rate else config.dim
        depth = len((other if rng.random() < shape_rate else config).num_heads)
        layers = []
        for name, choices in (("num_heads", self.num_heads), ("mlp_ratios", self.mlp_ratios)):
            fresh = rng.choice(choices, depth).tolist()
            current = [*getattr(config, name)[:depth], *fresh[len(config.num_heads) :]]
            is_new = rng.random(depth) < layer_rate
            layers.append([b if new else a for a, b, new in zip(current, fresh, is_new, strict=True)])
        return self.network(dim, *layers)

    def cross(self, config, other, rng):
        """A network as deep as `config`, with each choice taken at random from `config` or, where it has the
        layer, `other`.
        """
        layers = []
        for name in ("num_heads", "mlp_ratios"):
            pairs = list(getattr(config, name))
            for i, value in enumerate(getattr(other, name)[: len(pairs)]):
                pairs[i] = value if rng.random() < 0.5 else pairs[i]
            layers.append(pairs)
        return self.network(other.dim if rng.random() < 0.5 else config.dim, *layers)
