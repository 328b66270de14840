"""Tables whose columns have names and types, as plain Python values: Parquet files, and data sets of TFDS.

Strings are decoded, and arrays become lists. A label stored as a number becomes its name if the table knows
the names: from features of the kind `ClassLabel`, or from the metadata that the library `datasets` writes to
Parquet files. A label below 0 means "no label" and becomes None. Images stay encoded, as the bytes of their
files, also where they are the frames of a video, which is a list.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from keras_tfm.configs import parse_json
from keras_tfm.data.sources.lines import DataError

ROWS_AT_ONCE = 1024


class NamedSet(NamedTuple):
    """An opened table: the names of its columns, the input and target columns that it declares, what a row is
    called, and a function that yields the cells of given columns row by row.
    """

    names: list[str]
    usual: Sequence[str] | None
    unit: str
    read: Callable[[Sequence[str]], Iterator[tuple]]


def open_parquet(path: str) -> NamedSet:
    """A Parquet file; a column "translation" with texts by language counts as one column per language.

    DataError if the file cannot be read, or is not a Parquet file.
    """
    import pyarrow
    import pyarrow.parquet  # slow to import, and only needed here

    try:
        with open(path, "rb") as stream:
            schema = pyarrow.parquet.read_schema(stream)
    except pyarrow.ArrowException as error:
        raise DataError(path, None, f"expected a Parquet file: {_one_line(error)}") from None
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None
    names, parent = schema.names, None
    if "translation" in names and pyarrow.types.is_struct(schema.field("translation").type):
        parent = "translation"
        names = [field.name for field in schema.field(parent).type]
    labels = _names_of_labels(schema.metadata or {})

    def read(chosen: Sequence[str]) -> Iterator[tuple]:
        number = 0
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=[parent] if parent else list(chosen)):
                    for record in batch.to_pylist():
                        number += 1
                        cells = (record[parent] or {}) if parent else record
                        yield tuple(_named(cells.get(name), labels.get(name)) for name in chosen)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(path, None, f"expected a whole Parquet file: {_one_line(error)}") from None
        except UnicodeDecodeError as error:
            problem = f"expected UTF-8, got byte 0x{error.object[error.start]:02x}"
            raise DataError(path, number + 1, problem, "row") from None

    return NamedSet(list(names), None, "row", read)


def open_prepared(path: str) -> NamedSet:
    """A split of a data set of TFDS, "tfds:NAME[/CONFIG][:VERSION]#SPLIT"; DataError with TFDS's message if
    it fails.
    """
    match = re.fullmatch(r"tfds:(?P<name>[^#]+)#(?P<split>.+)", path)
    if match is None:
        raise DataError(path, None, "expected tfds:NAME[/CONFIG][:VERSION]#SPLIT")
    import tensorflow as tf
    import tensorflow_datasets as tfds  # slow to import, and only needed here

    try:
        builder = tfds.builder(match["name"])
        builder.download_and_prepare()
        features = dict(builder.info.features)
        decoders = {name: skip for name, part in features.items() if (skip := _decoders(part)) is not None}
        dataset = builder.as_dataset(split=match["split"], decoders=decoders)
    except Exception as error:  # TFDS's own, of a failed download for example, derive from this alone
        raise DataError(path, None, _one_line(error)) from None
    usual = builder.info.supervised_keys
    if not isinstance(usual, tuple) or not all(name in features for name in usual):
        usual = None

    def read(chosen: Sequence[str]) -> Iterator[tuple]:
        number = 0
        try:
            for example in tfds.as_numpy(dataset.map(lambda row: tuple(row[name] for name in chosen))):
                number += 1
                cells = zip(chosen, example, strict=True)
                yield tuple(_plain(features[name], x) for name, x in cells)
        except UnicodeDecodeError as error:
            problem = f"expected UTF-8, got byte 0x{error.object[error.start]:02x}"
            raise DataError(path, number, problem, "example") from None
        except tf.errors.OpError as error:
            raise DataError(path, number + 1, _one_line(error.message), "example") from None

    # The features come in any order, another one each time.
    return NamedSet(sorted(features), usual, "example", read)


def _decoders(feature) -> Any:
    """What leaves the images of a feature encoded, nested as the feature is; None where it has none."""
    import tensorflow_datasets as tfds

    while isinstance(feature, tfds.features.Sequence):  # as tfds.features.Video is
        feature = feature.feature
    if isinstance(feature, tfds.features.FeaturesDict):
        parts = {name: skip for name, part in feature.items() if (skip := _decoders(part)) is not None}
        return parts or None
    if not isinstance(feature, tfds.features.Image):
        return None
    decoder = tfds.decode.SkipDecoding()
    decoder.decode_batch_example = decoder.decode_example  # TFDS's own maps it, of which TensorFlow warns
    return decoder


def _plain(feature, value) -> Any:
    """The value of a feature, given as NumPy arrays, as a Python value."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.Image):
        return value
    if isinstance(feature, tfds.features.FeaturesDict):
        return {name: _plain(part, value[name]) for name, part in feature.items()}
    if isinstance(feature, tfds.features.Sequence):
        inner = feature.feature
        if isinstance(inner, tfds.features.FeaturesDict):  # a list of records is a record of lists
            return {name: [_plain(part, x) for x in _items(value[name])] for name, part in inner.items()}
        return [_plain(inner, x) for x in _items(value)]
    if isinstance(feature, tfds.features.ClassLabel):
        names = feature.names if feature.num_classes else []
        return _named(int(value), names if names != [str(i) for i in range(len(names))] else None)
    value = value.tolist() if hasattr(value, "tolist") else value
    return value.decode() if isinstance(value, bytes) else value


def _items(values: Any) -> Any:
    """The items of a sequence, also of a ragged one."""
    return values.to_list() if hasattr(values, "to_list") else values


def _named(value, names: Sequence[str] | None) -> Any:
    """A label, or a list of labels, by name; None for a label below 0."""
    if isinstance(value, list) and names:
        return [_named(x, names) for x in value]
    if type(value) is int and value < 0 and names is not None:
        return None
    return names[value] if names and type(value) is int and value < len(names) else value


def _names_of_labels(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """{column: names of its labels}, if the library `datasets` wrote the Parquet file."""
    try:
        features = parse_json(metadata.get(b"huggingface", b"{}").decode())["info"]["features"]
        names_of = {name: _names_in(feature) for name, feature in features.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: names for name, names in names_of.items() if names is not None}


def _names_in(feature: Any) -> list[str] | None:
    """The names of a feature's labels, or of the labels in its lists; None if it has none."""
    match feature:
        case [inner] | {"feature": inner}:
            return _names_in(inner)
        case {"names": [*names]}:
            return names
    return None


def _one_line(error) -> str:
    return " ".join(str(error).split())[:300]
