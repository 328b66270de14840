"""Masks as a few numbers, and back: codes that a detector of instances predicts in place of masks.

    mask (rows, columns) --> code (K,) --> mask

Three codes of Hu et al. 2021, "ISTR: End-to-End Instance Segmentation with Transformers": principal
components of logits (section 3.2), the low frequencies of the cosine transform (Shen et al. 2021, "DCT-Mask")
and the inside of an auto-encoder, the `MaskAutoencoder`. Masks are float, 1 for a pixel of the object.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.resizing import resize_between_corners
from keras_tfm.layers.signatures import Tensor
from keras_tfm.precision import layers_follow
from keras_tfm.registry import register
from keras_tfm.training.model import FunctionalModel

MARGIN = 0.03  # by which masks stay away from 0 and 1, whose logits are infinite


@dataclasses.dataclass(frozen=True)
class PrincipalMaskCode:
    """Whitened principal components of the logits of masks of one size.

    `mean` is (rows, columns), `components` (K, rows columns) have the length 1, and `variances` (K,) are the
    numbers' before they are divided by their deviations. ValueError for a mask of another size.

    >>> masks = np.eye(4)[:, None] * np.ones((1, 3, 1))  # four masks of three rows and four columns
    >>> code = keras_tfm.heads.PrincipalMaskCode.fit(masks, num_components=3)
    >>> [round(float(x), 2) for x in code.decode(code.encode(masks))[0, 0]]
    [0.97, 0.03, 0.03, 0.03]
    """

    mean: Any
    components: Any
    variances: Any

    @classmethod
    def fit(cls, masks: Any, num_components: int) -> "PrincipalMaskCode":
        """The code of the `num_components` directions in which `masks` (N, rows, columns) differ most.

        ValueError for more than N or rows x columns, and where the masks differ in fewer directions.
        """
        masks = np.asarray(masks, "float64")
        most = min(len(masks), masks[0].size)
        if not 1 <= num_components <= most:
            raise ValueError(f"`num_components` must be 1 to {most}; it is {num_components}.")
        mean, components, variances = _directions(masks)
        if num_components > len(variances):
            raise ValueError(
                f"`num_components` must be at most {len(variances)}, the directions in which the masks "
                f"differ; it is {num_components}."
            )
        return cls(mean, components[:num_components], variances[:num_components])

    def encode(self, masks: Tensor) -> Tensor:
        """Codes (..., K) of `masks` (..., rows, columns)."""
        masks = ops.cast(masks, "float32")
        if tuple(masks.shape[-2:]) != tuple(self.mean.shape):
            raise ValueError(f"`masks` must be (..., *{self.mean.shape}); they are {tuple(masks.shape)}.")
        logits = _logits_of(masks) - self.mean
        logits = ops.reshape(logits, (*ops.shape(masks)[:-2], self.components.shape[1]))
        return ops.matmul(logits, ops.transpose(self.components)) / ops.sqrt(self.variances)

    def decode(self, codes: Tensor) -> Tensor:
        """The masks (..., rows, columns) of `codes` (..., K), each pixel from 0 to 1."""
        return ops.sigmoid(self.logits(codes))

    def logits(self, codes: Tensor) -> Tensor:
        """The logits of the masks (..., rows, columns) of `codes` (..., K)."""
        codes = ops.cast(codes, "float32")
        logits = ops.matmul(codes * ops.sqrt(self.variances), self.components)
        return ops.reshape(logits, (*ops.shape(codes)[:-1], *self.mean.shape)) + self.mean


class MaskCodec(Layer):
    """A `PrincipalMaskCode` whose numbers are weights that are not trained: codes (..., K) -> logits of masks
    (..., side, side). They are zeros until `fit`.

    >>> codec = keras_tfm.heads.MaskCodec(side=4, code_dim=3)
    >>> codec.fit(np.tril(np.ones((4, 4)))[:, :, None] * np.ones(4))  # 1 to 4 rows
    >>> masks = np.zeros((1, 4, 4))
    >>> masks[0, :2] = 1
    >>> (np.asarray(codec(codec.encode(masks))) > 0).sum()
    np.int64(8)
    """

    def __init__(self, side: int, code_dim: int, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        require_sizes(side=side, code_dim=code_dim)
        self.side = side
        self.code_dim = code_dim

    def build(self, codes_shape):
        if codes_shape[-1] != self.code_dim:
            raise ValueError(f"`codes` must be (..., {self.code_dim}); they are {tuple(codes_shape)}.")

        def weight(name, *shape, value="zeros"):
            options = {"trainable": False, "dtype": "float32", "autocast": False}
            return self.add_weight(name=name, shape=shape, initializer=value, **options)

        self.mean = weight("mean", self.side, self.side)
        self.components = weight("components", self.code_dim, self.side**2)
        self.deviations = weight("deviations", self.code_dim, value="ones")

    @property
    def code(self) -> PrincipalMaskCode:
        """The code that the weights say."""
        return PrincipalMaskCode(self.mean, self.components, ops.square(self.deviations))

    @property
    def is_fitted(self) -> bool:
        """Whether there is a mean, which of masks is nowhere 0."""
        return self.built and bool(np.any(ops.convert_to_numpy(self.mean)))

    def fit(self, masks: Any) -> None:
        """Take the directions in which `masks` (N, side, side) differ most. Where they differ in fewer than
        K, the last numbers of a code are 0.
        """
        if not self.built:
            self.build((None, self.code_dim))
        mean, components, variances = _directions(np.asarray(masks, "float64"))
        count = min(self.code_dim, len(variances))
        self.mean.assign(mean)
        rest = [(0, self.code_dim - count)]
        self.components.assign(np.pad(components[:count], [*rest, (0, 0)]))
        self.deviations.assign(np.pad(np.sqrt(variances[:count]), rest, constant_values=1.0))

    def encode(self, masks: Tensor) -> Tensor:
        """Codes (..., K) of masks (..., side, side)."""
        return self.code.encode(masks)

    def call(self, codes):
        """Codes (..., K) -> logits (..., side, side)."""
        return ops.cast(self.code.logits(codes), self.compute_dtype)

    def compute_output_shape(self, codes_shape):
        return (*codes_shape[:-1], self.side, self.side)


def _directions(masks):
    """The mean of the logits of `masks` (N, rows, columns), the directions of length 1 in which these differ,
    the most important first, and the variances along them, float32.
    """
    logits = _logits_of(masks)
    mean = logits.mean(axis=0)
    _, lengths, components = np.linalg.svd((logits - mean).reshape(len(logits), -1), full_matrices=False)
    count = int(np.sum(lengths > 1e-6 * max(lengths[0], 1.0)))
    variances = lengths[:count] ** 2 / len(logits)
    return tuple(part.astype("float32") for part in (mean, components[:count], variances))


def _logits_of(masks):
    """The logits of masks between `MARGIN` and 1 - `MARGIN`."""
    soft = MARGIN + (1 - 2 * MARGIN) * masks
    log = np.log if isinstance(soft, np.ndarray) else ops.log
    return log(soft / (1 - soft))


def cosine_code(masks: Tensor, length: int) -> Tensor:
    """The first `length` numbers of the two-dimensional cosine transform of square `masks` (..., side, side),
    in the order of `zigzag`: (..., `length`).

    >>> keras_tfm.heads.cosine_code(np.ones((2, 4, 4)), 3).numpy().round(3).tolist()
    [[4.0, 0.0, 0.0], [4.0, 0.0, 0.0]]
    """
    side = masks.shape[-1]
    basis = cosine_basis(side)
    rows, columns = zigzag(side, length).T
    frequencies = ops.einsum("ij,...jk,lk->...il", basis, ops.cast(masks, "float32"), basis)
    flat = ops.reshape(frequencies, (*ops.shape(frequencies)[:-2], side * side))
    return ops.take(flat, (rows * side + columns).astype("int32"), axis=-1)


def masks_of_cosines(codes: Tensor, side: int) -> Tensor:
    """The masks (..., `side`, `side`) of codes (..., K) of `cosine_code`, not limited to 0 to 1.

    >>> keras_tfm.heads.masks_of_cosines(np.array([[4.0, 0.0, 0.0]]), 4).numpy()[0, 0].round(3).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    basis = cosine_basis(side)
    rows, columns = zigzag(side, codes.shape[-1]).T
    waves = np.einsum("ki,kj->kij", basis[rows], basis[columns])  # (K, side, side)
    return ops.einsum("...k,kij->...ij", ops.cast(codes, "float32"), waves)


