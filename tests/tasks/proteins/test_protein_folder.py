"""Proteins are folded: strings, files, folders, an export."""

import json

import numpy as np
import pytest

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from tests.tasks.test_every_task import made

PROTEINS = ["MKTX", "GW"]


@pytest.fixture(scope="module")
def structures():
    return made("fold").predict(PROTEINS)


def test_each_protein_is_folded_by_itself(structures):
    """Also beside a longer one, which pads it."""
    others = made("fold").predict(PROTEINS, batch_size=2)
    for protein, one, other in zip(PROTEINS, structures, others, strict=True):
        assert one.positions.shape == (len(protein), 14, 3) and one.confidences.shape == (len(protein),)
        np.testing.assert_allclose(one.positions, other.positions, atol=1e-4)
        np.testing.assert_allclose(one.confidences, other.confidences, rtol=1e-5)
        np.testing.assert_allclose(one.tm_score, other.tm_score, rtol=1e-5)
        assert 0 < one.confidences.min() <= one.confidences.max() < 100 and 0 < one.tm_score < 1
    names = [line[17:20] for line in structures[0].pdb.splitlines() if " CA " in line]
    assert names == ["MET", "LYS", "THR"]  # an unknown residue has no atoms
    assert structures[1].pdb.splitlines()[0][60:66].strip() == f"{structures[1].confidences[0]:.2f}"


@pytest.mark.slow
def test_its_folders_and_its_files(structures, tmp_path, capsys):
    task = made("fold")
    task.save(tmp_path / "run")
    task.save_huggingface(tmp_path / "published")
    published = tasks.ProteinFolder.from_huggingface(tmp_path / "published")
    assert published.config.num_recycles == 3  # the model's
    task.export(tmp_path / "export")
    served = serving.load(tmp_path / "export")(PROTEINS)
    np.testing.assert_allclose(served["positions"][1, :2], structures[1].positions, atol=1e-4)
    (tmp_path / "some.fasta").write_text(">one\nMK\nTX\n>two\nGW\n")
    main(["predict", str(tmp_path / "run"), "--data", str(tmp_path / "some.fasta"), "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["answer"] for line in lines] == [structure.pdb for structure in structures]
    main(["convert", str(tmp_path / "published"), "--out", str(tmp_path / "converted")])
    assert isinstance(tasks.load(tmp_path / "converted"), tasks.ProteinFolder)
