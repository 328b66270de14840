"""Tables as people have them: headers, blank lines, quotes, other separators and encodings."""

import logging
import re

import numpy as np
import pytest

from keras_tfm.data import (
    DataError,
    Layout,
    read_choices,
    read_labelled_texts,
    read_pairs,
    read_questions,
    read_ratings,
    read_texts,
)
from keras_tfm.data.sources.labelled import read_unlabelled_texts
from keras_tfm.data.sources.series import read_series
from tests.data.sources.parts import parts

FILMS = (["good film", "bad film"], ["pos", "neg"])


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, **options):
    return tuple(read_labelled_texts(path, **options))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("label_first.csv", "label,text\npos,good film\nneg,bad film\n"),
        ("message.csv", "Category,Message\npos,good film\nneg,bad film\n"),
        ("index.csv", ",text,label\n0,good film,pos\n1,bad film,neg\n"),
        ("end.csv", "text,label\ngood film,pos\nbad film,neg\n\n"),
        ("end.tsv", "good film\tpos\nbad film\tneg\n\n \n"),
        ("begin.csv", "\ntext,label\ngood film,pos\nbad film,neg\n"),
        ("within.csv", "text,label\ngood film,pos\n\nbad film,neg\n"),
        ("cells.csv", "text,label\ngood film,pos\nbad film,neg\n,\n , \n"),
        ("end.jsonl", '{"text": "good film", "label": "pos"}\r\n'
                      '{"text": "bad film", "label": "neg"}\r\n\n'),
        ("carriage_returns.csv", "text,label\rgood film,pos\rbad film,neg\r"),
        ("carriage_returns.tsv", "text\tlabel\rgood film\tpos\rbad film\tneg\r"),
        ("last_is_lf.tsv", "good film\tpos\rbad film\tneg\n"),
        ("array.json", '[{"text": "good film", "label": "pos"}, {"text": "bad film", "label": "neg"}]'),
        ("data.json", '{"data": [{"text": "good film", "label": "pos"},\n'
                      ' {"text": "bad film", "label": "neg"}]}'),
    ],
)  # fmt: skip
def test_the_same_examples_in_many_tables(tmp_path, caplog, name, content):
    with caplog.at_level(logging.WARNING):
        assert read(written(tmp_path, name, content)) == FILMS
    blank = [line for line in content.splitlines() if not line.strip(" ,")]
    counted = re.findall(r"skipped (\d+) blank line", caplog.text)
    assert counted == ([str(len(blank))] if blank else [])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text;label\nx;y\n", "1: expected 2 columns, text and label, got 1; are ';' between the"),
        ("a.csv", "text\tlabel\nx\ty\n", "got 1; are tabs between the cells? a .csv file has ','"),
        ("a.tsv", "text,label\nx,y\n", "got 1; are ',' between the cells? a .tsv file has tabs"),
        ("a.csv", "text|label\nx|y\n", "got 1; are '|' between the cells?"),
        ("a.csv", "text,label\nx,y\n".encode("utf-16"), "1: expected UTF-8, got UTF-16; to convert: iconv"),
        ("a.tsv", "text\tlabel\nx\ty\n".encode("utf-16-le"), "line 1: expected UTF-8, got UTF-16"),
        ("a.jsonl", '{"text": "x", "label": 1}\n'.encode("utf-16-be"), "line 1: expected UTF-8, got UTF-16"),
        ("a.csv", "text,label\ncafé,y\n".encode("cp1252"), "line 2: expected UTF-8, got "
         "byte 0xe9 at position 3, which is é in CP-1252; to convert: iconv"),
        ("a.csv", b"text,label\nx\x81,y\n", "line 2: expected UTF-8, got byte 0x81 at position 1"),
        *(("a.csv", f"text,label\n{rows}", f"line {line}: expected CSV: ',' "
           "expected after '\"'; a quote inside quotes is doubled, not \\\"")
          for line, rows in [
              (2, '"a \\"b\\" c",y\n"a ""b"" c",y\n'),  # both ways
              (3, '"a ""b"" c",\\y\n"a \\"b\\" c",y\n'),
              (2, '"a \\"b\\" c",y\n"C:\\new",y\n'),  # a backslash that may be text
              (3, 'C:\\new,y\n"a \\"b\\" c",y\n'),
              (2, '"a \\"b\\" c",y\n"a" b,y\n'),
              (2, '"a \\"b\\" c"y,y\n'),
              (2, '"a "b" c",y\n'),
          ]),
        ("a.json", '{"text": "x"}', "expected a JSON array of objects, got {'text': 'x'}"),
        ("a.json", '[{"text": "x", "label": 1}, 5]', "item 2: expected a JSON object, got 5"),
        ("a.json", "[", "expected a JSON array of objects: Expecting value"),
    ],
)  # fmt: skip
def test_what_a_table_is_instead_is_named(tmp_path, name, content, message):
    with pytest.raises(DataError) as caught:
        read(written(tmp_path, name, content))
    assert message in str(caught.value) and "\n" not in str(caught.value)


