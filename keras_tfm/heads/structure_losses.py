"""What a predicted structure is wrong by: losses and scores of frames, angles, distances and confidences.

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, section 1.9.
All give a number for each example (B,), in float32; places are in angstroms. Denominators and small numbers
are OpenFold's (aqlaboratory/openfold).
"""

from keras import ops

from keras_tfm.heads.structure import aligned_error_bins
from keras_tfm.layers.frames import (
    Frames,
    bins_of,
    distance_bins,
    frames_of_matrices,
    frames_of_quaternions,
)
from keras_tfm.layers.points import squared_distances
from keras_tfm.layers.signatures import Tensor


def frame_aligned_error(
    frames: Frames,
    true_frames: Frames,
    frame_mask: Tensor,
    points: Tensor,
    true_points: Tensor,
    point_mask: Tensor,
    clamp: float | None = 10.0,
    scale: float = 10.0,
    epsilon: float = 1e-4,
) -> Tensor:
    """How far, on average, points lie from where they should, as each frame sees them: FAPE, (...) for
    `frames` (..., F), `points` (..., P, 3) and masks (..., F) and (..., P).

    Distances are `clamp` at most, and divided by `scale`. No rotation or translation of all that is
    predicted changes the error, and a mirror image has one (algorithm 28).

    >>> frames, points = keras_tfm.layers.identity_frames((1, 2)), np.ones((1, 4, 3), "float32")
    >>> masks = np.ones((1, 2)), np.ones((1, 4))
    >>> error = keras_tfm.heads.frame_aligned_error(frames, frames, masks[0], points, points, masks[1])
    >>> round(float(error[0]), 4)  # the root of epsilon, over 10
    0.001
    """
    local, true = (
        f.with_axes(1).invert_apply(_float(x)[..., None, :, :])
        for f, x in ((frames, points), (true_frames, true_points))
    )  # (..., F, P, 3)
    distances = ops.sqrt(ops.sum(ops.square(local - true), axis=-1) + epsilon)
    if clamp is not None:
        distances = ops.minimum(distances, clamp)
    frame_mask, point_mask = (_float(mask) for mask in (frame_mask, point_mask))
    errors = distances / scale * frame_mask[..., None] * point_mask[..., None, :]
    errors = ops.sum(errors, axis=-1) / (epsilon + ops.sum(point_mask, axis=-1, keepdims=True))
    return ops.sum(errors, axis=-1) / (epsilon + ops.sum(frame_mask, axis=-1))


def backbone_error(
    trajectory: Tensor,
    true_frames: Tensor,
    mask: Tensor,
    clamped: Tensor | None = None,
    clamp: float = 10.0,
    scale: float = 10.0,
    epsilon: float = 1e-4,
) -> Tensor:
    """The mean `frame_aligned_error` of the CA of all layers: (B,) for a `trajectory` (B, L, N, 7), frames
    that should be (B, N, 4, 4), and `mask` (B, N). `clamped` (B,), by default ones, is 0 for examples whose
    distances are not clamped.

    >>> frames = np.tile(np.array([1.0, 0, 0, 0, 5, 5, 5], "float32"), (1, 2, 3, 1))
    >>> true = np.tile(np.eye(4, dtype="float32"), (1, 3, 1, 1))
    >>> keras_tfm.heads.backbone_error(frames, true, np.ones((1, 3))).shape
    TensorShape([1])
    """
    frames = frames_of_quaternions(trajectory)
    true = frames_of_matrices(true_frames)
    true = Frames(true.rotation[:, None], true.translation[:, None])
    mask = _float(mask)[:, None]

    def error(limit):
        places = frames.translation, true.translation
        parts = frames, true, mask, places[0], places[1], mask
        return ops.mean(frame_aligned_error(*parts, limit, scale, epsilon), axis=1)

    if clamped is None:
        return error(clamp)
    clamped = _float(clamped)
    return clamped * error(clamp) + (1 - clamped) * error(None)


def sidechain_error(
    frames: Tensor,
    true_frames: Tensor,
    frame_mask: Tensor,
    positions: Tensor,
    true_positions: Tensor,
    atom_mask: Tensor,
    clamp: float = 10.0,
    scale: float = 10.0,
    epsilon: float = 1e-4,
) -> Tensor:
    """The `frame_aligned_error` of all atoms as all groups see them: (B,) for frames (B, N, 8, 4, 4) and
    positions (B, N, 14, 3), with masks (B, N, 8) and (B, N, 14).

    >>> frames, positions = np.tile(np.eye(4, dtype="float32"), (1, 3, 8, 1, 1)), np.ones((1, 3, 14, 3))
    >>> masks = np.ones((1, 3, 8)), np.ones((1, 3, 14))
    >>> keras_tfm.heads.sidechain_error(frames, frames, masks[0], positions, positions, masks[1]).shape
    TensorShape([1])
    """
    frames, true_frames = (frames_of_matrices(_flat(x)) for x in (frames, true_frames))
    positions, true_positions = _flat(positions), _flat(true_positions)
    masks = _flat(frame_mask), _flat(atom_mask)
    parts = frames, true_frames, masks[0], positions, true_positions, masks[1]
    return frame_aligned_error(*parts, clamp, scale, epsilon)


