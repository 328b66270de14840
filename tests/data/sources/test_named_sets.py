"""Every reader takes Parquet files and the sets of TFDS; what is wrong with one is said in a line."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow_datasets as tfds

from keras_tfm.data import (
    Answer,
    DataError,
    read_choices,
    read_documents,
    read_labelled_images,
    read_labelled_texts,
    read_pairs,
    read_questions,
    read_tagged_words,
    read_texts,
)
from keras_tfm.data.sources.choices import read_unlabelled_choices
from keras_tfm.data.sources.files import read_sources
from keras_tfm.data.sources.images import read_images
from keras_tfm.data.sources.labelled import read_unlabelled_texts, read_unlabelled_words
from keras_tfm.data.sources.questions import read_unanswered
from tests.data.sources.parts import parts

TEXT, Label = tfds.features.Text(), tfds.features.ClassLabel


def refusal(read, *arguments, **options):
    """The one line with which a set is refused."""
    with pytest.raises(DataError) as caught:
        read(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pairs_of_tfds(prepared):
    features = tfds.features.Translation(languages=["en", "de"])
    examples = [{"en": "a dog", "de": "ein Hund"}, {"en": "a cat", "de": "eine Katze"}]
    path = prepared("tiny_translate/en_de", features, examples)
    assert read_pairs(path, ["en", "de"]) == (["a dog", "a cat"], ["ein Hund", "eine Katze"])
    assert read_pairs(f"{path}[:1]", ["de", "en"]) == (["ein Hund"], ["a dog"])
    assert sorted(read_pairs(f"{path}[:1]")) == [["a dog"], ["ein Hund"]]
    assert parts(read_sources(path, ["de"])) == (["ein Hund", "eine Katze"], ["example 1", "example 2"])
    missing = refusal(read_pairs, path, ["en", "fr"])
    assert missing == f"{path}: expected a column named 'fr', got de, en"
    name = path.split("#")[0]
    assert "Unknown split" in refusal(read_pairs, f"{name}#nothing")
    assert "no_such_set" in refusal(read_pairs, "tfds:no_such_set#train")
    assert refusal(read_pairs, name) == f"{name}: expected tfds:NAME[/CONFIG][:VERSION]#SPLIT"


def test_sets_that_cannot_be_fetched(monkeypatch):
    class Own(Exception):
        """As TFDS's own derive from Exception alone."""

    def fetch(self):
        raise Own("the checksum\ndiffers")

    monkeypatch.setattr(tfds, "builder", lambda name: type("Set", (), {"download_and_prepare": fetch})())
    assert refusal(read_pairs, "tfds:a_set#train") == "tfds:a_set#train: the checksum differs"


def test_pairs_of_parquet(parquet):
    path = parquet("a.parquet", {"id": [1, 2], "target": ["b", "d"], "source": ["a", "c"]})
    assert read_pairs(path) == (["a", "c"], ["b", "d"])
    assert read_pairs(path, ["target", "source"]) == (["b", "d"], ["a", "c"])
    nested = parquet("b.parquet", {"id": ["1"], "translation": [{"en": "a", "de": "b"}]})
    assert read_pairs(nested, ["en", "de"]) == read_pairs(nested) == (["a"], ["b"])
    assert parts(read_sources(path)) == (["a", "c"], ["row 1", "row 2"])
    nested = parquet("b.parquet", {"translation": [{"en": "a", "de": "b"}, None]})
    assert refusal(read_pairs, nested) == f"{nested}, row 2: expected a string as 'en', got null"
    wrong = parquet("c.parquet", {"source": ["a", "c"], "target": ["b", None]})
    assert refusal(read_pairs, wrong) == f"{wrong}, row 2: expected a string as 'target', got null"
    wrong = parquet("d.parquet", {"source": ["a", " "], "target": ["b", "c"]})
    assert refusal(read_pairs, wrong) == f"{wrong}, row 2: expected a text, the 'source' is empty"
    wrong = parquet("e.parquet", {"a": ["a"], "b": [b"\xff"], "c": ["c"]})
    assert refusal(read_pairs, wrong) == f"{wrong}: expected columns source and target, got 'a, b, c'"
    assert refusal(read_pairs, wrong, ["a", "b"]).startswith(f"{wrong}, row 1: expected a string as 'b'")
    with pytest.raises(ValueError, match="has names of columns, not positions"):
        read_pairs(path, [0, 1])


