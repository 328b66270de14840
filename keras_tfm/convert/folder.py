"""The folder of a checkpoint: config.json, and weights in one safetensors file or in indexed shards."""

import contextlib
import functools
import json
import os
import pathlib
import re
import shlex

from keras_tfm.configs import brief, meant
from keras_tfm.training.folder import MARK, Path, new_folder
from keras_tfm.training.safetensors import CheckpointError, read_json, read_tensors
from keras_tfm.version import __version__

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TOKENIZER = "tokenizer_config.json"
MOST_TOKENS = 2**20  # that a text may have; more stands for no limit
HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
# {how the names of files of weights that are not read end: (who writes safetensors of them, their argument)}
CONVERTED = {
    ".bin": ("transformers and torch", ""),
    ".bin.index.json": ("transformers and torch", ""),
    ".h5": ("transformers 4, torch and tensorflow", ", from_tf=True"),
    ".h5.index.json": ("transformers 4, torch and tensorflow", ", from_tf=True"),
    ".msgpack": ("transformers 4, torch and flax", ", from_flax=True"),
    ".msgpack.index.json": ("transformers 4, torch and flax", ", from_flax=True"),
}


def find_folder(name: Path) -> pathlib.Path:
    """The folder `name` or, if there is none, the local cache's folder of the hub id `name` ("owner/model").

    A model of which the cache is not known to hold all files is downloaded, unless `HF_HUB_OFFLINE=1` is set;
    where the hub cannot be asked, what is there is read. Raises FileNotFoundError if there is neither, and
    for a path: a name that ends with a slash, has more than one inside, or begins with a folder that is here.

    >>> import os
    >>> os.mkdir("model")
    >>> keras_tfm.convert.find_folder("model").name
    'model'
    """
    folder = pathlib.Path(name)
    if folder.is_dir():
        return folder
    refuse_missing(name)
    import huggingface_hub

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model"]
    download = functools.partial(huggingface_hub.snapshot_download, str(name), allow_patterns=patterns)
    model = None
    with contextlib.suppress(Exception):  # it is not in the cache, damaged, or no hub id
        cached = pathlib.Path(download(local_files_only=True))
        if holds_model(cached):
            model = cached
            # It raises where only single files were fetched, as transformers does: others may be missing.
            huggingface_hub.get_cached_repo_tree(str(name))
            return cached
    try:
        return pathlib.Path(download())
    except Exception as error:  # of the network, of the hub, and of the cache
        if model is not None:
            return model
        reason = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        near = _near(folder)
        problem = f"{name}: there is no such folder{near}, nor does the Hugging Face hub give such a model"
        raise FileNotFoundError(f"{problem} ({reason})") from None


def refuse_missing(name: Path) -> None:
    """Raise FileNotFoundError unless `name` is a folder, or may be a hub id."""
    path = pathlib.Path(name)
    if path.is_dir():
        return
    if path.exists():
        raise FileNotFoundError(f"{name}: expected a folder, got a file")
    is_path = not HUB_ID.fullmatch(str(name))
    if is_path or (path.parent.name and path.parent.is_dir()):
        why = "" if is_path else f"; the hub is not asked, since {path.parent} is a folder here"
        raise FileNotFoundError(f"{name}: there is no such folder{_near(path)}{why}")


def _near(path):
    """ " (did you mean …?)", with a folder whose name the first part of `path` that is missing resembles."""
    missing = next(part for part in (*reversed(path.parents), path) if not part.is_dir())
    folders = sorted(folder.name for folder in missing.parent.glob("*/"))
    return meant(missing.name, folders, str(missing).removesuffix(missing.name))


def holds_model(folder):
    """Whether a hub's cached `folder` has config.json and all weights; other programs cache single files.

    Raises CheckpointError for a malformed index, and for links that lead elsewhere.
    """
    is_sharded = not (folder / WEIGHTS).exists() and (folder / INDEX).exists()
    weights = _shard_of(folder).values() if is_sharded else [WEIGHTS]
    return all(inside(folder, name).exists() for name in ("config.json", *weights))


def read_config(folder):
    """The dictionary in config.json."""
    return read_json(inside(folder, "config.json"))


def read_max_length(folder):
    """How many tokens of a text the tokenizer in `folder` reads, special ones included; None if it sets no
    limit, for which `transformers` writes 1e30.
    """
    if not os.path.lexists(folder / TOKENIZER):
        return None
    path = inside(folder, TOKENIZER)
    entries = read_json(path)
    name = "model_max_length" if "model_max_length" in entries else "max_len"  # as files of 2019 say it
    if entries.get(name) is None:
        return None
    length = number_of_tokens(entries[name], name, path)
    return None if length > MOST_TOKENS else int(length)