def torsion_loss(
    angles: Tensor,
    unnormalized_angles: Tensor,
    true_chi: Tensor,
    chi_mask: Tensor,
    half_turns: Tensor,
    mask: Tensor,
    norm_weight: float = 0.01,
    chi_weight: float = 0.5,
    epsilon: float = 1e-6,
) -> Tensor:
    """What the chi angles of all layers are wrong by, squared, plus how far all angles' vectors are from the
    length 1: (B,) (algorithm 27).

    `angles` and `unnormalized_angles` are (B, L, N, 7, 2), `true_chi` (B, N, 4, 2), `chi_mask` (B, N, 4),
    `mask` (B, N). Where `half_turns` (B, N, 4) is 1, which `keras_tfm.layers.residues` knows, half a turn
    changes nothing, and the nearer angle counts.

    >>> angles = np.tile(np.array([0.0, 1.0], "float32"), (1, 2, 3, 7, 1))
    >>> flags = keras_tfm.layers.residues().half_turns[np.array([[0, 3, 6]])]
    >>> truth = -angles[:, 0, :, 3:], np.ones((1, 3, 4)) * flags, flags, np.ones((1, 3))
    >>> loss = keras_tfm.heads.torsion_loss(angles, angles, *truth)
    >>> round(float(loss[0]), 5)
    0.0
    """
    predicted = _float(angles)[..., 3:, :]  # (B, L, N, 4, 2)
    true_chi = _float(true_chi)
    turned = true_chi * (1 - 2 * _float(half_turns))[..., None]
    errors = [ops.sum(ops.square(x[:, None] - predicted), axis=-1) for x in (true_chi, turned)]
    chi = _mean(ops.minimum(*errors), _float(chi_mask)[:, None])
    squares = ops.sum(ops.square(_float(unnormalized_angles)), axis=-1)
    norms = ops.abs(ops.sqrt(squares + epsilon) - 1)  # (B, L, N, 7)
    return chi_weight * chi + norm_weight * _mean(norms, _float(mask)[:, None, :, None])


def local_distance_score(
    positions: Tensor, true_positions: Tensor, mask: Tensor, cutoff: float = 15.0, epsilon: float = 1e-10
) -> Tensor:
    """lDDT of each residue, in [0, 1]: how many distances to places that truly are within `cutoff` are kept,
    to 0.5, 1, 2 and 4 angstroms (Mariani et al. 2013). (B, N) for positions (B, N, 3) and `mask` (B, N).

    >>> places = np.array([[[0.0, 0, 0], [3.8, 0, 0], [7.6, 0, 0]]])
    >>> keras_tfm.heads.local_distance_score(places, places, np.ones((1, 3))).numpy().tolist()
    [[1.0, 1.0, 1.0]]
    """
    distances = ops.sqrt(squared_distances(positions, positions) + epsilon)
    true = ops.sqrt(squared_distances(true_positions, true_positions) + epsilon)
    mask = _float(mask)
    counts = ops.cast(true < cutoff, "float32") * mask[:, :, None] * mask[:, None]
    counts = counts * (1 - ops.eye(ops.shape(mask)[1]))
    errors = ops.abs(distances - true)
    kept = sum(ops.cast(errors < limit, "float32") for limit in (0.5, 1.0, 2.0, 4.0)) / 4
    return (epsilon + ops.sum(counts * kept, axis=-1)) / (epsilon + ops.sum(counts, axis=-1))


def confidence_loss(
    logits: Tensor,
    positions: Tensor,
    true_positions: Tensor,
    mask: Tensor,
    resolution: Tensor | None = None,
    resolutions: tuple[float, float] = (0.1, 3.0),
    cutoff: float = 15.0,
) -> Tensor:
    """The cross-entropy of `logits` (B, N, bins) for the `local_distance_score` of each residue: (B,).

    Positions (B, N, 3) get no gradient. Examples whose `resolution` (B,), in angstroms, lies outside
    `resolutions` count 0 (section 1.9.6).

    >>> places = np.array([[[0.0, 0, 0], [3.8, 0, 0]]])
    >>> keras_tfm.heads.confidence_loss(np.zeros((1, 2, 50)), places, places, np.ones((1, 2))).shape
    TensorShape([1])
    """
    score = ops.stop_gradient(local_distance_score(positions, true_positions, mask, cutoff))
    num_bins = logits.shape[-1]
    bins = ops.minimum(ops.cast(ops.floor(score * num_bins), "int32"), num_bins - 1)
    mask = _float(mask)
    loss = ops.sum(_entropies(logits, bins) * mask, axis=-1) / (1e-10 + ops.sum(mask, axis=-1))
    return loss * _is_within(resolution, resolutions)


