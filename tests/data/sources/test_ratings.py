"""Ratings out of tables of every kind, and what is wrong with them by file and line."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from keras_tfm.data import DataError, read_ratings
from keras_tfm.data.sources.ratings import repeated

EXPECTED = (["7", "8", "7"], ["a", "a", "b"], [4.0, 0.5, -1.0])


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("r.csv", "user,item,rating\n7,a,4\n8,a,0.5\n7,b,-1\n", None),
        ("r.csv", "rating,movieId,x,userId\n4,a,,7\n0.5,a,,8\n-1,b,,7\n", None),
        ("r.csv", "who,what,how\n7,a,4\n8,a,0.5\n7,b,-1\n", ["who", "what", "how"]),
        ("r.tsv", "7\ta\t4\n8\ta\t0.5\n7\tb\t-1\n", None),
        ("u.data", "7\ta\t4\t881250949\n8\ta\t0.5\t0\n7\tb\t-1\t1\n", [0, 1, 2]),
        ("r.jsonl", '{"item": "a", "user": 7, "rating": 4}\n{"item": "a", "user": "8", "rating": "0.5"}\n'
                    '{"item": "b", "user": 7, "rating": -1}\n', None),
    ],
)  # fmt: skip
def test_every_table_is_read(name, content, columns, tmp_path):
    (tmp_path / name).write_text(content)
    users, items, ratings = read_ratings(tmp_path / name, columns)
    assert (users, items, ratings.tolist()) == EXPECTED and ratings.dtype == np.float32


def test_parquet_and_several_files_are_read(tmp_path):
    first = {"user": [7, 8], "item": ["a", "a"], "rating": [4.0, 0.5]}
    pyarrow.parquet.write_table(pyarrow.table(first), tmp_path / "1.parquet")
    (tmp_path / "2.csv").write_text("user,item,rating\n7,b,-1\n")
    users, items, ratings = read_ratings([tmp_path / "1.parquet", tmp_path / "2.csv"])
    assert (users, items, ratings.tolist()) == EXPECTED


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "r.csv: expected ratings, the file is empty"),
        ("a,b,nan\n", "r.csv, line 1: expected a number as the rating, got 'nan'"),
        ("a,b,1\na,c,inf\n", "r.csv, line 2: expected a number as the rating, got 'inf'"),
        ("a,b,1e39\n", "expected a number as the rating, got '1e39'"),
        ("user,item,rating\na,b,\n", "r.csv, line 2: expected a number as the rating, got ''"),
        ("a,b,0.9\n", "expected a rating of at least 1, got '0.9'"),
        ("a,b,5.1\n", "expected a rating of at most 5, got '5.1'"),
        ("a,,3\n", "r.csv, line 1: expected a text, the item is empty"),
        ("a,b\n", "expected 3 columns, user and item and rating, got 2"),
        ("a,b,1\nc,d,2\n\na,b,1\n", "line 4: expected a pair once"),
        ("a,b,1\nc,d,2\na , b,4\nc,d,1\n", "line 3: expected a pair once, 'a' rated 'b' before, in line 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(content, message, tmp_path):
    (tmp_path / "r.csv").write_text(content)
    with pytest.raises(DataError) as error:
        read_ratings(tmp_path / "r.csv", None, 1, 5)
    assert message in str(error.value)


def test_a_pair_is_found_again_in_another_file(tmp_path):
    for name, text in (("1.csv", "a,b,1\nc,d,2\n"), ("2.csv", "e,f,1\nc,d,2\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as error:
        read_ratings(f"{tmp_path}/*.csv")
    before = f"'c' rated 'd' before, in {tmp_path / '1.csv'}, line 2"
    assert str(error.value) == f"{tmp_path / '2.csv'}, line 2: expected a pair once, {before}"


def test_the_first_repetition_is_found():
    assert repeated([], []) is None and repeated(["a", "a", "b"], ["x", "y", "x"]) is None
    assert repeated(["a", "b", "b", "a", "b"], ["x", "x", "x", "x", "x"]) == (1, 2)
