"""Whatever is wrong with what is typed or read: one line on standard error, exit code 2, soon, no debris."""

import json
import shutil
import time

import pytest

from keras_tfm.cli import main
from tests.edges import (
    bad_identities,
    bad_images,
    bad_inputs,
    bad_lanes,
    bad_matching,
    bad_points,
    bad_poses,
    bad_ratings,
    bad_records,
    bad_vectors,
    bad_videos,
)

FILES = (
    bad_identities,
    bad_images,
    bad_inputs,
    bad_lanes,
    bad_matching,
    bad_points,
    bad_poses,
    bad_ratings,
    bad_records,
    bad_vectors,
    bad_videos,
)
BAD = [bad for file in FILES for bad in file.BAD]

SECONDS = 10  # of CPU time; what makes no model takes some milliseconds


def prepared(bad, run_of, folder, out):
    """The arguments of a bad input, after its files are made in `folder`."""
    run = folder / "run"
    if bad.of:
        shutil.copytree(run_of(bad.of), run)
    for name, content in bad.files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        content = content() if callable(content) else content
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    if bad.entry:
        config = json.loads((run / "config.json").read_text())
        place = config
        for key in bad.entry[:-1]:
            place = place[key]
        place[bad.entry[-1]] = bad.value
        (run / "config.json").write_text(json.dumps(config))
    return [word.format(folder=folder, run=run, out=out) for word in bad.arguments.split()]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_bad_input(bad, run_of, tmp_path, capsys):
    out = tmp_path.with_name(f"{tmp_path.name}-out")  # beside what is read
    arguments = prepared(bad, run_of, tmp_path, out)
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()  # what making the task said
    start = time.process_time()
    with pytest.raises(SystemExit) as end:
        main(arguments)
    seconds = time.process_time() - start
    output = capsys.readouterr()
    assert end.value.code == 2, output.err
    *said, error = output.err.splitlines()
    assert bad.message in error and len(error) < 1_000 and not output.out
    assert not said, said
    assert sorted(tmp_path.rglob("*")) == before and not out.exists()
    assert seconds < SECONDS