SEEN = "is one cell, which is read whole, with as many {0} as the others; if {0} separate cells, write"


@pytest.mark.parametrize(
    ("name", "lines", "mark"),
    [
        ("a.csv", ["remark;topic", "good film;x", "bad;y"], "';'"),
        ("a.csv", ["good film;x"] * 30, "';'"),
        ("a.csv", ["1\tgood film\tx"] * 3, "tabs"),
        ("a.tsv", ["good film,x", "bad,y", "so so,x"], "','"),
        ("a.csv", ["good film;x"] * 2, None),  # too few to say
        ("a.csv", ["good; really", "bad; really", "so; so"], None),
        ("a.csv", ["good;really", "bad", "so;so"], None),
        ("a.tsv", ["Paris, France", "Rome, Italy", "Bonn, Germany"], None),
        ("a.csv", ['"Paris,France"', '"Rome,Italy"', '"Bonn,Germany"'], None),
    ],
)
def test_another_separator_under_unknown_names_is_a_warning(tmp_path, caplog, name, lines, mark):
    path = written(tmp_path, name, "".join(f"{line}\n" for line in lines))
    with caplog.at_level(logging.WARNING):
        texts = [text for text, _ in read_unlabelled_texts(path)]
    assert texts == [line.strip('"') for line in lines]
    assert len(caplog.records) == (mark is not None)
    assert mark is None or SEEN.format(mark) in caplog.text
    caplog.clear()
    list(read_unlabelled_texts(path, Layout(header=False)))
    assert not caplog.records


def test_another_separator_explains_rows_that_do_not_fit(tmp_path):
    for lines, error in (
        ("remark;topic\ngood, or not;x\n", "line 2: expected 1 column, got 2; are ';' between the cells?"),
        ('remark;topic\n"good; or not";x\n', "after '\"'; are ';' between the cells? a .csv file has ','"),
    ):
        with pytest.raises(DataError) as caught:
            list(read_unlabelled_texts(written(tmp_path, "a.csv", lines)))
        assert error in str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_csv_that_escapes_its_quotes_throughout_is_read(tmp_path, end):
    lines = [
        ",text,label",
        '"",plain,pos',
        r'1,"a \"b\", c","pos"',
        r'"","back\\slash',
        ' 2","neg"',
        r'3,"\"",pos',
    ]
    texts, labels = read(written(tmp_path, "a.csv", end.join(lines) + end))
    newline = "\n" if end == "\r\n" else end
    assert texts == ["plain", 'a "b", c', rf"back\slash{newline} 2", '"']
    assert labels == ["pos", "pos", "neg", "pos"]


def test_cr_beside_lf_is_text(tmp_path):
    assert read(written(tmp_path, "a.tsv", "good\rfilm\tpos\nbad film\tneg\n"))[0] == [
        "good\rfilm",
        "bad film",
    ]


