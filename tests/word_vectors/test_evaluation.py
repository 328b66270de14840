"""`similarity` and `analogies`: by hand, and against loops over all words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from keras_tfm.word_vectors import (
    WordVectors,
    analogies,
    evaluation,
    read_analogies,
    read_similarities,
    similarity,
)

WORDS = [f"w{k}" for k in range(12)]


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@given(st.integers(0, 2**31), st.integers(1, 9))
def test_analogies_equal_a_loop_over_all_words(seed, batch):
    random = np.random.default_rng(seed)
    vectors = WordVectors(WORDS, random.normal(size=(12, 3)))
    asked = [tuple(random.choice([*WORDS, "unknown"], 4)) for _ in range(20)]
    right = []
    for a, b, c, d in asked:
        if "unknown" in (a, b, c, d):
            continue
        rows = {word: vectors[word] / np.linalg.norm(vectors[word]) for word in WORDS}
        target = rows[b] - rows[a] + rows[c]
        others = [word for word in WORDS if word not in (a, b, c)]
        right.append(max(others, key=lambda word: rows[word] @ target) == d)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "BATCH", batch)
        result = analogies(vectors, {"one": asked[:7], "two": asked[7:]})
    assert result.answered == len(right) and result.accuracy == np.mean(right)
    assert result.coverage == len(right) / 20
    assert set(result.sections) <= {"one", "two"}


def test_analogies_by_hand():
    vectors = WordVectors(
        ["man", "king", "woman", "queen", "cow"], [[1, 0], [1, 1], [-1, 0.1], [-1, 1], [0, -1]]
    )
    royal, odd = ("man", "king", "Woman", "queen"), ("man", "king", "woman", "cow")
    result = analogies(vectors, {"royal": [royal], "odd": [odd], "unknown": [("a", "b", "c", "d")]})
    assert result == (0.5, 2, 2 / 3, {"royal": 1.0, "odd": 0.0})
    with pytest.raises(ValueError, match="of 1 none is"):
        analogies(vectors, {"unknown": [("a", "b", "c", "d")]})


@given(st.integers(0, 2**31))
def test_similarity_is_spearman_of_the_known_pairs(seed):
    random = np.random.default_rng(seed)
    vectors = WordVectors(WORDS, random.normal(size=(12, 3)))
    drawn = {tuple(sorted(random.choice([*WORDS, "unknown"], 2, replace=False))) for _ in range(30)}
    pairs = [(*pair, float(random.integers(0, 5))) for pair in sorted(drawn)]
    known = [pair for pair in pairs if "unknown" not in pair]
    cosines = [cosine(vectors[a], vectors[b]) for a, b, _ in known]
    ranks = stats.rankdata(cosines), stats.rankdata([score for _, _, score in known])
    result = similarity(vectors, pairs)
    assert result.correlation == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-9)
    assert result[1:] == (len(known), len(known) / len(pairs))


def test_similarity_by_hand():
    vectors = WordVectors(["a", "b", "c"], [[1, 0], [1, 0.1], [0, 1]])
    assert similarity(vectors, [("A", "b", 9), ("b", "c", 5), ("a", "c", 1), ("a", "x", 3)]) == (1.0, 3, 0.75)
    with pytest.raises(ValueError, match="of 2 1 are"):
        similarity(vectors, [("a", "b", 1), ("a", "x", 2)])


def test_reads_the_usual_files(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("Word 1,Word 2,Human (mean)\nlove,sex,6.77\ntiger,cat,7.35\n")
    assert read_similarities(path) == [("love", "sex", 6.77), ("tiger", "cat", 7.35)]
    path.write_text("old\tnew\t1.58\textra\n\nsmart bright 9\n")
    assert read_similarities(path) == [("old", "new", 1.58), ("smart", "bright", 9.0)]
    path = tmp_path / "questions.txt"
    path.write_text(": capital-world\nAthens Greece Oslo Norway\n: family\nboy girl man woman\n")
    expected = {
        "capital-world": [("Athens", "Greece", "Oslo", "Norway")],
        "family": [("boy", "girl", "man", "woman")],
    }
    assert read_analogies(path) == expected
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "family.txt").write_text("boy girl man woman\n")
    assert read_analogies(folder) == {"family": expected["family"]}


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_similarities, b"a b 1\na b\n", "line 2: expected two words and a number, got 'a b'"),
        (read_similarities, b"a b 1\na b x\n", "line 2: expected two words and a number, got 'a b x'"),
        (read_similarities, b"a b 1\n\xff b 2\n", "line 2: expected UTF-8"),
        (read_analogies, b"a b c d\na b c\n", "line 2: expected four words, got 'a b c'"),
    ],
)
def test_files_are_refused(tmp_path, read, content, message):
    path = tmp_path / "f.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(path)


def test_a_folder_without_questions_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected \.txt files of questions, got none"):
        read_analogies(tmp_path)
