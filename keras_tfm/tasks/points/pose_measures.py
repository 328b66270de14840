"""How many joints of poses are found."""

import numpy as np

NEAR = 0.1  # of the largest side of a pose's box: a joint found within it counts as right


def correct_joints(found: np.ndarray, joints: np.ndarray) -> dict[str, float]:
    """ "pck" and "auc" of `found` joints (N, J, 3), in percent; see `PoseEstimator.measure`.

    >>> joints = np.array([[[0.0, 0, 0], [10, 0, 0]]])
    >>> from keras_tfm.tasks.points.pose_measures import correct_joints
    >>> correct_joints(joints + np.array([[[0, 0, 0.5], [0, 0, 2.0]]]), joints)
    {'pck': 50.0, 'auc': 25.0}
    """
    sides = np.ptp(joints, axis=1).max(axis=-1)  # (N,)
    errors = np.linalg.norm(found - joints, axis=-1)
    shares = errors / np.maximum(NEAR * sides, np.finfo(float).tiny)[:, None]  # 1 is the threshold
    return {
        "pck": 100 * float(np.mean(shares <= 1)),
        "auc": 100 * float(np.mean(np.maximum(0, 1 - shares))),
    }
