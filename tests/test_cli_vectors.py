"""`keras-tfm vectors` and `neighbours`: from a text to the words that are near a word."""

import gzip

import numpy as np
import pytest

from keras_tfm.cli import main
from keras_tfm.word_vectors import GloVe, WordVectors, cooccurrence

LINES = ["The cat sat on the mat.", "The dog sat on the rug.", "It's a dog's mat!"] * 4
TEXT = "\n".join(LINES) + "\n"


@pytest.mark.parametrize(("method", "own"), [("glove", "adagrad"), ("glove-als", "als")])
def test_learns_what_python_learns(tmp_path, capsys, method, own):
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write(TEXT)
    (tmp_path / "b.txt").write_text(TEXT)
    out = tmp_path / "vectors.txt"
    options = f"--dim 3 --min-count 2 --window 4 --x-max 5 --epochs 2 --seed 7 --method {method}"
    main(["vectors", "--data", str(tmp_path / "[ab].txt*"), "--out", str(out), *options.split()])
    assert capsys.readouterr().out == ""
    matrix, words = cooccurrence(LINES * 2, window=4, min_count=2)
    glove = GloVe(3, x_max=5, method=own, seed=7)
    glove.fit(matrix, epochs=2)
    found = WordVectors.read(out)
    assert found.words == words and "mat." in words
    np.testing.assert_array_equal(found.matrix, glove.vectors(words).matrix)
    assert out.read_text().startswith(f"{len(words)} 3\nThe ")

    main(["neighbours", str(out), "dog", "cat", "--count", "2"])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    expected = [
        [word, *(f"{other} {near:.3f}" for other, near in found.neighbours(word, 2))]
        for word in ("dog", "cat")
    ]
    assert lines == expected


def test_words_of_letters_and_overwriting(tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "v.npz"
    text.write_text(TEXT)
    out.write_text("old")
    command = (
        f"vectors --data {text} --out {out} --words letters --min-count 1 --dim 2 --epochs 1 --memory 0.01"
    )
    with pytest.raises(SystemExit):
        main(command.split())
    assert out.read_text() == "old"
    main([*command.split(), "--overwrite", "--vocabulary-size", "9"])
    assert sorted(WordVectors.read(out).words) == sorted(
        ["the", "mat", "on", "sat", "a", "cat", "dog", "dog's", "it's"]
    )
