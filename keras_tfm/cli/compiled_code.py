"""The code that XLA compiles, kept from one run of the command to the next.

Each shape of a batch costs seconds of compilation. TensorFlow can keep the code in a folder, but it ends a
training where a file there is damaged, and checks neither the code itself nor which processor it is for.
Therefore a run reads and writes a folder of its own. It begins with the kept files whose names agree with the
hash of their content; when the run ends, its new files join the kept ones. All is in
$XDG_CACHE_HOME/keras_tfm/xla, by default ~/.cache/keras_tfm/xla, in a folder for each processor, number of
cores, version of TensorFlow and set of flags; no more than `LIMIT` bytes, the oldest files go first.
KERAS_TFM_XLA_CACHE=0 turns it off.

Code is executed, so the folders must belong to the user, and nobody else may write to them.
"""

import atexit
import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator

from keras_tfm.cli.cache import cache_folder, is_on, make_private

LIMIT = 2**30  # bytes that are kept
FREE = 2**31  # bytes that must be free: where the disk is full, TensorFlow ends a training
SUFFIX = ".pb"  # of TensorFlow's files; to the name of a kept one the hash of its content is added
FIELDS = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")  # of a processor
VARIABLES = ("XLA_FLAGS", "TF_XLA_FLAGS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def keep_compiled_code() -> Callable[[], None] | None:
    """Let TensorFlow, which is not imported yet, find the code of earlier runs and keep this run's.

    Returns the function that adds this run's code to what is kept; it is called when the process ends. None
    where nothing is kept: if KERAS_TFM_XLA_CACHE or KERAS_TFM_JIT is 0, if TF_XLA_FLAGS name a folder, if
    less than `FREE` bytes are free, or if the folder or the processor's description cannot be read.

    Raises:
        ValueError: if KERAS_TFM_XLA_CACHE is neither 0 nor 1.
    """
    flags, home = os.environ.get("TF_XLA_FLAGS", ""), cache_folder("xla")
    if not is_on("KERAS_TFM_XLA_CACHE") or os.environ.get("KERAS_TFM_JIT") == "0":
        return None
    if "persistent_cache" in flags:
        return None
    if not re.fullmatch(r"[\w./@:+-]+", str(home)):  # TF_XLA_FLAGS are parted at spaces
        return None
    try:
        own, finish = _begin(home, home / _key())
    except OSError:
        return None
    added = f"--tf_xla_persistent_cache_directory={own} --tf_xla_persistent_cache_device_types=CPU"
    os.environ["TF_XLA_FLAGS"] = f"{flags} {added}".strip()
    atexit.register(finish)
    return finish


def _key() -> str:
    """A name for what compiled code depends on; OSError where the processor is not known."""
    lines = pathlib.Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0].splitlines()
    processor = [line.split() for line in lines if line.startswith(FIELDS)]
    if not processor:
        raise OSError("/proc/cpuinfo: expected the fields of a processor")
    parts = [
        processor,
        len(os.sched_getaffinity(0)),
        importlib.metadata.version("tensorflow"),
        [os.environ.get(name, "") for name in VARIABLES],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _begin(home: pathlib.Path, kept: pathlib.Path) -> tuple[pathlib.Path, Callable[[], None]]:
    """This run's folder, with the sound files of `kept` in it, and the function that ends it."""
    for folder in (home, kept):
        make_private(folder)
    if shutil.disk_usage(home).free < FREE:
        raise OSError(f"{home}: expected {FREE} free bytes")
    with _locked(home):
        for run in home.glob("*/run-*"):
            _remove_if_ended(run)
        own = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=kept))
        held = _lock(own)
        for path in kept.glob(f"*{SUFFIX}.*"):
            name, _, digest = path.name.rpartition(".")
            if _digest(path) == digest:
                os.link(path, own / name)
            else:
                path.unlink()
    process = os.getpid()

    def finish() -> None:
        if os.getpid() != process:  # a fork of it
            return
        atexit.unregister(finish)
        with contextlib.suppress(OSError), _locked(home):
            _keep(own, kept)
            shutil.rmtree(own)
            _remove_oldest(home)
        os.close(held)

    return own, finish


def _keep(own: pathlib.Path, kept: pathlib.Path) -> None:
    """Move what this run compiled to the kept files."""
    for path in own.glob(f"*{SUFFIX}"):
        if path.stat().st_nlink == 1 and not any(kept.glob(f"{path.name}.*")):
            path.replace(kept / f"{path.name}.{_digest(path)}")


def _remove_oldest(home: pathlib.Path) -> None:
    """Remove kept files until `LIMIT` bytes are left."""
    files = [(path.stat().st_mtime, path.stat().st_size, path) for path in home.glob(f"*/*{SUFFIX}.*")]
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= LIMIT:
            return
        path.unlink()
        total -= size


def _remove_if_ended(run: pathlib.Path) -> None:
    """Remove the folder of a run that was killed: nobody holds its lock."""
    with contextlib.suppress(BlockingIOError):
        held = _lock(run, fcntl.LOCK_NB)
        shutil.rmtree(run, ignore_errors=True)
        os.close(held)


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lock(folder: pathlib.Path, how: int = 0) -> int:
    """The descriptor of the lock of `folder`, which is held until it is closed or the process ends."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """A scope in which this process holds the lock of `folder`."""
    descriptor = _lock(folder)
    try:
        yield
    finally:
        os.close(descriptor)
