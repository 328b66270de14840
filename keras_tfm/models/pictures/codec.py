"""What models of codes have in common: images in, a grid of codes, images out, and each half by itself."""

from typing import ClassVar

from keras import ops

from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import image_input


class ImageCodec(ConfiguredModel):
    """Images become codes, and codes images. Abstract.

    Input: `images` (B, H, W, C), floating-point. Output: `images`, of the same shape. The blocks are the
    stacks "encoder" and "decoder"; `hidden_states` are maps. `grid` are the (rows, columns) of the codes,
    `num_codes` how many different ones there are. Training adds the loss of the codes to the losses that the
    model is compiled with. Pixels lie in `value_range`.

    Args:
        encoder: the layers before the quantiser, in a row.
        quantizer: a `VectorQuantizer` or a `GumbelSoftmax`.
        decoder: the layers after it.
    """

    value_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __init__(self, config, encoder, quantizer, decoder, **kwargs):
        inputs = {"images": image_input(config)}
        trace = Trace()
        latents = trace.run("encoder", encoder, inputs["images"])
        outputs = self.outputs_of(trace.run("decoder", decoder, quantizer(latents)))
        super().__init__(config, inputs, outputs, trace, **kwargs)
        self.grid = tuple(latents.shape[1:3])
        self.num_codes = quantizer.num_codes
        self.quantizer = quantizer
        self.halves = {"encoder": tuple(encoder), "decoder": tuple(decoder)}

    def outputs_of(self, x):
        """The model's outputs, by name, from the output of the last layer."""
        return {"images": x}

    def encode(self, images):
        """The codes of `images` (B, H, W, C): integers (B, rows, columns) in [0, `num_codes`)."""
        images = ops.convert_to_tensor(images, "float32")
        return self.quantizer.code_ids(Trace().run("encoder", self.halves["encoder"], images))

    def decode(self, code_ids):
        """The images (B, H, W, C) of codes (B, rows, columns). ValueError for codes outside the table."""
        x = Trace().run("decoder", self.halves["decoder"], self.quantizer.embed(code_ids))
        return self.outputs_of(x)["images"]

    @property
    def last_kernel(self):
        """The kernel of the convolution that makes the images."""
        return [weight for weight in self.halves["decoder"][-1].weights if len(weight.shape) == 4][-1]