def rows(names=None, count=20, labels=("pos", "neg"), swapped=False):
    """A .tsv of `count` rows, under a row of `names` if they are given."""
    cells = [(f"film {i}", labels[i % len(labels)]) for i in range(count)]
    cells = [names, *cells] if names else cells
    return "".join("\t".join(pair[::-1] if swapped else pair) + "\n" for pair in cells)


def test_a_header_of_unknown_names_is_no_class(tmp_path):
    path = written(tmp_path, "a.tsv", rows(("utterance text", "domain name")))
    for columns in (None, [0, 1]):
        with pytest.raises(DataError) as caught:
            read_labelled_texts(path, columns)
        assert str(caught.value).startswith(f"{path}, line 1: expected an example, but 'domain name' is the")
        for way in ("--columns utterance text,domain name", "--header", "--no-header", "data.Layout"):
            assert way in str(caught.value)
    with pytest.raises(DataError, match="line 1: expected an example"):
        read_labelled_texts(path, problem="multi-label")
    right = [f"film {i}" for i in range(20)]
    assert read_labelled_texts(path, ["utterance text", "domain name"]).texts == right
    assert read_labelled_texts(path, Layout(header=True)).texts == right
    assert read_labelled_texts(path, Layout([0, 1], header=True)).texts == right
    assert read_labelled_texts(path, Layout(header=False)).texts == ["utterance text", *right]
    # Each file has a header of its own.
    other = written(tmp_path, "b.tsv", rows())
    with pytest.raises(DataError, match=r"a\.tsv, line 1: expected an example"):
        read_labelled_texts([other, path])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (rows(("x", "y"), count=18), "classes"),  # too few rows
        (rows(("x", "7"), labels="01"), "classes"),  # a number
        (rows(("x", "7"), labels="01"), "regression"),
        (rows(("x", "pos")), "classes"),  # a label of others too
        (rows(("x", "y"), labels=[f"label {i}" for i in range(20)]), "classes"),  # others stand once, too
        (rows(("x", "y,pos")), "multi-label"),
    ],
)
def test_a_first_row_that_may_be_an_example_is_one(tmp_path, content, problem):
    assert read_labelled_texts(written(tmp_path, "a.tsv", content), problem=problem).texts[0] == "x"


def test_columns_in_the_order_label_text_are_noticed(tmp_path, caplog):
    path = written(tmp_path, "a.tsv", rows(swapped=True))
    with pytest.raises(DataError, match=r"line 1: expected the columns text and label, .*--columns 1,0"):
        read_labelled_texts(path)
    assert read_labelled_texts(path, [1, 0]).labels[:2] == ["pos", "neg"]
    assert not caplog.messages
    assert read_labelled_texts(path, [0, 1]).texts[:2] == ["pos", "neg"]  # as was chosen
    assert "the 20 rows have 2 different texts and 20 different labels: is the text" in caplog.text
    assert len(read_labelled_texts(written(tmp_path, "b.tsv", rows(swapped=True, count=19))).texts) == 19


def test_no_header_of_known_names(tmp_path):
    path = written(tmp_path, "a.csv", "text,label\nx,y\n")
    assert read(path) == (["x"], ["y"])
    assert read(path, columns=Layout(header=False)) == (["text", "x"], ["label", "y"])
    with pytest.raises(ValueError, match="header: a table without a header has no names of columns"):
        read_labelled_texts(path, Layout(["text", "label"], header=False))


def test_a_text_is_no_list_of_columns(tmp_path):
    with pytest.raises(ValueError, match="columns: expected a list, got a single text, 'text'"):
        read_labelled_texts(written(tmp_path, "a.csv", "text,label\nx,y\n"), "text")


