"""The made world of solids: closed surfaces, clouds that depend on their seeds alone, files."""

import numpy as np
import pytest

from keras_tfm.data import read_labelled_points
from keras_tfm.data.worlds.solid_shapes import SOLIDS, solid_clouds, solid_mesh, write_solid_clouds

# By hand, from the radii and heights of SOLIDS; round solids have many flat sides, which is within 2 %.
VOLUMES = {
    "box": 1.41**2 * 2 * 2,
    "cone": np.pi * 2 / 3,
    "cylinder": np.pi * 0.81 * 2,
    "double cone": np.pi * 2 / 3,
    "pyramid": 1.41**2 * 2 * 2 / 3,
    "sphere": np.pi * 4 / 3,
    "torus": 2 * np.pi**2 * 0.75 * 0.0625,
}


@pytest.mark.parametrize("name", SOLIDS)
def test_a_surface_is_closed_and_has_its_volume(name):
    vertices, triangles = solid_mesh(name)
    corners = vertices[triangles]
    sides = corners[:, 1:] - corners[:, :1]
    normals = np.cross(sides[:, 0], sides[:, 1]) / 2
    np.testing.assert_allclose(normals.sum(axis=0), 0, atol=1e-9)  # as of any closed surface
    volume = np.einsum("fc,fc->", normals, corners.mean(axis=1)) / 3
    assert volume == pytest.approx(VOLUMES.get(name, volume), rel=0.02) and volume > 0.5


def test_clouds_depend_on_their_seed_alone():
    clouds, names = solid_clouds(12, seed=3, num_points=40)
    assert clouds.shape == (12, 40, 3) and names[10] == names[0] == "box" and len(set(names)) == 10
    np.testing.assert_array_equal(solid_clouds(11, seed=3, num_points=40)[0], clouds[:11])
    assert not np.allclose(clouds[10], clouds[0]) and not np.allclose(solid_clouds(1, 4, 40)[0], clouds[0])
    again, _ = solid_clouds(1, seed=3, num_points=40, noise=0.0)
    assert 0.005 < np.std(again[0] - clouds[0]) < 0.05


def test_clouds_are_written_by_their_names(tmp_path):
    write_solid_clouds(tmp_path / "solids", 20, seed=1, num_points=30)
    data = read_labelled_points(tmp_path / "solids", num_points=30, normalize=False)
    assert data.class_names == sorted(SOLIDS) and data.clouds.sizes == [30] * 20
    boxes = [data.clouds[row] for row in np.flatnonzero(data.labels == 0)]
    np.testing.assert_allclose(boxes, solid_clouds(11, seed=1, num_points=30)[0][[0, 10]], atol=1e-4)
