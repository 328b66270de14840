"""The best network of a space, by evolutionary search in AutoFormer's supernet (Chen et al. 2021).

    python examples/search_networks.py

A supernet learns the handwritten digits, each example with a random network of the space; then mutants of the
best networks so far, and crosses of two, are scored with its weights, on digits that it has not learnt. Takes
two minutes on 2 idle cores. It prints

    210 networks: accuracy 93.2 % at first, 95.6 % of the best
    width 24, heads (3, 3), (72, 72): 16,128 weights
    by itself, with its part of the weights: accuracy 95.0 % on 360 others
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_tfm
from keras_tfm.heads import Classifier
from keras_tfm.models import AutoFormerSupernet, SearchSpace
from keras_tfm.models.vision.autoformer_supernet import copy_leading

SPACE = SearchSpace(
    image_size=8, patch_size=2, num_channels=1, dims=(24, 32, 48), num_layers=(1, 2, 3),
    num_heads=(1, 2, 3), mlp_ratios=(1, 2, 3), key_dim=16, max_distance=3,
)  # fmt: skip
ATTEMPTS = 10  # per place in a generation, since a space may have no new candidates left


def evolve(space, score, generations, size, num_parents, seed=0):
    """{candidate: score} of a search: half of each generation are mutants of the best, half crosses of two,
    and random candidates fill what is missing.

    `space` has `sample(rng)`, `mutate(candidate, rng)` and `cross(candidate, other, rng)`. `score` is called
    once per candidate, which is refused where it is None, for example because of its size.
    """
    rng, scores = np.random.default_rng(seed), {}

    def add(count, make, parents=(), num_parents=0):
        """Score up to `count` new candidates; return how many were not refused."""
        added = 0
        for _ in range(ATTEMPTS * count):
            if added == count:
                break
            chosen = [parents[rng.integers(len(parents))] for _ in range(num_parents)]
            candidate = make(*chosen, rng)
            if candidate not in scores:
                scores[candidate] = score(candidate)
                added += scores[candidate] is not None
        return added

    for _ in range(generations):
        parents, added = best(scores, num_parents), 0
        if parents:
            added = add(size // 2, space.mutate, parents, 1)
            added += add(size - size // 2, space.cross, parents, 2)
        add(size - added, space.sample)
    return scores


def best(scores, count):
    """The `count` candidates with the highest scores, highest first."""
    scored = [candidate for candidate, value in scores.items() if value is not None]
    return sorted(scored, key=lambda candidate: -scores[candidate])[:count]


def num_weights(network):
    """How many weights the layers of a network have."""
    per_layer = zip(network.num_heads, network.hidden_dims, strict=True)
    return sum(network.dim * (4 * SPACE.key_dim * heads + 2 * hidden) for heads, hidden in per_layer)


def supernet_of(images, labels, epochs):
    """A classifier of digits by any network of the space."""
    model = Classifier(AutoFormerSupernet(SPACE), 10)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras_tfm.training.AdamW(2e-3, 0.05), loss)
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        networks = np.stack([SPACE.encode(SPACE.sample(rng)) for _ in images])
        model.fit({"images": images, "network": networks}, labels, 64, verbose=0)
    return model


def main(epochs=60, most=20_000, generations=8):
    keras.utils.set_random_seed(0)
    digits = load_digits()  # 1,797 images of 8 x 8, grey levels 0 to 16
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = (digits.images[order, ..., None] / 8 - 1).astype("float32"), digits.target[order]
    learnt, judged, test = slice(720, None), slice(360, 720), slice(360)
    supernet = supernet_of(images[learnt], labels[learnt], epochs)

    def accuracy(network, part):
        codes = np.tile(SPACE.encode(network), (360, 1))
        logits = supernet.predict_on_batch({"images": images[part], "network": codes})
        return 100 * float(np.mean(logits.argmax(axis=1) == labels[part]))

    def score(network):
        return accuracy(network, judged) if num_weights(network) <= most else None

    scores = evolve(SPACE, score, generations, size=16, num_parents=6)
    (found,) = best(scores, 1)
    first = [value for value in scores.values() if value is not None][:16]  # which are random ones
    print(
        f"{len(scores)} networks: accuracy {np.mean(first):.1f} % at first, {scores[found]:.1f} % of the best"
    )
    print(f"width {found.dim}, heads {found.num_heads}, {found.hidden_dims}: {num_weights(found):,} weights")
    alone = Classifier(keras_tfm.models.AutoFormer(found), 10)
    copy_leading(supernet, alone)
    right = alone.predict_on_batch({"images": images[test]}).argmax(axis=1) == labels[test]
    print(f"by itself, with its part of the weights: accuracy {100 * right.mean():.1f} % on 360 others")


if __name__ == "__main__":
    main()
