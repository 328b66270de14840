"""Co-occurrence counts, weighted by 1 / distance: the matrix that GloVe factorises.

Pennington et al., GloVe: Global Vectors for Word Representation (2014), section 4.2. Their program adds up
pairs in the order of the text. Here each row of the matrix is computed at once from all positions of its word
(like Gustavson's product of sparse matrices, ACM TOMS 1978), so that rows are independent of each other.
"""

from array import array
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from keras_tfm.log import Bar
from keras_tfm.word_vectors import compiled
from keras_tfm.word_vectors.compiled import num_threads, ranges
from keras_tfm.word_vectors.runs import Runs, on_disk
from keras_tfm.word_vectors.vocabulary import Texts, Vocabulary, check_limits, split

BORDER = -1  # the id that stands between two texts
BLOCK = 100_000  # positions that one thread counts at a time


def cooccurrence(
    texts: Texts,
    window: int = 10,
    min_count: int = 1,
    symmetric: bool = True,
    max_size: int | None = None,
    memory: float | None = None,
) -> tuple[sparse.csr_array, list[str]]:
    """Count which words stand near which: (X, words).

    x_ij is the sum of 1 / d over all places where word j stands d words from word i in the same text, for d
    up to `window`. X is a SciPy CSR array (V, V) of float32; `words` are its V words, the most frequent
    first. The result does not depend on the number of threads.

    Args:
        texts: an iterable of strings (split at white space) or of lists of words; it is read once.
        window: the largest distance that counts.
        min_count: words that occur less often are removed before counting, so that their neighbours become
            adjacent, as in GloVe's own program.
        symmetric: False counts only words that stand before word i.
        max_size: how many words, the most frequent ones, are kept at most.
        memory: a limit in GiB for the counts. What exceeds it is written to temporary files, and X is read
            from such a file, which is deleted together with X.

    Raises:
        ValueError: for a limit below 1, `memory` below 0.01, or texts without words.

    >>> matrix, words = keras_tfm.word_vectors.cooccurrence(["a b c a"], window=3)
    >>> float(matrix.toarray()[words.index("a"), words.index("b")])  # 1 / 1 + 1 / 2
    1.5
    """
    check_limits(min_count, max_size)
    if window < 1:
        raise ValueError(f"`window` must be at least 1; it is {window}.")
    if memory is not None and not memory >= 0.01:
        raise ValueError(f"`memory` must be at least 0.01 GiB; it is {memory}.")
    limit = None if memory is None else int(memory * 2**30)
    # A token takes some integers, and as many entries of a run as it has neighbours, which are copied once.
    most = None if limit is None else max(limit // (64 + 24 * (1 + symmetric) * window), 1)
    words, counts, chunks = _encoded(texts, most)
    vocabulary = Vocabulary(words, counts).limited(min_count, max_size)
    border = np.full(1, BORDER, np.int32)
    new_ids = np.concatenate((border, vocabulary.ids(words)))
    runs = Runs(limit)
    total = int(vocabulary.counts.sum())
    with Bar(total=total, desc="counting", unit=" words", unit_scale=True) as bar:
        for chunk in chunks:
            ids = new_ids[chunk]
            ids = np.concatenate((border, ids[(ids >= 0) | (chunk == 0)]))
            runs.add(_counted(ids, len(vocabulary), window, symmetric, len(chunks) > 1, bar))
    return runs.merged(), vocabulary.words


def _encoded(texts: Texts, most: int | None) -> tuple[list[str], np.ndarray, list[np.ndarray]]:
    """(Words in the order of their first occurrence, their counts, chunks of token ids).

    Ids start at 1, and a 0 ends each text. A chunk holds whole texts: about `most` tokens in a file, or
    everything in memory if `most` is None.
    """
    ids_of: defaultdict = defaultdict()
    ids_of.default_factory = ids_of.__len__  # a word that is new takes the next number
    border = ids_of[None]
    counts, chunks, ids = np.zeros(0, np.int64), [], array("i")

    def end_chunk() -> None:
        nonlocal counts, ids
        chunk = np.frombuffer(ids, np.int32)
        new = np.bincount(chunk, minlength=len(ids_of))
        new[: len(counts)] += counts
        counts = new
        chunks.append(chunk if most is None else on_disk(chunk))
        ids = array("i")

    for words in Bar(split(texts), desc="reading", unit=" texts", unit_scale=True):
        ids.extend(map(ids_of.__getitem__, words))
        ids.append(border)
        if most is not None and len(ids) >= most:
            end_chunk()
    if ids:
        end_chunk()
    if len(ids_of) == 1:
        raise ValueError("`texts` must hold words; there are none.")
    del ids_of[None]
    return list(ids_of), counts[1:], chunks


class Positions(NamedTuple):
    """The positions of all words: word i occurs at `places[first[i] : first[i + 1]]` of `ids`.

    `texts[place]` is the number of the text that the position belongs to.
    """

    ids: np.ndarray
    texts: np.ndarray
    places: np.ndarray
    first: np.ndarray


def _counted(
    ids: np.ndarray, size: int, window: int, symmetric: bool, is_part: bool, bar: Bar
) -> sparse.csr_array:
    """X of one chunk, in float64 if it `is_part` of a sum of chunks, otherwise in float32."""
    tokens = np.flatnonzero(ids >= 0)
    # Transposing a matrix with a one for each token sorts the tokens by word, in linear time.
    ones = np.ones(len(tokens), np.int8)
    by_token = sparse.csr_array((ones, ids[tokens], np.arange(len(tokens) + 1)), shape=(len(tokens), size))
    by_word = by_token.tocsc()
    texts = np.cumsum(ids == BORDER, dtype=np.int32)
    positions = Positions(ids, texts, tokens[by_word.indices], by_word.indptr.astype(np.int64))
    count_rows = _compiled_rows if compiled.compiled(_fill_rows) else _multiplied_rows
    dtype = np.float64 if is_part else np.float32

    def count_block(block: tuple[int, int]) -> sparse.csr_array:
        rows = count_rows(positions, *block, window, symmetric)
        bar.update(int(positions.first[block[1]] - positions.first[block[0]]))
        return rows.astype(dtype)

    with ThreadPoolExecutor(num_threads()) as pool:
        return sparse.vstack(list(pool.map(count_block, ranges(positions.first, BLOCK))), format="csr")


def _multiplied_rows(
    positions: Positions, begin: int, end: int, window: int, symmetric: bool
) -> sparse.csr_array:
    """Rows `begin` to `end` of X by SciPy: (word at each position)^T (its neighbours, weighted)."""
    ids, texts, places, first = positions
    places = places[first[begin] : first[end]]
    distances = [d for d in range(-window, window + 1 if symmetric else 0) if d]
    neighbours = places[:, None] + distances
    is_outside = (neighbours < 0) | (neighbours >= len(ids))
    neighbours[is_outside] = 0  # where a border stands
    is_near = (texts[neighbours] == texts[places][:, None]) & (ids[neighbours] >= 0) & ~is_outside
    weights = np.broadcast_to(1 / np.abs(distances), is_near.shape)[is_near]
    size = len(first) - 1
    starts = np.concatenate(([0], np.cumsum(is_near.sum(1)))).astype(np.int32)
    context = sparse.csr_array((weights, ids[neighbours[is_near]], starts), shape=(len(places), size))
    starts_of_words = (first[begin : end + 1] - first[begin]).astype(np.int32)
    words = sparse.csr_array(
        (np.ones(len(places)), np.arange(len(places), dtype=np.int32), starts_of_words),
        shape=(end - begin, len(places)),
    )
    rows = words @ context
    rows.sort_indices()
    return rows


def _compiled_rows(
    positions: Positions, begin: int, end: int, window: int, symmetric: bool
) -> sparse.csr_array:
    """Rows `begin` to `end` of X by Numba: the same sums, in the order of the text."""
    ids, _, places, first = positions
    size = len(first) - 1
    most = np.minimum(np.diff(first[begin : end + 1]) * window * (1 + symmetric), size).sum()
    columns, sums = np.empty(most, np.int32), np.empty(most)
    starts = np.zeros(end - begin + 1, np.int32)
    fill_rows: Any = compiled.compiled(_fill_rows)
    fill_rows(ids, places, first, begin, end, window, symmetric, size, columns, sums, starts)
    used = starts[-1]
    return sparse.csr_array((sums[:used], columns[:used], starts), shape=(end - begin, size))


def _fill_rows(
    ids: np.ndarray,
    places: np.ndarray,
    first: np.ndarray,
    begin: int,
    end: int,
    window: int,
    symmetric: bool,
    size: int,
    columns: np.ndarray,
    sums: np.ndarray,
    starts: np.ndarray,
) -> None:
    """Write the rows one after another, their columns in rising order.

    The columns of a row with few words are sorted; for a row with many, all words are scanned instead.
    """
    total = np.zeros(size)
    found = np.empty(size, np.int32)
    used = 0
    for word in range(begin, end):
        number = 0
        for k in range(first[word], first[word + 1]):
            place = places[k]
            for step in range(-1, 2 * symmetric, 2):  # to the left, to the right
                for distance in range(1, window + 1):
                    at = place + step * distance
                    if ids[at] < 0:  # the text's border, which stands before the first one and after each
                        break
                    other = ids[at]
                    if total[other] == 0:
                        found[number] = other
                        number += 1
                    total[other] += 1 / distance
        if number * 32 < size:
            found[:number].sort()
        else:
            number = 0
            for other in range(size):
                if total[other] != 0:
                    found[number] = other
                    number += 1
        for k in range(number):
            other = found[k]
            columns[used] = other
            sums[used] = total[other]
            total[other] = 0
            used += 1
        starts[word - begin + 1] = used
