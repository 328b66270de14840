"""How well vectors find the same identity again: mean average precision, and shares of first places."""

from typing import Any

import numpy as np

RANKS = 1, 5, 10


def retrieval(
    vectors: np.ndarray, identities: np.ndarray, cameras: np.ndarray, are_queries: np.ndarray
) -> dict[str, Any]:
    """For `vectors` (N, D) of length 1: "map", the mean of the queries' average precisions, and "rank_1",
    "rank_5" and "rank_10", the shares of queries with a right image among so many first ones, from 0 to 1;
    and the number of "queries".

    Queries, where `are_queries` (N,), are looked for among all other images; without any, each image among
    all others. Images of the same identity by the same camera do not count. A query that nobody else shows is
    left out. Equally similar images keep their order. Zheng et al. 2015, "Scalable Person
    Re-identification: A Benchmark", section 4.

    Raises:
        ValueError: if there is no query with a right image by another camera.

    >>> vectors = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
    >>> names, queries = np.array(["a", "b", "a"]), np.array([True, False, False])
    >>> keras_tfm.tasks.images.identity_measures.retrieval(vectors, names, np.arange(3), queries)
    {'map': 0.5, 'rank_1': 0.0, 'rank_5': 1.0, 'rank_10': 1.0, 'queries': 1}
    """
    gallery = np.flatnonzero(~are_queries)
    asked = np.flatnonzero(are_queries) if are_queries.any() else gallery
    precisions, firsts = [], []
    for query in asked:
        is_same = identities[gallery] == identities[query]
        others = gallery[~(is_same & (cameras[gallery] == cameras[query]))]
        order = np.argsort(-(vectors[others] @ vectors[query]), kind="stable")
        places = np.flatnonzero(identities[others][order] == identities[query])
        if len(places):
            precisions.append(np.mean(np.arange(1, len(places) + 1) / (places + 1)))
            firsts.append(places[0])
    if not precisions:
        raise ValueError("examples: expected images of one identity by several cameras, there are none")
    ranks = {f"rank_{rank}": float(np.mean(np.array(firsts) < rank)) for rank in RANKS}
    return {"map": float(np.mean(precisions)), **ranks, "queries": len(precisions)}
