"""Drawn people before several cameras: a world for models that find somebody again, without a download.

What a person is lasts: build, hair, skin, the colours and the pattern of the clothes, a bag. What a camera
does changes it: its light and its colours, how large and where people are, whether they are mirrored, and
what is behind them. Each picture has a pose and noise of its own.
"""

import os
import pathlib
from typing import Any

import numpy as np

from keras_tfm.data.sources.identities import Identities

HEIGHT, WIDTH = 64, 32  # pixels
PATTERNS = ("plain", "stripes", "halves", "band")
SKINS = np.array([(255, 219, 172), (224, 172, 105), (141, 85, 36), (90, 56, 37)])
HAIRS = np.array([(30, 25, 20), (110, 70, 30), (220, 190, 120), (150, 150, 150), (150, 50, 30)])


def drawn_people(
    num_identities: int, seed: int = 0, num_cameras: int = 4, num_shots: int = 2, first: int = 0
) -> Identities:
    """Pictures (N, 64, 32, 3), 8-bit, of `num_identities` people by each of the cameras, `num_shots` each.
    Person i depends on `seed` and `first` + i alone; cameras, numbered from 1, are the same in all worlds.

    >>> from keras_tfm.data.worlds import drawn_people
    >>> data = drawn_people(num_identities=2, num_cameras=3, num_shots=1)
    >>> data.images.shape, data.identities.tolist(), data.cameras.tolist()
    ((6, 64, 32, 3), ['0001', '0001', '0001', '0002', '0002', '0002'], [1, 2, 3, 1, 2, 3])
    """
    images, names, cameras = [], [], []
    for number in range(first, first + num_identities):
        person = _person(np.random.default_rng((seed, number)))
        for camera in range(num_cameras):
            for shot in range(num_shots):
                rng = np.random.default_rng((seed, number, camera, shot))
                images.append(_seen(rng, person, _camera(camera)))
                names.append(f"{number + 1:04}")
                cameras.append(camera + 1)
    return Identities(np.array(images), np.array(names), np.array(cameras, "int32"))


def write_drawn_people(folder: str | os.PathLike, num_train: int, num_tested: int, **options: Any) -> None:
    """Write pictures to a new `folder` as a data set: train/ of some people; of others the first camera's to
    query/ and all others to gallery/. It needs TensorFlow, which encodes them.
    """
    import tensorflow as tf

    train = drawn_people(num_train, **options)
    tested = drawn_people(num_tested, first=num_train, **options)
    for data, parts in ((train, ("train", "train")), (tested, ("query", "gallery"))):
        for number, (image, name, camera) in enumerate(zip(*data[:3], strict=True)):
            place = pathlib.Path(folder, parts[min(camera - 1, 1)])
            place.mkdir(parents=True, exist_ok=True)
            file = place / f"{name}_c{camera}s1_{number:06}_01.png"
            tf.io.write_file(str(file), tf.io.encode_png(image))


def _person(rng: np.random.Generator) -> dict[str, Any]:
    """What lasts of somebody."""
    return {
        "height": rng.uniform(0.82, 1.0),
        "build": rng.uniform(0.75, 1.3),
        "skin": SKINS[rng.integers(len(SKINS))],
        "hair": HAIRS[rng.integers(len(HAIRS))],
        "long_hair": rng.random() < 0.5,
        "shirt": rng.integers(20, 240, (2, 3)),
        "pattern": PATTERNS[rng.integers(len(PATTERNS))],
        "trousers": rng.integers(20, 220, 3),
        "is_short": rng.random() < 0.3,
        "shoes": rng.integers(0, 200, 3),
        "bag": rng.integers(20, 240, 3) if rng.random() < 0.4 else None,
    }


def _camera(number: int) -> dict[str, Any]:
    """What a camera does to everybody."""
    rng = np.random.default_rng((7, number))
    return {
        "gains": rng.uniform(0.7, 1.2, 3) * rng.uniform(0.6, 1.1),
        "gamma": rng.uniform(0.75, 1.4),
        "scale": rng.uniform(0.75, 1.0),
        "is_mirrored": bool(number % 2),
        "ground": rng.integers(60, 200, 3),
        "wall": rng.integers(60, 200, 3),
        "noise": rng.uniform(4, 12),
    }


def _seen(rng: np.random.Generator, person: dict[str, Any], camera: dict[str, Any]) -> np.ndarray:
    """A picture (64, 32, 3) of a person by a camera."""
    rows, columns = np.indices((HEIGHT, WIDTH))
    horizon = HEIGHT * rng.uniform(0.55, 0.75)
    picture = np.where((rows < horizon)[..., None], camera["wall"], camera["ground"]).astype("float64")
    size = HEIGHT * 0.94 * person["height"] * camera["scale"] * rng.uniform(0.93, 1.05)
    bottom, middle = HEIGHT - rng.uniform(1, 4), WIDTH / 2 + rng.uniform(-3, 3)
    x = (columns + 0.5 - middle) / (size * 0.25 * person["build"])  # a shoulder is at 0.5 or so
    y = (rows + 0.5 - bottom) / size + 1  # 0 at the top of the head, 1 at the feet
    x += rng.uniform(-0.15, 0.15) * (y - 0.5)  # somebody leans
    step, swing = rng.uniform(0.05, 0.35, 2)
    for is_there, colour in _parts(person, x, y, step, swing):
        picture = np.where(is_there[..., None], colour, picture)
    picture = 255 * (np.clip(picture, 0, 255) / 255) ** camera["gamma"] * camera["gains"]
    picture = picture * rng.uniform(0.9, 1.1) + rng.normal(0, camera["noise"], picture.shape)
    picture = np.round(np.clip(picture, 0, 255)).astype("uint8")
    return picture[:, ::-1] if camera["is_mirrored"] else picture


def _parts(person: dict[str, Any], x: np.ndarray, y: np.ndarray, step: float, swing: float) -> list:
    """[(which pixels, their colours)] of a person, the last in front; x from the middle, y from 0 to 1."""
    shirt, second = person["shirt"]
    is_second = {
        "plain": y < -1,
        "stripes": np.floor(y / 0.05) % 2 == 1,
        "halves": x > 0,
        "band": (y > 0.28) & (y < 0.36),
    }[person["pattern"]]
    cloth = np.where(is_second[..., None], second, shirt)
    on_legs = (y > 0.5) & (y <= 1) & (abs(abs(x) - 0.22 - step * (y - 0.5)) < 0.19)
    end = 0.68 if person["is_short"] else 0.95
    on_arms = (y > 0.17) & (y < 0.52) & (abs(abs(x) - 0.55 - swing * (y - 0.17)) < 0.12)
    on_head = (x / 0.3) ** 2 + ((y - 0.085) / 0.08) ** 2 < 1
    is_hair = (y < 0.065) | ((y < 0.16) & (abs(x) > 0.2) & person["long_hair"])
    parts = [
        (on_legs, person["skin"]),
        (on_legs & (y < end), person["trousers"]),
        (on_legs & (y > 0.95), person["shoes"]),
        (on_arms, person["skin"]),
        (on_arms & (y < 0.36), cloth),
        ((y > 0.15) & (y < 0.52) & (abs(x) < 0.5), cloth),
        (on_head, person["skin"]),
        (on_head & is_hair, person["hair"]),
    ]
    if person["bag"] is not None:
        parts.append(((y > 0.3) & (y < 0.5) & (x > 0.3) & (x < 0.8), person["bag"]))
    return parts
