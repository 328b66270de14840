"""A block for the contract, whose cases name a layer's tensors one by one."""

from keras_tfm import layers


class FlatBlock(layers.Block):
    """A `Block` whose tensors are arguments of `call`; both attentions have the same positions."""

    def build(self, x_shape, context_shape=None):
        super().build(x_shape, {"context_attention": {"context": context_shape}})

    def call(  # type: ignore[override]
        self,
        x,
        context=None,
        mask=None,
        context_mask=None,
        bias=None,
        position=None,
        context_position=None,
        training=None,
    ):
        tensors = {"attention": {"mask": mask, "bias": bias, "position": position}}
        if self.context_attention is not None:
            places = {"position": position, "context_position": context_position}
            tensors["context_attention"] = {"context": context, "mask": context_mask, **places}
        return super().call(x, training, **tensors)


def detr_block(cross_attention=False, num_heads=2, width=12, **options):
    """The block of DETR's encoder or, with cross-attention, of its decoder."""

    def part(branch):
        return layers.Residual(branch, layers.LayerNormalization(1e-5))

    def attention():
        return part(layers.PositionedAttention(layers.MultiHeadAttention(num_heads)))

    parts = {
        "attention": attention(),
        "context_attention": attention() if cross_attention else None,
        "feedforward": part(layers.FeedForward(width)),
    }
    return FlatBlock(parts, **options)