def distogram_loss(
    logits: Tensor, positions: Tensor, mask: Tensor, nearest: float = 2.3125, farthest: float = 21.6875
) -> Tensor:
    """The cross-entropy of `logits` (B, N, N, bins) for the distances of `positions` (B, N, 3), CB or, in
    glycine, CA: (B,). Edges of the bins lie evenly from `nearest` to `farthest` (section 1.9.8).

    >>> places = np.array([[[0.0, 0, 0], [3.8, 0, 0]]])
    >>> keras_tfm.heads.distogram_loss(np.zeros((1, 2, 2, 64)), places, np.ones((1, 2))).shape
    TensorShape([1])
    """
    bins = distance_bins(positions, nearest, farthest, logits.shape[-1])
    return _pair_mean(_entropies(logits, bins), mask, 1e-6)


def masked_msa_loss(logits: Tensor, true_msa: Tensor, masked: Tensor) -> Tensor:
    """The cross-entropy of `logits` (B, S, N, classes) for the residues `true_msa` (B, S, N) that were hidden
    where `masked` (B, S, N): (B,) (section 1.9.9).

    >>> hidden = np.zeros((1, 2, 3), "int32")
    >>> keras_tfm.heads.masked_msa_loss(np.zeros((1, 2, 3, 23)), hidden, np.ones((1, 2, 3))).shape
    TensorShape([1])
    """
    masked = _float(masked)
    total = ops.sum(_entropies(logits, true_msa) * masked, axis=(1, 2))
    return total / (1e-8 + ops.sum(masked, axis=(1, 2)))


def aligned_error_loss(
    logits: Tensor,
    frames: Tensor,
    true_frames: Tensor,
    mask: Tensor,
    resolution: Tensor | None = None,
    resolutions: tuple[float, float] = (0.1, 3.0),
    farthest: float = 31.0,
) -> Tensor:
    """The cross-entropy of `logits` (B, N, N, bins) for how far residue j is off as residue i sees it: (B,).

    `frames` (B, N, 7) are predicted and get no gradient, `true_frames` are (B, N, 4, 4); `resolution` as in
    `confidence_loss` (section 1.9.7).

    >>> frames = np.tile(np.array([1.0, 0, 0, 0, 5, 5, 5], "float32"), (1, 3, 1))
    >>> true = np.tile(np.eye(4, dtype="float32"), (1, 3, 1, 1))
    >>> keras_tfm.heads.aligned_error_loss(np.zeros((1, 3, 3, 64)), frames, true, np.ones((1, 3))).shape
    TensorShape([1])
    """
    local, true = (
        f.with_axes(1).invert_apply(f.translation[:, None])
        for f in (frames_of_quaternions(frames), frames_of_matrices(true_frames))
    )  # (B, N, N, 3)
    squares = ops.stop_gradient(ops.sum(ops.square(local - true), axis=-1))
    first, last = aligned_error_bins(farthest)
    bins = bins_of(squares, first, last, logits.shape[-1])
    return _pair_mean(_entropies(logits, bins), mask, 1e-8) * _is_within(resolution, resolutions)


def _float(x):
    return ops.cast(x, "float32")


def _entropies(logits, labels):
    """The cross-entropy of `logits` (..., classes) for integer `labels` (...)."""
    logits = _float(logits)
    return ops.sparse_categorical_crossentropy(ops.cast(labels, "int32"), logits, from_logits=True)


def _pair_mean(values, mask, epsilon):
    """The mean of `values` (B, N, N) over pairs of residues in `mask` (B, N)."""
    mask = _float(mask)
    pairs = mask[:, :, None] * mask[:, None]
    return ops.sum(values * pairs, axis=(1, 2)) / (epsilon + ops.sum(pairs, axis=(1, 2)))


def _mean(values, mask, epsilon=1e-4):
    """The mean of `values` (B, ...) where `mask`, which broadcasts over them, is 1: (B,)."""
    mask = mask + ops.zeros_like(values)
    axes = tuple(range(1, len(values.shape)))
    return ops.sum(values * mask, axis=axes) / (epsilon + ops.sum(mask, axis=axes))


def _is_within(values, limits):
    """1 for `values` (B,) within `limits`, else 0; 1 for None."""
    if values is None:
        return 1.0
    low, high = limits
    values = ops.convert_to_tensor(values)
    return ops.cast(ops.logical_and(values >= low, values <= high), "float32")


def _flat(x):
    """(B, N, K, ...) -> (B, N K, ...)."""
    x = ops.convert_to_tensor(x)
    size, length, count, *rest = ops.shape(x)
    return ops.reshape(x, (size, length * count, *rest))