def number_of_tokens(value, name, path):
    """The `value` of an entry, if it leaves room for a token between the special ones; CheckpointError if
    not.
    """
    if type(value) not in (int, float) or not value >= 3:
        raise CheckpointError(path, name, "a number of at least 3 tokens", brief(value))
    return value


def max_length_writer(max_length):
    """A function that notes in a folder with a tokenizer how many tokens of a text are read."""

    def write(folder):
        path = folder / TOKENIZER
        entries = {**(read_json(path) if path.exists() else {}), "model_max_length": max_length}
        path.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", "utf-8")

    return write


def weight_files(folder):
    """The file of weights in `folder`, or the index of its shards, and {name: path} of the files that hold
    them; CheckpointError if there are none.
    """
    if os.path.lexists(path := folder / WEIGHTS):
        return path, {WEIGHTS: inside(folder, WEIGHTS)}
    if not os.path.lexists(path := folder / INDEX):
        expected = f"{WEIGHTS} or {INDEX} (nothing pickled is read)"
        raise CheckpointError(folder, None, expected, _other_weights(folder))
    return path, {name: inside(folder, name) for name in sorted(set(_shard_of(folder).values()))}


def read_weights(folder):
    """All weights in `folder`, {key: array}, and the file that lists them; CheckpointError for any fault."""
    path, files = weight_files(folder)
    if path.name == WEIGHTS:
        return read_tensors(files[WEIGHTS])[0], path
    shard_of, tensors = _shard_of(folder), {}
    for name, shard_path in files.items():
        shard, _ = read_tensors(shard_path)
        listed = {key for key, file in shard_of.items() if file == name}
        for key in sorted(listed ^ shard.keys()):
            where = ("in it", "only in the index") if key in listed else ("in the index", "only in the shard")
            raise CheckpointError(folder / name, key, f"the weight {where[0]}", where[1])
        tensors.update(shard)
    return tensors, path


def write_folder(folder, overwrite, entries, tensors, writers=()):
    """Write config.json with these `entries`, the `tensors`, and what the `writers`, functions of a folder,
    add, to a new `folder`.
    """
    from keras_tfm.training.weights import write_tensors  # which imports Keras: reading needs none

    with new_folder(folder, overwrite) as work:
        text = json.dumps({**entries, MARK: __version__}, indent=2, ensure_ascii=False)
        (work / "config.json").write_text(text + "\n", "utf-8")
        write_tensors(tensors, work / WEIGHTS, {"format": "pt"})
        for write in writers:
            write(work)


def _other_weights(folder):
    """What a `folder` holds in place of safetensors, with the command that writes them where there is one."""
    names = sorted(file.name for file in folder.iterdir())
    kinds = ", ".join(names[:9]) or "nothing"
    ending = next((end for end in CONVERTED if any(name.endswith(f"_model{end}") for name in names)), None)
    if ending is None:
        return kinds
    packages, argument = CONVERTED[ending]
    model = "AutoModel"
    with contextlib.suppress(CheckpointError):
        named = read_config(folder).get("architectures")
        if isinstance(named, list) and named and str(named[0]).isidentifier():
            model = named[0]
    place = str(folder)
    code = (
        f"import transformers as t; t.{model}.from_pretrained({place!r}{argument}).save_pretrained({place!r})"
    )
    return f"{kinds}; where {packages} are installed, this adds {WEIGHTS}: python -c {shlex.quote(code)}"


def _shard_of(folder):
    """{key: the name of its shard}, from the index in `folder`."""
    shard_of = read_json(inside(folder, INDEX)).get("weight_map")
    if not isinstance(shard_of, dict) or not all(isinstance(name, str) for name in shard_of.values()):
        raise CheckpointError(folder / INDEX, "weight_map", "names of shards by key", repr(shard_of)[:80])
    return shard_of


def inside(folder, name):
    """The path of the file `name` in `folder`; CheckpointError if it is outside of it.

    In a hub cache, files are links to another place under the same `models--owner--name`; these are followed.
    """
    if pathlib.PurePath(name).name != name or name in ("", "..") or "\\" in name or "\0" in name:
        raise CheckpointError(folder, name[:200], "a plain file name", "a path")
    home = folder.resolve()
    for place in (home, *home.parents):
        if place.parent.name == "snapshots" and place.parent.parent.name.startswith("models--"):
            home = place.parent.parent
    try:
        path = (folder / name).resolve()
    except (OSError, RuntimeError) as error:  # circular links
        raise CheckpointError(folder / name, None, "a file", str(error)) from None
    if not path.is_relative_to(home):
        raise CheckpointError(folder / name, None, f"a file inside {home}", f"a link to {path}")
    return path
