"""Words, tags and the spans that they make."""

import re

import pytest
import tensorflow as tf

from keras_tfm.serving.examples import apart, words_in
from keras_tfm.tasks.text.spans import bounds_of, marks_of, repaired


@pytest.mark.parametrize(
    ("text", "marks", "words"),
    [
        ("Ada lives in Rome.", ".,", "Ada lives in Rome ."),
        ("Ada lives in Rome.", "", "Ada lives in Rome."),
        ('"Well (so far)...", he said!?', '.,!?"()', '" Well ( so far ) ... " , he said ! ?'),
        ("wait... 3.5 U.S. a-b -x", ".-", "wait ... 3.5 U.S . a-b - x"),
        ("... -- a", ".-", "... -- a"),
        (" .a. ", ".", ". a ."),
        ("[x]^ \\y\\", "[]^\\", "[ x ] ^ \\ y \\"),
        ("„Ja“ sagt sie。", "„“。", "„ Ja “ sagt sie 。"),
        ("", ".", ""),
    ],
)
def test_marks_are_words_of_their_own(text, marks, words):
    assert words_in(text, marks) == words.split()
    graph = tf.constant(text)
    for pattern, spaced in apart(marks):
        graph = tf.strings.regex_replace(graph, pattern, spaced)
    assert [word.decode() for word in tf.strings.split(graph).numpy()] == words.split()


@pytest.mark.parametrize(
    ("sentences", "marks"),
    [
        (["Ada sleeps .", "Why ?"], ".?"),
        (["Ada sleeps.", "Why?"], ""),
        (["Mr. Fox and Mrs. Fox sleep ."], ""),
        (["@ada likes #tags !", "@bob , too"], "!,"),
        (["it costs $ 5 + 1"], ""),  # signs, not punctuation
        ([], ""),
    ],
)
def test_marks_are_those_of_the_training(sentences, marks):
    assert set(marks_of(sentence.split() for sentence in sentences)) == set(marks)


@pytest.mark.parametrize(
    ("tags", "right", "spans"),
    [
        ("O I-A I-A O", "O B-A I-A O", [("A", 1, 3)]),
        ("B-A I-B I-B", "B-A B-B I-B", [("A", 0, 1), ("B", 1, 3)]),
        ("B-A B-A I-A", "B-A B-A I-A", [("A", 0, 1), ("A", 1, 3)]),
        ("NOUN VERB", "NOUN VERB", []),
        ("", "", []),
    ],
)
def test_spans_begin_with_b(tags, right, spans):
    assert repaired(tags.split()) == right.split()
    assert list(bounds_of(tags.split())) == spans
    assert not re.search("(^|O )I-", " ".join(repaired(tags.split())))
