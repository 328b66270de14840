"""Questions answered whole: labels, decoding, SQuAD's measures; learnt, kept, exported, given away."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tfm import tasks
from keras_tfm.data import Answer, BERTTokenizer
from keras_tfm.export import endpoints
from keras_tfm.models import BERT
from keras_tfm.tasks import QuestionAnswerer, QuestionAnswererConfig
from keras_tfm.tasks.text.question_answerer import exact_match, f1, normalize_answer
from tests.contract import randomise
from tests.fresh_process import ask
from tests.tasks import tiny

TINY = tiny.TINY | {"num_layers": 2}
WORDS = "who where when why met in the ada love ##lace bob łodz london 18 ##52 , . ? slept by river"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
CONTEXT = "Ada Lovelace met Bob in Łódz, 1852. Bob slept\u00a0by the river, in London."
ASKED = [
    ("Who met Bob?", "Ada Lovelace"),
    ("Where met Ada Bob?", "Łódz"),
    ("When met Ada Bob?", "1852"),
    ("Where slept Bob?", "by the river, in London"),
    ("Who slept?", "Bob"),
    ("Why?", ""),
]


def examples(asked=ASKED):
    """Each answer where it stands last in the context; none for an empty one."""
    answers = [[Answer(text, CONTEXT.rindex(text))] if text else [] for _, text in asked]
    return [question for question, _ in asked], [CONTEXT] * len(asked), answers


def make(known, **options):
    keras.utils.set_random_seed(0)
    bert = BERT.from_size("tiny", **TINY, vocabulary_size=len(PIECES), max_length=64)
    return QuestionAnswerer.from_backbone(bert, BERTTokenizer(PIECES), known, **{"max_length": 24, **options})


def pairs(questions):
    return [(question, CONTEXT) for question in questions]


@pytest.fixture(scope="module")
def learnt():
    """A task that has learnt ASKED by heart, which it reads in two windows, and that one has no answer."""
    known = examples()
    task = make(known)
    many = [column * 80 for column in known]  # an epoch costs more than its steps
    task.fit(many, known, epochs=5, batch_tokens=400, learning_rate=5e-3, weight_decay=0.0)
    return task


def test_contexts_are_held_out_whole(random):
    contexts = [f"{CONTEXT} {number}" for number in range(8) for _ in range(5)]
    known = random.check_examples((["Who slept?"] * 40, contexts, [[]] * 40))
    train, rest = random.hold_out(known, None, 0)
    assert not set(train.contexts) & set(rest.contexts)
    assert (len(train.contexts), len(rest.contexts)) == (30, 10)
    train, rest = random.hold_out(random.check_examples(examples()), 0.5, 0)  # of one context
    assert len(train.questions) == len(rest.questions) == 3
    with pytest.raises(ValueError, match="a share of them in"):
        random.hold_out(known, 1.0, 0)


def test_windows_have_the_places_of_their_answers():
    """[CLS] who met bob ? [SEP] leave room for 17 pieces of 20; the second window begins at the ninth."""
    task = make(examples())
    columns = examples(ASKED[:1] + ASKED[3:])
    read = task.answerer.read_all(list(zip(*columns[:2], strict=True)))
    assert [len(rows) for rows, _ in read] == [2, 2, 2, 2]
    first, second = ([PIECES[i] for i in row.ids] for row in read[0].rows)
    assert first[6:9] == ["ada", "love", "##lace"] and second[6:9] == ["18", "##52", "."]
    labels = task._encode_labels(task.examples_class(*columns), read)
    in_order = list(zip(labels["start"].tolist(), labels["end"].tolist(), strict=True))
    # From "ada" to "##lace"; "by" to "london"; the last "bob", in both; none.
    assert in_order == [
        ([6, 24], [8, 24]), ([0, 19], [0, 19]),
        ([0, 24], [0, 24]), ([11, 19], [16, 19]),
        ([16, 24], [16, 24]), ([8, 18], [8, 18]),
        ([0, 24], [0, 24]), ([0, 17], [0, 17]),
    ]  # fmt: skip


def test_an_answer_within_a_piece_is_the_pieces_and_spaces_are_none():
    task = make(examples())
    question = [["Who?"], [CONTEXT]]
    for text, expected in (("ovela", (5, 6)), (" Bob", (8, 8)), ("ódz, 1", (10, 12))):
        answers = [[Answer(text, CONTEXT.index(text))]]
        read = task.answerer.read_all(list(zip(*question, strict=True)))
        labels = task._encode_labels(task.examples_class(*question, answers), read)
        assert (labels["start"][0, 0], labels["end"][0, 0]) == expected


def judged(task, asked):
    """(The answers, their probabilities (N,)) to pairs of a question and a context."""
    records = task.records(asked)
    return [one["answer"] for one in records], np.array([one["confidence"] for one in records])


def test_questions_are_answered(learnt):
    assert learnt.config.unanswerable
    asked, contexts, _ = known = examples()
    answers = [answer for _, answer in ASKED]
    assert learnt.predict(zip(asked, contexts, strict=True)) == answers
    assert learnt.predict([f"{question}\t{CONTEXT}" for question in asked], batch_size=2) == answers
    assert learnt.evaluate(known) == {"exact_match": 1, "f1": 1, "questions": 6}
    again, scores = judged(learnt, [*pairs(asked), ("Who?", "")])
    assert again == [*answers, ""] == learnt.predict([*pairs(asked), ("Who?", "")])
    assert learnt.predict([]) == learnt.records([]) == []
    assert (scores > 0.8).all() and (scores <= 1).all() and scores[-1] == 1


@pytest.mark.slow
def test_many_windows_are_read_in_parts(learnt):
    """In a graph: seven windows, in parts of three."""
    signature = learnt.signature()
    inputs = learnt.answerer.read([("Who slept?", " ".join([CONTEXT] * 3))])
    assert inputs["token_ids"].shape[0] == 7
    parts = endpoints.in_parts(signature.function, {name: tf.constant(x) for name, x in inputs.items()}, 3)
    for side, logits in learnt.answerer.run(inputs).items():
        np.testing.assert_allclose(parts[side], logits, atol=1e-5)


def test_the_threshold_decides_about_none(learnt, monkeypatch):
    asked = [question for question, _ in ASKED]
    for threshold, is_none in ((1e9, [False] * 6), (-1e9, [True] * 6)):
        config = QuestionAnswererConfig(max_length=24, unanswerable=True, null_threshold=threshold)
        monkeypatch.setattr(learnt, "config", config)
        assert [not answer for answer in learnt.predict(pairs(asked))] == is_none


@pytest.mark.slow
def test_the_saved_model_answers_alone(learnt, tmp_path):
    asked = [question for question, _ in ASKED]
    answers, scores = judged(learnt, [*pairs(asked), (asked[0], "")])
    learnt.export(tmp_path / "served")
    folder = tmp_path / "served"
    served = ask(folder, question=[*asked, asked[0]], context=[CONTEXT] * len(asked) + [""])
    assert served["answer"].tolist() == answers
    np.testing.assert_allclose(served["score"], scores, atol=1e-5)
    nothing = ask(folder, question=np.array([], "U"), context=np.array([], "U"))
    assert nothing["answer"].shape == nothing["score"].shape == (0,)
    assert ask(folder, question=["who"], context=[b"bob \xff bob"])["answer"].shape == (1,)
    with pytest.raises(RuntimeError, match="more than 13 tokens"):
        ask(folder, question=["who " * 14], context=["bob"])


@pytest.mark.slow
def test_kept_and_given_away(learnt, tmp_path):
    asked = [question for question, _ in ASKED]
    answers = [answer for _, answer in ASKED]
    learnt.save(tmp_path / "task")
    kept = tasks.load(tmp_path / "task")
    assert kept.config == learnt.config and kept.predict(pairs(asked)) == answers
    learnt.save_huggingface(tmp_path / "folder")
    given = QuestionAnswerer.from_huggingface(tmp_path / "folder", examples(), max_length=24)
    assert given.config == learnt.config and given.predict(pairs(asked)) == answers
    assert not tasks.from_huggingface(tmp_path / "folder").config.unanswerable


TEXT = st.lists(
    st.one_of(
        st.characters(exclude_categories=("Cs",)), st.sampled_from([" ", "bob ", "\u0301", "😀", "\x00"])
    )
).map("".join)


@pytest.fixture(scope="module")
def random():
    task = make(examples(ASKED[:5]))
    randomise(task.model, seed=0)
    return task


@settings(max_examples=settings.default.max_examples // 5)  # each is a prediction
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_an_answer_is_always_a_part_of_its_context(random, contexts):
    answers, scores = judged(random, [("Who met Bob?", context) for context in contexts])
    for answer, score, context in zip(answers, scores, contexts, strict=True):
        assert answer in context and answer == answer.strip() and 0 <= score <= 1 + 1e-6


def test_a_start_learns_that_questions_may_have_no_answer():
    answered = make(examples(ASKED[:-1]))
    assert not answered.config.unanswerable
    more = QuestionAnswerer.adopt(answered, examples())
    assert more.config.unanswerable and more.model is answered.model
    assert QuestionAnswerer.adopt(more, examples(ASKED[:-1])).config.unanswerable  # as it has learnt


def test_measures_by_hand():
    """Words as in SQuAD's script: it parts no words at punctuation, and takes articles out after it."""
    assert normalize_answer("The  U.S.-based\tTeam, an A!") == ["usbased", "team"]
    assert exact_match("the Bob.", "bob") and not exact_match("Bob's", "Bob s")
    assert f1("Ada met Bob", "Bob, met Bob") == pytest.approx(2 / 3)
    assert f1("by the river", "the river in London") == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert f1("", "") == f1("the", "") == 1 and f1("", "Bob") == f1("Ada", "Bob") == 0