def cosine_basis(side):
    """The orthonormal cosine transform (II) of `side` numbers: (`side` frequencies, `side`)."""
    places = (np.arange(side) + 0.5) / side
    basis = np.cos(np.pi * np.arange(side)[:, None] * places) * np.sqrt(2 / side)
    basis[0] *= np.sqrt(0.5)
    return basis.astype("float32")


def zigzag(side, length):
    """The (row, column) of the first `length` cells of a square map along its diagonals, which are read up
    and down in turn, as in JPEG. ValueError for more cells than there are.
    """
    if not 1 <= length <= side * side:
        raise ValueError(f"The length of a code must be 1 to {side * side}; it is {length}.")
    cells = [(row, column) for row in range(side) for column in range(side)]
    cells.sort(key=lambda cell: (sum(cell), cell[0] if sum(cell) % 2 else cell[1]))
    return np.array(cells[:length])


class MaskAutoencoder(FunctionalModel):
    """An auto-encoder of masks (B, side, side): `code` (B, K) and `masks` (B, side, side), from 0 to 1.

    Convolutions of stride 2 make a map of it, which one convolution makes a code; a transposed one and
    enlargements between the corners, each convolved, turn it back. `encoder` and `decoder` are its layers.

    Args:
        side: of the masks, 2^n times a whole number for n `widths`.
        code_dim: K.
        widths: the channels of the maps, the largest map first.

    >>> model = keras_tfm.heads.MaskAutoencoder(32, 10, widths=(4, 8))
    >>> model(np.zeros((1, 32, 32)))["code"].shape
    TensorShape([1, 10])
    """

    def __init__(
        self,
        side: int = 112,
        code_dim: int = 256,
        widths: Sequence[int] = (16, 32, 64, 128),
        name: str = "mask_autoencoder",
        **kwargs: Any,
    ) -> None:
        last = side // 2 ** len(widths)
        if not widths or last < 1 or last * 2 ** len(widths) != side:
            raise ValueError(f"`side` must be a multiple of {2 ** len(widths)}; it is {side}.")
        masks = keras.Input((side, side), name="masks")
        encoder = [_convolution(width, 4, 2, 1) for width in widths]
        encoder = Chain([*encoder, Convolution(code_dim, last, padding=0)], name="encoder")
        first = keras.layers.Conv2DTranspose(widths[-1], last, name="convolution")
        decoder = [first, BatchNormalization(), keras.layers.Activation("elu")]
        for width in (*widths[-2::-1], widths[0]):
            decoder += [Enlarged(), _convolution(width, 3)]
        decoder = Chain([*decoder, Convolution(1, 1, activation="sigmoid")], name="decoder")
        code = encoder(masks[..., None])  # (B, 1, 1, K)
        outputs = {"code": code[:, 0, 0], "masks": decoder(code)[..., 0]}
        super().__init__(masks, outputs, name=name, **kwargs)
        self.side, self.code_dim, self.widths = side, code_dim, tuple(widths)

    def get_config(self):
        fields = {"side": self.side, "code_dim": self.code_dim, "widths": self.widths, "name": self.name}
        return {**fields, "dtype": keras.dtype_policies.serialize(self.dtype_policy)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Rebuild the model from `get_config`'s dictionary."""
        return cls(**config)


layers_follow(register(MaskAutoencoder), lambda *_, **__: None)


class Enlarged(Layer):
    """A map of twice the sides, interpolated between the corners: (B, H, W, D) -> (B, 2 H, 2 W, D)."""

    def call(self, x):
        return resize_between_corners(x, (2 * x.shape[1], 2 * x.shape[2]))

    def compute_output_shape(self, x_shape):
        batch_size, rows, columns, dim = x_shape
        return (batch_size, 2 * rows, 2 * columns, dim)


def _convolution(width, kernel_size, stride=1, padding=None):
    norm = BatchNormalization()
    return Convolution(width, kernel_size, stride, padding, norm=norm, activation="elu", use_bias=True)