def test_parquet_files_that_are_none(parquet, tmp_path):
    whole = parquet("a.parquet", {"source": ["a" * 50] * 40, "target": ["b" * 50] * 40})
    data = whole.read_bytes()
    for size in (0, 3, 40, len(data) - 1):
        whole.write_bytes(data[:size])
        assert refusal(read_pairs, whole).startswith(f"{whole}: expected a Parquet file: ")
    whole.write_bytes(data[:20] + bytes(40) + data[60:])
    assert refusal(read_pairs, whole).startswith(f"{whole}: expected a whole Parquet file: ")
    missing = tmp_path / "none.parquet"
    assert refusal(read_pairs, missing) == f"{missing}: cannot be read: No such file or directory"
    empty = parquet("b.parquet", {"source": [], "target": []})
    assert refusal(read_pairs, empty) == f"{empty}: expected pairs of texts, the file is empty"


def test_labelled_texts(prepared, parquet, tmp_path):
    expected = (["good", "bad", "so"], ["pos", "neg", "pos"])
    features = {"idx": np.int32, "label": Label(names=["neg", "pos"]), "sentence": TEXT}
    rows = [{"idx": i, "label": x, "sentence": y} for i, (y, x) in enumerate(zip(*expected, strict=True))]
    path = prepared("tiny_sentiment", features, rows)
    assert read_labelled_texts(path) == expected
    file = parquet("a.parquet", {"text": expected[0], "label": [1, 0, 1]}, {"label": ["neg", "pos"]})
    assert read_labelled_texts(file) == expected
    bare = parquet("b.parquet", {"text": ["a"], "label": [3]})
    assert read_labelled_texts(bare) == (["a"], ["3"])  # nobody says its name
    assert read_labelled_texts([path, bare, file]).labels == [*expected[1], "3", *expected[1]]
    assert parts(read_unlabelled_texts(path))[0] == expected[0]
    texts, places = parts(read_unlabelled_texts(tmp_path / "*.parquet"))
    assert texts == [*expected[0], "a"] and places[-1] == f"{bare}, row 1"


def test_pairs_of_texts_numbers_and_several_labels(prepared, parquet):
    features = {"sentence1": TEXT, "sentence2": TEXT, "label": np.float32}
    path = prepared("tiny_sts", features, [{"sentence1": "a", "sentence2": "b", "label": 2.5}])
    assert read_labelled_texts(path, problem="regression") == ([("a", "b")], [2.5])
    features = {"text": TEXT, "labels": tfds.features.Sequence(Label(names=["x", "y"]))}
    path = prepared(
        "tiny_moods", features, [{"text": "a", "labels": ["y", "x"]}, {"text": "b", "labels": []}]
    )
    assert read_labelled_texts(path, problem="multi-label") == (["a", "b"], [["y", "x"], []])
    path = parquet("a.parquet", {"text": ["a", "b"], "labels": [[1], []]}, {"labels": ["x", "y"]})
    assert read_labelled_texts(path, problem="multi-label") == (["a", "b"], [["y"], []])


def test_names_of_labels_stand_beside_other_features(parquet):
    """Older versions of `datasets` write a list as a list of one feature."""
    label = {"names": ["x", "y"], "_type": "ClassLabel"}
    features = {
        "label": label,
        "labels": [label],
        "words": [{"dtype": "string", "_type": "Value"}],
        "odd": [],
    }
    columns = {"text": ["a"], "label": [1], "labels": [[1, 0]], "words": [["b"]]}
    path = parquet("a.parquet", columns, features=features)
    assert read_labelled_texts(path, ["text", "label"]).labels == ["y"]
    assert read_labelled_texts(path, ["text", "labels"], problem="multi-label").labels == [["y", "x"]]


def test_a_label_below_zero_is_none(prepared, parquet):
    """So the sets of GLUE mark what is to be predicted."""
    path = prepared(
        "tiny_test", {"text": TEXT, "label": Label(names=["x", "y"])}, [{"text": "a", "label": -1}]
    )
    assert refusal(read_labelled_texts, path) == f"{path}, example 1: expected a label, got None"
    assert parts(read_unlabelled_texts(path))[0] == ["a"]
    path = parquet("a.parquet", {"text": ["a"], "label": [-1]}, {"label": ["x", "y"]})
    assert refusal(read_labelled_texts, path) == f"{path}, row 1: expected a label, got None"


