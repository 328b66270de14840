"""The model card of a task's folder: what it says of a record, and what of one that lacks something."""

import pytest

from keras_tfm.training.card import card, write_card
from keras_tfm.training.folder import CARD, CARD_MARK, refuse_existing
from keras_tfm.training.record import read_record, write_record

RECORD = {
    "task": "classify",
    "versions": {"keras": "3.15.1", "keras-tfm": "0.1.0"},
    "options": {"epochs": 3, "minutes": None, "learning_rate": 0.001, "teacher": "/home/me/run"},
    "data": {"fingerprint": "sha256:ab", "train": "90 texts", "validation": "10 texts"},
    "command": {"data": ["/home/me/secret/my train.tsv"], "valid": [], "start": "/home/me/bert"},
    "results": {"best_epoch": 2, "epochs": 3, "val_accuracy": 0.91234567, "loss": 0.25, "seconds": 12.5},
}


def test_what_a_record_tells():
    text = card("classify", "SequenceClassifier of 1,234 weights", RECORD, "transformers")
    front, _, body = text.removeprefix("---\n").partition("\n---\n")
    assert CARD_MARK in body and "| `teacher` | run |" in body
    assert front.splitlines() == [
        'library_name: "transformers"',
        'pipeline_tag: "text-classification"',
        'tags: ["keras_tfm", "classify"]',
    ]
    assert "`classify`: SequenceClassifier of 1,234 weights." in body
    assert "- training: 90 texts\n- validation, which chooses the best epoch: 10 texts\n" in body
    assert "- files: `my train.tsv`\n" in body and "/home/me" not in text  # names alone: paths are private
    assert "At the best epoch, 2 of 3" in body and "| `val_accuracy` | 0.9123 |\n" in body
    assert "It started from `bert`." in body and "keras-tfm train classify --data 'my train.tsv'" in body
    assert "| `learning_rate` | 0.001 |\n" in body and "minutes" not in body
    assert "| `keras` | 3.15.1 |\n" in body and "The training took 12.5 seconds." in body
    assert "## Licence\n\nTo be filled in." in body and "## Intended uses and limits\n" in body


def test_a_training_that_has_not_ended():
    text = card("translate", "a model", {name: RECORD[name] for name in RECORD if name != "results"})
    assert "The training has not ended." in text and 'library_name: "keras"' in text


@pytest.mark.parametrize("name", ["versions", "options", "data", "command", "results"])
def test_what_a_record_lacks_is_left_out(name):
    for record in ({key: x for key, x in RECORD.items() if key != name}, {**RECORD, name: "damaged"}):
        text = card("classify", "a model", record)
        assert "damaged" not in text and "None" not in text and "## Licence" in text


def test_a_task_without_a_counterpart_on_the_hub():
    assert "pipeline_tag" not in card("recommend", "factors", RECORD)


def test_a_card_is_written_anew_until_it_is_somebodys_own(tmp_path):
    (tmp_path / "config.json").write_text('{"keras_tfm": "0"}')
    path = tmp_path / CARD
    for text in ("one", "two"):
        write_card(tmp_path, f"{CARD_MARK}\n{text}\n")
    assert path.read_text() == f"{CARD_MARK}\ntwo\n" and len(list(tmp_path.iterdir())) == 2
    path.write_text("mine")
    write_card(tmp_path, f"{CARD_MARK}\nthree\n")
    assert path.read_text() == "mine"
    with pytest.raises(FileExistsError, match=r"did not write, and is not replaced: README\.md"):
        refuse_existing(tmp_path, overwrite=True)
    path.write_text(CARD_MARK)
    refuse_existing(tmp_path, overwrite=True)


def test_names_of_files_outside_utf_8(tmp_path):
    record = {**RECORD, "command": {"data": ["/home/me/caf\udce9.tsv"]}}
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    write_card(tmp_path, card("classify", "a model", record))
    assert r"- files: `caf\udce9.tsv`" in (tmp_path / CARD).read_text("utf-8")
