"""A sweep of alternating least squares over 1 M synthetic ratings: ours, and implicit's exact solver.

    python -m benchmarks.factorization      # after pip install implicit; the peers take turns

A sweep solves for all users' and all items' factors once, in float32 on two threads. Ours sets the mean and
the biases besides; implicit's solves a problem of the same normal equations (`use_cg=False`), without its
loss. The numbers of ratings by user and by item fall as a power, as real ratings do. On two cores
with AVX-512: ours 1.59 M ratings a second, implicit 0.7.3 1.16 M, ours without Numba 0.55 M.
"""

import argparse
import os
import sys

NUM_USERS, NUM_ITEMS, NUM_RATINGS = 50_000, 10_000, 1_000_000
PEERS = ("keras_tfm", "implicit", "without numba")


def synthetic_ratings():
    """Ratings (users, items) of 1 to 5, a SciPy matrix."""
    import numpy as np
    import scipy.sparse

    draw = np.random.default_rng(0)
    activity, popularity = draw.gamma(0.7, size=NUM_USERS), 1 / np.arange(1, NUM_ITEMS + 1) ** 0.8
    users = draw.choice(NUM_USERS, 2 * NUM_RATINGS, p=activity / activity.sum())
    items = draw.choice(NUM_ITEMS, 2 * NUM_RATINGS, p=popularity / popularity.sum())
    pairs = draw.permutation(np.unique(users * NUM_ITEMS + items))[:NUM_RATINGS]
    values = draw.integers(1, 6, len(pairs)).astype("float32")
    shape = NUM_USERS, NUM_ITEMS
    return scipy.sparse.coo_array((values, (pairs // NUM_ITEMS, pairs % NUM_ITEMS)), shape=shape).tocsr()


def our_sweep(dim, is_compiled):
    """A function that makes a sweep of ours, and says how many ratings it has gone over."""
    from keras_tfm.word_vectors import MatrixFactorization, Observed, compiled

    if not is_compiled:
        compiled.compiled = lambda *_, **__: None
    known = Observed(synthetic_ratings())
    model = MatrixFactorization(dim)
    model.begin(known)

    def sweep():
        model.sweep(known)
        return len(known)

    return sweep


def their_sweep(dim):
    """Three sweeps of implicit's, whose fit first transposes the matrix; ours has done so before."""
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    ratings = csr_matrix(synthetic_ratings())
    model = AlternatingLeastSquares(dim, iterations=3, use_cg=False, num_threads=2, random_state=0)

    def sweep():
        model.fit(ratings, show_progress=False)
        return 3 * ratings.nnz

    return sweep


def main():
    if sys.argv[1:3] == ["--worker", "implicit"]:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as it asks for: its own threads share the users
    from benchmarks.rounds import compare, parse, serve  # NumPy reads that when it is imported

    parser = argparse.ArgumentParser("benchmarks.factorization", description=__doc__.partition("\n")[0])
    parser.add_argument("--worker", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--peers", nargs="+", default=PEERS, choices=PEERS)
    options = parse(parser, has_gpu_part=False)
    if options.worker is None:
        title = f"{NUM_RATINGS:,} ratings, {options.dim} factors"
        dim = ["--dim", options.dim]
        module = "benchmarks.factorization"
        compare(title, module, options.peers, options.rounds, 1, 2, dim, unit="ratings")
        return
    sweep = their_sweep(options.dim) if options.worker == "implicit" else None
    serve(sweep or our_sweep(options.dim, options.worker == "keras_tfm"))


if __name__ == "__main__":
    main()