def test_tagged_words(prepared, parquet, tmp_path):
    expected = ([["EU", "rejects"], ["Peter"]], [["B-ORG", "O"], ["B-PER"]])
    names = ["O", "B-ORG", "B-PER"]
    features = {
        "tokens": tfds.features.Sequence(TEXT),
        "pos": tfds.features.Sequence(Label(names=["N", "V"])),
        "ner": tfds.features.Sequence(Label(names=names)),
    }
    rows = [{"tokens": x, "pos": ["N"] * len(x), "ner": y} for x, y in zip(*expected, strict=True)]
    path = prepared("tiny_conll", features, rows)
    assert read_tagged_words(path) == expected
    assert read_tagged_words(path, ["tokens", "pos"]).tags == [["N", "N"], ["N"]]
    columns = {"tokens": expected[0], "ner_tags": [[1, 0], [2]]}
    assert read_tagged_words(parquet("a.parquet", columns, {"ner_tags": names})) == expected
    lines = '{"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]}\n{"words": ["Peter"], "tags": ["B-PER"]}\n'
    (tmp_path / "a.jsonl").write_text(lines)
    assert read_tagged_words(tmp_path / "a.jsonl") == expected
    assert parts(read_unlabelled_words(path, names)) == (expected[0], ["example 1", "example 2"])
    for column, message in (
        ([["O"]], "row 1: expected 2 tags, one for each word, got ['O']"),
        (["O O"], "row 1: expected 2 tags, one for each word, got 'O O'"),
        ([["O", None]], "row 1: expected a tag, got None"),
    ):
        wrong = parquet("b.parquet", {"tokens": [["a", "b"]], "tags": column})
        assert refusal(read_tagged_words, wrong) == f"{wrong}, {message}"
    wrong = parquet("c.parquet", {"tokens": ["a b"], "tags": [["O"]]})
    assert refusal(read_tagged_words, wrong).endswith(
        "row 1: expected a list of words as 'tokens', got 'a b'"
    )


def test_questions(prepared, parquet):
    context = "Zoë met Bob. Bob slept."
    answers = {"text": ["Bob", "Bob"], "answer_start": [8, 13]}
    expected = (["Who?", "Why?"], [context] * 2, [[Answer("Bob", 8), Answer("Bob", 13)], []])
    inner = {"text": TEXT, "answer_start": np.int32}
    features = {"id": TEXT, "question": TEXT, "context": TEXT, "answers": tfds.features.Sequence(inner)}
    rows = [
        {"id": "1", "question": "Who?", "context": context, "answers": answers},
        {"id": "2", "question": "Why?", "context": context, "answers": {"text": [], "answer_start": []}},
    ]
    path = prepared("tiny_squad", features, rows)
    assert read_questions(path) == expected
    columns = {name: [row[name] for row in rows] for name in ("question", "context", "answers")}
    assert read_questions(parquet("a.parquet", columns)) == expected
    assert parts(read_unanswered(path)) == (
        [("Who?", context), ("Why?", context)],
        ["example 1", "example 2"],
    )
    for value, message in (
        (
            {"text": ["Bob"], "answer_start": [9]},
            "row 1: expected the answer 'Bob' at character 9, got 'ob.'",
        ),
        ({"text": ["Bob"], "answer_start": [1, 2]}, "row 1: expected answers as "),
        ({"text": ["Bob"], "answer_start": ["8"]}, "row 1: expected a text and a whole number as an answer"),
        ({"answer": "Bob"}, "row 1: expected answers as "),
    ):
        wrong = parquet("b.parquet", {"question": ["Who?"], "context": [context], "answers": [value]})
        assert f"{wrong}, {message}" in refusal(read_questions, wrong)


