"""Folding of proteins: letters of residues in, the places of their atoms out."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, Length, Whole
from keras_tfm.data.sources.alignments import RESIDUES, UNKNOWN, read_fasta
from keras_tfm.data.sources.lines import Inputs, files_of, inputs_in
from keras_tfm.data.tokenizers.residues import ResidueTokenizer
from keras_tfm.heads import FoldingHead, expected_score, expected_tm
from keras_tfm.layers.residues import ATOMS
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.text_readers import Prompts
from keras_tfm.tasks.asking import AskedTask
from keras_tfm.tasks.proteins.pdb import pdb_text
from keras_tfm.tasks.signatures import Signature
from keras_tfm.tasks.text.text_signature import tokenizer_reads
from keras_tfm.training.folder import Path

ALPHA = ATOMS.index("CA")
EXAMPLES = ["MKT", "GW", "ACDEFGHIKLMNPQRSTVWYX"]  # on which an export is compared with its task
FASTA = (".fasta", ".fa", ".faa", ".a3m", ".fasta.gz", ".fa.gz", ".faa.gz", ".fasta.xz", ".fa.xz", ".faa.xz")


class Structure(NamedTuple):
    """A folded protein of N residues.

    Args:
        numbers: (N,), of residues, as in `layers.residues`.
        positions: (N, 14, 3), of their atoms, in angstroms.
        confidences: (N,), pLDDT of CA, from 0 to 100.
        tm_score: pTM, from 0 to 1.

    >>> alanine = keras_tfm.layers.residues().positions[:1]
    >>> structure = keras_tfm.tasks.Structure(np.array([0]), alanine, np.array([90.0]), 0.5)
    >>> structure.pdb.splitlines()[1]
    'ATOM      2  CA  ALA A   1       0.000   0.000   0.000  1.00 90.00           C  '
    """

    numbers: np.ndarray
    positions: np.ndarray
    confidences: np.ndarray
    tm_score: float

    @property
    def pdb(self) -> str:
        """The text of a PDB file; confidences stand where it has temperatures."""
        return pdb_text(self.numbers, self.positions, self.confidences)


@dataclasses.dataclass(frozen=True)
class ProteinFolderConfig(Config):
    """How a `ProteinFolder` folds.

    Args:
        max_length: the residues of the longest protein that is folded; memory grows with the cube of them.
        num_recycles: how many passes follow the first one.
    """

    max_length: Length = 1024
    num_recycles: Whole = 3


class ProteinFolder(AskedTask):
    """Folds proteins, strings of upper-case letters, one for each residue, by an `ESMFold` with its head.

    Letters that are none of the twenty residues are unknown ones, which get no atoms. `predict` gives a
    `Structure` for each protein, whose `pdb` is the text of a file; its exports give the four arrays.

    >>> model = keras_tfm.heads.FoldingHead(keras_tfm.models.ESMFold.from_size("tiny"))
    >>> config = keras_tfm.tasks.ProteinFolderConfig(num_recycles=1)
    >>> (structure,) = keras_tfm.tasks.ProteinFolder(model, config).predict(["MKT"])
    >>> structure.positions.shape, structure.pdb.count("ATOM")
    ((3, 14, 3), 24)
    """

    name = "fold"
    make_head = FoldingHead
    config_class = ProteinFolderConfig
    record_fields = ("answer", "confidence")

    def __init__(self, model: FoldingHead, config: ProteinFolderConfig | None = None):
        self.model, self.config = model, config or ProteinFolderConfig()
        vocabulary = list(model.backbone.config.vocabulary)
        self._tokenizer = ResidueTokenizer(vocabulary)
        numbers = [RESIDUES.find(token) if token in RESIDUES else UNKNOWN for token in vocabulary]
        self._numbers = tf.constant(numbers, tf.int32)  # of each token

    @classmethod
    def takes(cls, model: Any) -> bool:
        return isinstance(model, FoldingHead)

    @classmethod
    def from_huggingface(cls, name: Path, **fields: Any) -> Self:
        """The ESMFold in the folder `name` (or of this hub id); it says how many passes there are.

        Raises:
            CheckpointError: if a file of the folder is missing or not as it must be.
        """
        from keras_tfm.convert import CheckpointError, from_huggingface

        model = from_huggingface(name)
        if not cls.takes(model):
            raise CheckpointError(name, "architectures", "EsmForProteinFolding", type(model).__name__)
        fields = {"num_recycles": model.backbone.config.num_recycles, **fields}
        return cls(model, ProteinFolderConfig(**fields))

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, model.safetensors, the tokenizer's files."""
        from keras_tfm.convert import save_huggingface

        save_huggingface(self.model, folder, overwrite, tokenizer=self._tokenizer)

    def predict(self, proteins: Iterable[str], /, *, batch_size: int = 1) -> list[Structure]:
        """The `Structure` of each of the strings `proteins`; `batch_size` proteins of about the same length
        are folded at once.
        """
        return [answer["structure"] for answer in self.ask(proteins, batch_size)]

    def records(self, proteins: Any, /, *, batch_size: int = 1) -> list[dict[str, Any]]:
        """As of every task; the answer is the text of a PDB file."""
        found = self.predict(proteins, batch_size=batch_size)
        return [{"answer": x.pdb, "confidence": float(x.confidences.mean()) / 100} for x in found]

    def as_line(self, answer: Structure) -> str:
        confidence = answer.confidences.mean()
        return f"residues {len(answer.numbers)}, pLDDT {confidence:.1f}, pTM {answer.tm_score:.3f}"

    def read_inputs(self, path: Path, columns: Any = None) -> Inputs:
        """The sequences of FASTA files, each with its name, or lines."""
        if not str(path).endswith(FASTA):
            return super().read_inputs(path, columns)
        return inputs_in(files_of(path), lambda file: ((row, name) for name, row in read_fasta(file)))

    def signature(self) -> Signature:
        length = self.config.max_length
        reads = {"before": [], "after": [], "max_length": length, "cuts": False}
        return Signature(
            reads={"kind": "prompts", "tokenizer": tokenizer_reads(self._tokenizer), **reads},
            function=self._fold,
            inputs={name: tf.TensorSpec([None, None], tf.int32) for name in ("token_ids", "padding_mask")},
            answers={"kind": "arrays"},
            examples=[protein[:length] for protein in EXAMPLES],
            tokenizer=self._tokenizer,
        )

    def _fold(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Tokens (B, N) to the fields of a `Structure`, with zeros at padding."""
        mask = tf.cast(inputs["padding_mask"], tf.bool)
        numbers = tf.where(mask, tf.gather(self._numbers, inputs["token_ids"]), UNKNOWN)
        places = tf.zeros_like(numbers) + tf.range(tf.shape(numbers)[1])
        outputs = self.model.fold(
            {"numbers": numbers, "residue_index": places, "padding_mask": mask}, self.config.num_recycles
        )
        confidences = 100 * expected_score(outputs["confidence_logits"][:, :, ALPHA])
        return {
            "numbers": numbers,
            "positions": tf.where(mask[:, :, None, None], outputs["positions"][:, -1], 0.0),
            "confidences": tf.where(mask, confidences, 0.0),
            "tm_score": expected_tm(outputs["error_logits"], mask),
        }

    @property
    def own_reader(self) -> "Proteins":
        tokenizer, length = tokenizer_reads(self._tokenizer), self.config.max_length
        return Proteins(pathlib.Path(), tokenizer, [], [], length, cuts=False)

    @property
    def own_answer(self) -> Any:
        def finish(outputs: list, rows: list, protein: str) -> dict[str, Structure]:
            ((found,), (row,)) = outputs, rows
            arrays = {name: found[name][: len(row)] for name in ("numbers", "positions", "confidences")}
            return {"structure": Structure(**arrays, tm_score=float(found["tm_score"]))}

        return finish


class Proteins(Prompts):
    """Strings of residues."""

    def parts(self, example: Any) -> list[str]:
        parts = super(Prompts, self).parts(example)
        if not re.fullmatch("[A-Z]+", example):
            wrong = next((repr(x) for x in example if not re.fullmatch("[A-Z]", x)), "an empty text")
            raise Refused(f"expected residues, a row of upper-case letters, got {wrong}")
        if len(example) > self._max_length:
            raise Refused(f"expected at most {self._max_length} residues, got {len(example)}")
        return parts
