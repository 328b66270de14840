"""Sets made on the spot: of TFDS, found by name as downloaded ones would be, and Parquet files."""

import json

import pytest


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """`prepared(name, features, examples)` makes the split "train" of a set, and gives its path, "tfds:…"."""
    tfds = pytest.importorskip("tensorflow_datasets")
    import tensorflow as tf

    root = tmp_path / "prepared"
    monkeypatch.setenv("TFDS_DATA_DIR", str(root))
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(root))

    def make(name, features, examples, supervised_keys=None):
        features = (
            features if hasattr(features, "serialize_example") else tfds.features.FeaturesDict(features)
        )
        set_name, folder = name.split("/")[0], root / name / "1.0.0"
        folder.mkdir(parents=True)
        file = folder / f"{set_name}-train.tfrecord-00000-of-00001"
        with tf.io.TFRecordWriter(str(file)) as writer:
            for example in examples:
                writer.write(features.serialize_example(features.encode_example(example)))
        template = tfds.core.ShardedFileTemplate(
            dataset_name=set_name, data_dir=str(folder), split="train", filetype_suffix="tfrecord"
        )
        split = tfds.core.SplitInfo(
            name="train", shard_lengths=[len(examples)], num_bytes=0, filename_template=template
        )
        tfds.folder_dataset.write_metadata(
            data_dir=str(folder),
            features=features,
            split_infos=[split],
            supervised_keys=supervised_keys,
            check_data=False,
        )
        return f"tfds:{name}:1.0.0#train"

    return make


@pytest.fixture
def parquet(tmp_path):
    """`parquet(name, columns)` writes a file, with the names of labels, or all `features`, as the library
    `datasets` has them.
    """
    import pyarrow
    import pyarrow.parquet

    def make(name, columns, labels=None, features=None):
        table = pyarrow.table(columns)
        if labels:
            features = {column: {"names": names, "_type": "ClassLabel"} for column, names in labels.items()}
            features = {
                column: {"feature": feature, "_type": "Sequence"}
                if isinstance(columns[column][0], list)
                else feature
                for column, feature in features.items()
            }
        if features:
            metadata = {"huggingface": json.dumps({"info": {"features": features}})}
            table = table.replace_schema_metadata(metadata)
        pyarrow.parquet.write_table(table, tmp_path / name)
        return tmp_path / name

    return make
