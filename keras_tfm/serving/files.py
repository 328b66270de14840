"""The files of an exported folder: digests that are written with them, and compared when they are read."""

import hashlib
import json
import pathlib

NAME = "serving.json"  # what the folder holds, and how inputs become numbers and numbers answers
SAVED_MODEL_NAME = "assets.extra/keras_tfm.json"  # of a SavedModel: servers ignore assets.extra
LAYOUT = 3  # of serving.json: raised when an older reader would misread a newer file

CODE = "serving"  # the copy of this package in an export
FREE = (NAME, SAVED_MODEL_NAME, "README.md")  # a person may change the card


def digest_of(path):
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        part = memoryview(bytearray(1 << 20))
        while count := file.readinto(part):
            digest.update(part[:count])
    return f"sha256:{digest.hexdigest()}"


def digests_of(folder):
    """{path in the folder: digest} of the files that an answer depends on."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    return {
        name: digest_of(path)
        for path, name in names.items()
        if name not in FREE and not name.startswith(f"{CODE}/")
    }


def check_files(folder, digests):
    """Raise ValueError unless `folder` holds the files of `digests`, unchanged."""
    for name, digest in digests.items():
        path = folder / name
        if ".." in pathlib.PurePosixPath(name).parts or pathlib.PurePosixPath(name).is_absolute():
            raise ValueError(f"{folder}: expected the paths of files in it, got {name!r:.80}")
        if not path.is_file():
            raise ValueError(f"{folder}: expected the file {name!r:.80}, as it was exported, got none")
        if digest_of(path) != digest:
            raise ValueError(f"{path}: expected the file as it was exported, it has changed since")


def read_object(path):
    """The object in a JSON file; ValueError for anything else."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path}: expected JSON, the file is damaged: {reason}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected an object, the file is damaged: {content!r:.40}")
    return content


def digests_in(content, path):
    """The entry "files" of a description, {} in descriptions of earlier versions; ValueError for another."""
    digests = content.get("files", {})
    if not isinstance(digests, dict) or not all(isinstance(digest, str) for digest in digests.values()):
        raise ValueError(f"{path}: expected digests by the names of files as 'files', got {digests!r:.80}")
    return digests
