"""Stacks of plain Transformer blocks, each stack as one layer."""

from typing import Any

from keras_tfm.layers.base import SameShape, require_sizes
from keras_tfm.layers.blocks import TransformerBlock
from keras_tfm.layers.masks import combine_masks, key_mask_of, padding_mask_of
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.signatures import Activation


class TransformerStack(SameShape):
    """`num_layers` blocks in a row. Abstract: see `TransformerEncoder` and `TransformerDecoder`.

    The other arguments are as in `TransformerBlock`. With `normalize_first` a last norm follows the blocks.
    """

    causal = False

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        activation: Activation = "relu",
        normalize_first: bool = False,
        cross_attention: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(num_layers=num_layers)
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.activation = activation
        self.normalize_first = normalize_first
        self.cross_attention = cross_attention
        self.blocks = [
            TransformerBlock(
                num_heads,
                intermediate_dim,
                dropout,
                activation,
                normalize_first,
                self.causal,
                cross_attention,
                name=f"block_{i}",
            )
            for i in range(num_layers)
        ]
        self.norm = LayerNormalization() if normalize_first else None

    def build(self, x_shape, context_shape=None):
        for block in self.blocks:
            block.build(x_shape, context_shape)
        if self.norm is not None:
            self.norm.build(x_shape)

    def call(self, x, context=None, mask=None, context_mask=None, bias=None, training=None):
        """(B, T, D) -> (B, T, D); all blocks get the same `context` (B, S, D), masks and `bias`."""
        mask = combine_masks(mask, key_mask_of(x))
        if context is not None:
            context_mask = combine_masks(context_mask, key_mask_of(context), name="context_mask")
        for block in self.blocks:
            x = block(x, context, mask=mask, context_mask=context_mask, bias=bias, training=training)
        return x if self.norm is None else self.norm(x)

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """The call itself: each block recomputes by itself."""
        return layer_call

    def compute_mask(self, x, previous_mask=None):
        return key_mask_of(x)


class TransformerEncoder(TransformerStack):
    """A stack of `TransformerBlock`s in which every position sees every other: (B, T, D) in and out.

    >>> encoder = keras_tfm.layers.TransformerEncoder(num_layers=2, num_heads=2, intermediate_dim=16)
    >>> encoder(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """


class TransformerDecoder(TransformerStack):
    """A stack of causal `TransformerBlock`s; with `cross_attention=True` they attend to an encoder's output
    too.

    `start` and `step` decode incrementally: a step gives what `call` gives at the same positions.

    >>> arguments = {"num_layers": 2, "num_heads": 2, "intermediate_dim": 16}
    >>> decoder = keras_tfm.layers.TransformerDecoder(**arguments, cross_attention=True)
    >>> decoder(np.ones((1, 5, 8)), context=np.ones((1, 7, 8))).shape
    TensorShape([1, 5, 8])
    """

    causal = True

    def start(self, batch_size, max_length, context=None, context_mask=None):
        """A cache per block, for up to `max_length` positions with `context` (B, S, D)."""
        return start_blocks(self.blocks, batch_size, max_length, context, context_mask)

    def step(self, x, cache, mask=None, bias=None):
        """The output at the next T positions (B, T, D); `mask` (B, T) is False at padding among them."""
        mask = padding_mask_of(x, mask)  # the first block's output carries none
        x, cache = step_blocks(self.blocks, x, cache, mask, bias)
        return (x if self.norm is None else self.norm(x)), cache


def start_blocks(blocks, batch_size, max_length, context=None, context_mask=None):
    """The caches of causal `blocks`, one each, for up to `max_length` positions."""
    return [block.start(batch_size, max_length, context, context_mask) for block in blocks]


def step_blocks(blocks, x, caches, mask=None, bias=None):
    """The output of causal `blocks` in a row at the next T positions (B, T, D), and their new caches."""
    stepped = []
    for block, cache in zip(blocks, caches, strict=True):
        x, cache = block.step(x, cache, mask, bias)
        stepped.append(cache)
    return x, stepped