def test_choices(prepared, parquet):
    expected = (["Q"], [["a", "b", "c"]], [2])
    features = {"question": TEXT, "endings": tfds.features.Sequence(TEXT), "label": Label(num_classes=3)}
    path = prepared("tiny_choices", features, [{"question": "Q", "endings": ["a", "b", "c"], "label": 2}])
    assert read_choices(path) == expected
    columns = {"text": expected[0], "endings": expected[1], "label": ["2"]}
    assert read_choices(parquet("a.parquet", columns)) == expected
    assert parts(read_unlabelled_choices(path)) == ([("Q", ["a", "b", "c"])], ["example 1"])
    wrong = parquet("b.parquet", {**columns, "label": ["3"]})
    assert refusal(read_choices, wrong) == f"{wrong}, row 1: expected a label from 0 to 2, got '3'"


def test_texts_and_documents(prepared, parquet, tmp_path):
    path = prepared("tiny_text", {"title": TEXT, "text": TEXT}, [{"title": "T", "text": "one\n\n two \n"}])
    assert read_texts(path) == ["one\n\n two \n"] and read_texts(path, "\n\n") == ["one", " two \n"]
    assert read_texts(path, columns=["title"]) == ["T"]
    assert read_documents(path) == ["one\ntwo"]
    file = parquet("a.parquet", {"content": ["one", None, " ", "two"], "url": ["", "", "", ""]})
    assert read_texts(file) == read_documents(file) == ["one", "two"]
    (tmp_path / "a.txt").write_text("three\n")
    assert read_texts([file, tmp_path / "*.txt"]) == ["one", "two", "three\n"]
    wrong = parquet("b.parquet", {"text": ["", None]})
    assert refusal(read_texts, wrong) == f"{wrong}: expected text, the file is empty"
    assert refusal(read_documents, wrong) == f"{wrong}: expected documents, it holds no text"
    wrong = parquet("c.parquet", {"text": [1]})
    assert refusal(read_texts, wrong) == f"{wrong}, row 1: expected a string as 'text', got 1"


def test_images(prepared, parquet):
    arrays = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), "uint8")
    files = []
    for array in arrays:
        buffer = io.BytesIO()
        PIL.Image.fromarray(array).save(buffer, "PNG")
        files.append(buffer.getvalue())
    features = {"image": tfds.features.Image(shape=(None, None, 3)), "label": Label(names=["dog", "cat"])}
    rows = [{"image": array, "label": label} for array, label in zip(arrays, [0, 1, 0], strict=True)]
    path = prepared("tiny_images", features, rows, ("image", "label"))
    struct = [{"bytes": data, "path": None} for data in files]
    for source in (
        path,
        parquet("a.parquet", {"img": struct, "label": [0, 1, 0]}, {"label": ["dog", "cat"]}),
        parquet("b.parquet", {"image": files, "label": ["dog", "cat", "dog"]}),
    ):
        read = read_labelled_images(source, 4, 5, 3)
        assert read.class_names == ["cat", "dog"] and read.labels.tolist() == [1, 0, 1]
        np.testing.assert_array_equal(read.images, arrays)
        images, places = parts(read_images(source, (8, 8, 1)))
        assert len(images) == 3 and images[1].startswith(b"\x89PNG")  # TFDS writes them anew
        assert places[1].startswith(str(source)) and places[1].endswith(" 2")
    assert parts(read_images(source, (8, 8, 1), ["image", "label"]))[0] == files
    numbered = parquet("c.parquet", {"image": files, "label": [10, 9, 10]})
    assert read_labelled_images(numbered, 4, 5, 3).class_names == ["9", "10"]
    for columns, message in (
        ({"image": [files[0][:60]], "label": [0]}, ", row 1: expected a whole PNG or JPEG image"),
        ({"image": [7], "label": [0]}, ", row 1: expected the bytes of an image as 'image', got 7"),
        ({"image": files[:1], "label": [None]}, ", row 1: expected a label, got None"),
        ({"image": files[:1], "label": [0]}, ": expected images of two classes or more, got [0] alone"),
    ):
        wrong = parquet("d.parquet", columns)
        assert refusal(read_labelled_images, wrong, 4, 5, 3) == f"{wrong}{message}"
    missing = parquet("d.parquet", {"image": ["x.png"], "label": [0]})
    said = refusal(read_labelled_images, missing, 4, 5, 3)
    assert said == f"{missing.with_name('x.png')}: cannot be read: No such file or directory"
