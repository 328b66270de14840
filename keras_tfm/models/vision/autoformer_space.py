"""The networks among which AutoFormer is searched (Chen et al. 2021), as `evolve` asks for them."""

import dataclasses

import numpy as np

from keras_tfm.configs import Config, Depth, Rate, Size
from keras_tfm.models.vision.autoformer import AutoFormerConfig
from keras_tfm.models.vision.images import Ratio, Side


@dataclasses.dataclass(frozen=True)
class SearchSpace(Config):
    """What a network may have: `dims`, numbers of layers, and for each layer heads and a feed-forward width.

    Its networks are `AutoFormerConfig`s, for which it has what `keras_tfm.training.evolve` asks for.
    """

    image_size: Side | tuple[Side, Side] = 224
    patch_size: Side | tuple[Side, Side] = 16
    num_channels: Size = 3
    dims: tuple[Size, ...] = (192, 216, 240)
    num_layers: tuple[Depth, ...] = (12, 13, 14)
    num_heads: tuple[Size, ...] = (3, 4)
    mlp_ratios: tuple[Ratio, ...] = (3.5, 4.0)
    key_dim: Size = 64
    max_distance: Size = 14
    dropout: Rate = 0.0
    stochastic_depth: Rate = 0.0
    epsilon: Rate = 1e-5

    def __post_init__(self):
        super().__post_init__()
        for name in ("dims", "num_layers", "num_heads", "mlp_ratios"):
            if not getattr(self, name):
                raise ValueError(f"`{name}` must have a number to choose; it is {getattr(self, name)}.")

    def network(self, dim, num_heads, mlp_ratios):
        """The configuration of one network."""
        names = {field.name for field in dataclasses.fields(AutoFormerConfig)}
        shared = {name: value for name, value in dataclasses.asdict(self).items() if name in names}
        shared |= {"dim": dim, "num_heads": tuple(num_heads), "mlp_ratios": tuple(mlp_ratios)}
        return AutoFormerConfig(**shared)

    @property
    def largest(self):
        """The configuration of the network that all others are parts of."""
        depth = max(self.num_layers)
        return self.network(max(self.dims), [max(self.num_heads)] * depth, [max(self.mlp_ratios)] * depth)

    def encode(self, config):
        """The numbers by which a supernet knows a network: its dim, then heads, then widths of all layers.

        Layers that the network does not have have 0 heads. An array (1 + 2 L,) of int32.
        """
        missing = [0] * (max(self.num_layers) - len(config.num_heads))
        return np.array([config.dim, *config.num_heads, *missing, *config.hidden_dims, *missing], "int32")

    def sample(self, rng):
        """A network drawn at random."""
        depth = rng.choice(self.num_layers)
        return self.network(
            int(rng.choice(self.dims)),
            rng.choice(self.num_heads, depth).tolist(),
            rng.choice(self.mlp_ratios, depth).tolist(),
        )

    def mutate(self, config, rng, layer_rate=0.2, shape_rate=0.4):
        """`config` with each choice made anew, of the layers' with `layer_rate`, of others `shape_rate`."""
        other = self.sample(rng)
        dim = other.dim if rng.random() < shape_rate else config.dim
        depth = len((other if rng.random() < shape_rate else config).num_heads)
        chosen = []
        for name, choices in (("num_heads", self.num_heads), ("mlp_ratios", self.mlp_ratios)):
            fresh = rng.choice(choices, depth).tolist()
            kept = [*getattr(config, name)[:depth], *fresh[len(config.num_heads) :]]
            is_new = rng.random(depth) < layer_rate
            chosen.append([b if new else a for a, b, new in zip(kept, fresh, is_new, strict=True)])
        return self.network(dim, *chosen)

    def cross(self, config, other, rng):
        """A network as deep as `config` that has each choice from one of both, where `other` has a layer."""
        chosen = []
        for name in ("num_heads", "mlp_ratios"):
            pairs = list(getattr(config, name))
            for i, value in enumerate(getattr(other, name)[: len(pairs)]):
                pairs[i] = value if rng.random() < 0.5 else pairs[i]
            chosen.append(pairs)
        return self.network(other.dim if rng.random() < 0.5 else config.dim, *chosen)