def test_the_best_of_several_right_answers_counts(random, monkeypatch):
    monkeypatch.setattr(QuestionAnswerer, "predict", lambda self, pairs: ["Ada", "Bob"])
    right = [[Answer("Bob", 17), Answer("Ada Lovelace", 0)], [Answer("Ada", 0), Answer("Bob", 17)]]
    measures = random.evaluate((["Who?", "Who?"], [CONTEXT] * 2, right))
    assert measures == {"exact_match": 0.5, "f1": round((2 / 3 + 1) / 2, 4), "questions": 2}


def test_bad_input(random):
    wrong = (["Who?"], [CONTEXT], [[Answer("Bob", 16)]])
    with pytest.raises(ValueError, match=r"question 'Who\?': expected the answer 'Bob' at .* 16, got ' Bo'"):
        random.evaluate(wrong)
    with pytest.raises(ValueError, match="expected the answer 'Bob'"):
        random.fit([column * 2 for column in wrong])
    with pytest.raises(ValueError, match=r"question 'Who\?': expected an answer, got none"):
        random.evaluate((["Who?"], [CONTEXT], [[]]))
    with pytest.raises(ValueError, match=r"row 1: expected at most 13 tokens of a question, .* got 14"):
        random.predict([("Who?", "Bob"), ("who " * 14, "Bob")])
    with pytest.raises(ValueError, match="row 0: expected a question and a context: two strings, or one"):
        random.predict(["Who?"])
    with pytest.raises(ValueError, match="expected columns of one length, got 1 questions, 2 contexts"):
        random.fit((["Who?"], ["Bob"] * 2, [[]]), (["Who?"], ["Bob"], [[]]))
    for options, message in (
        ({"max_length": 8}, "`max_length` must be at least 16; it is 8"),
        ({"stride": 0}, "`stride` must lie in 1 to 192; it is 0"),
        ({"stride": 200}, "`stride` must lie in 1 to 192; it is 200"),
        ({"max_answer_length": 0}, "`max_answer_length` must be at least 1; it is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            QuestionAnswererConfig(**options)