def test_quotes_in_a_tsv_are_read_if_asked_for(tmp_path, caplog):
    path = written(tmp_path, "a.tsv", '"good ""film"""\tpos\n"bad\nfilm"\tneg\n')
    assert read(path, columns=Layout(quoted=True)) == (['good "film"', "bad\nfilm"], ["pos", "neg"])
    path = written(tmp_path, "b.tsv", '"good"\tpos\n"bad"\tneg\n')
    assert read(path) == (['"good"', '"bad"'], ["pos", "neg"])
    assert "all lines begin with a quote, which counts as text; --quoted" in caplog.text
    caplog.clear()
    assert read(written(tmp_path, "c.tsv", '"good"\tpos\nbad\tneg\n'))[0] == ['"good"', "bad"]
    assert not caplog.text


def test_a_layout_holds_for_every_reader(tmp_path):
    quoted = written(tmp_path, "a.tsv", '"one"\t"two"\n"a ""b"""\t"c"\n')
    assert read_pairs(quoted, Layout(header=True, quoted=True)) == (['a "b"'], ["c"])
    path = written(tmp_path, "b.csv", "who,what,how\nana,1984,5\n")
    assert read_ratings(path, Layout([0, 1, 2], header=True)).users == ["ana"]
    path = written(tmp_path, "c.csv", "month,sales\n1,2\n")
    assert read_series(path, Layout([1], header=True)).tolist() == [2]
    assert parts(read_unlabelled_texts(quoted, Layout([0], header=True, quoted=True)))[0] == ['a "b"']


@pytest.mark.parametrize(
    "reader", [read_labelled_texts, read_pairs, read_choices, read_questions, read_texts]
)
@pytest.mark.parametrize(
    ("layout", "flag"), [(Layout(header=True), "header"), (Layout(quoted=True), "quoted")]
)
def test_a_table_with_names_has_no_header(tmp_path, reader, layout, flag):
    with pytest.raises(
        ValueError, match=f"--{flag}: .*a.jsonl has names of columns, it is not a .tsv or .csv"
    ):
        reader(written(tmp_path, "a.jsonl", "{}\n"), columns=layout)


def test_labels_as_columns_of_0_and_1(tmp_path, caplog):
    expected = (["good film", "bad film"], [[], ["toxic", "insult"]])
    csv = "id,comment_text,toxic,insult\n0,good film,0,0\n1,bad film,1,1\n"
    for name, content in (
        ("a.csv", csv),
        ("a.tsv", csv.replace(",", "\t").replace("0\t0", "0.0\t0")),
        ("a.jsonl", '{"text": "good film", "toxic": 0, "insult": false}\n'
                    '{"text": "bad film", "toxic": 1.0, "insult": true}\n'),
    ):  # fmt: skip
        assert read(written(tmp_path, name, content), problem="multi-label") == expected
    assert not caplog.text
    more = (
        csv.replace("insult", "insult,author,rater")
        .replace(",0\n", ",0,ana,7\n")
        .replace(",1\n", ",1,ben,1\n")
    )
    path = written(tmp_path, "b.csv", more)
    assert read(path, problem="multi-label") == expected
    assert "the labels are toxic, insult; not read are author, rater" in caplog.text
    with pytest.raises(DataError, match="line 1: expected 2 columns, text and label, got 6"):
        read_labelled_texts(path)
    assert parts(read_unlabelled_texts(path))[0] == expected[0]
    # A column of labels, or none of 0 and 1, is no such table.
    path = written(tmp_path, "c.csv", 'text,labels,toxic\nx,"a,b",1\n')
    assert read(path, problem="multi-label") == (["x"], [["a", "b"]])
    with pytest.raises(DataError, match="line 1: expected 2 columns, text and label, got 3"):
        read_labelled_texts(written(tmp_path, "d.csv", "id,text,mark\n1,x,5\n"), problem="multi-label")


def test_a_blank_line_in_a_series_is_a_missing_value(tmp_path):
    path = written(tmp_path, "a.csv", "value\n1\n2\n\n\n")
    np.testing.assert_equal(read_series(path), [1, 2])
    with pytest.raises(DataError, match="line 3: expected value, the line is blank"):
        read_series(written(tmp_path, "b.csv", "value\n1\n\n2\n"))
