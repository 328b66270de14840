"""The examples: each is on its page, and does what it says on little data, here or in another test."""

import importlib
import json
import lzma
import re

import numpy as np
import pytest

from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples are not part of the wheel")


@pytest.fixture
def example(monkeypatch, tmp_path):
    """Imports a script by its name, for an empty folder."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module


def test_the_page_lists_every_example():
    page = (ROOT / "docs" / "guides" / "examples.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(\w+\.py)`", page, re.MULTILINE)) == sorted(
        path.name for path in EXAMPLES.glob("*.py")
    )


@pytest.mark.slow
def test_attention_and_convolution(example, capsys):
    module, rng = example("attention_and_convolution"), np.random.default_rng(0)
    module.filters(rng), module.receptive_fields(rng), module.one_as_the_other(rng), module.costs()
    lines = capsys.readouterr().out.splitlines()
    errors = [float(line.rpartition("error ")[2]) for line in lines if "error " in line]
    *exact, soft, medium, sharp = errors  # attention comes closer to a convolution the sharper it is
    assert max(*exact, sharp) < 1e-5 < medium < soft
    assert any("to 5" in line and line.split()[-3:] == ["5", "9", "13"] for line in lines)


@pytest.mark.slow
def test_image_data(example, capsys, tmp_path):
    rng, labels = np.random.default_rng(0), np.arange(200) % 10
    images = (rng.random((200, 8, 8)) * 60 + labels[:, None, None] * 19).astype("uint8")
    np.savez("images.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    example("image_data").main(tmp_path, [70], 60)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "transformer" in line]
    assert float(rows[0][-2]) > 40  # of seven classes


def test_cards_in_crowds_hide_half_of_each_other(example):
    module, digits = example("find_crowds"), np.ones((3, 8, 8))
    (images, boxes, labels, visible), (others, *_) = (module.crowds(digits, 20, seed) for seed in (0, 1))
    assert images.shape == (20, 96, 96) and (images != others).any()
    assert [len(each) for each in boxes] == [len(each) for each in labels]
    for each, shown in zip(boxes, visible, strict=True):
        pairs, parts = (np.array(x).reshape(-1, 2, 4) for x in (each, shown))
        ends = np.where(pairs[:, 1, :2] > pairs[:, 0, :2], pairs[:, 1, :2], pairs[:, 0, 2:])
        assert (parts[:, 0, 2:] <= ends).all()  # where the second card begins, or another pair before
        assert (parts[..., :2] >= pairs[..., :2]).all() and (parts[..., 2:] <= pairs[..., 2:]).all()
        assert len(pairs) and pairs.min() >= 0 and pairs.max() <= 96
        common = np.minimum(pairs[:, 0, 2:], pairs[:, 1, 2:]) - np.maximum(pairs[:, 0, :2], pairs[:, 1, :2])
        shares = common.prod(-1) / (pairs[:, 0, 2:] - pairs[:, 0, :2]).prod(-1)
        np.testing.assert_allclose(shares, 0.5, atol=0.03)  # an odd side is shifted by half of it, less 1/2


@pytest.mark.slow
def test_few_examples(example, capsys, tmp_path, monkeypatch):
    film_reviews(tmp_path)
    module = example("few_examples")
    monkeypatch.setattr(module, "COUNTS", (5,))
    monkeypatch.setattr(module, "DRAWS", 1)
    module.main(tmp_path, minutes=0.3)
    _, few, every = re.findall(r"(LSTM, random vectors) +([\d.]+) +([\d.]+)", capsys.readouterr().out)[0]
    assert float(few) >= 50 and float(every) >= 50


def film_reviews(folder):
    """SST-2's three files, of 24 reviews each."""
    words = (("bad", 0), ("good", 1))
    text = "".join(f"a {word} film number {i}\t{label}\n" for i in range(12) for word, label in words)
    (folder / "train.tsv.xz").write_bytes(lzma.compress(text.encode()))
    for name in ("dev.tsv", "test.tsv"):
        (folder / name).write_text(text)


def test_the_encoder_of_kerass_example_has_its_counts(example):
    module = example("three_readers")
    assert module.encoder().count_params() == 5_817_633
    assert module.encoder(32, positions=False).count_params() == 650_689


@pytest.mark.slow
def test_three_readers(example, capsys, tmp_path):
    film_reviews(tmp_path)
    example("three_readers").main(tmp_path, epochs=8)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["LSTM", "convolutions", "encoder"]
    assert all(float(row[-1]) > 60 for row in rows)


@pytest.mark.slow
def test_make_digits(example, capsys, tmp_path):
    example("make_digits").main(2, tmp_path / "digits")
    shares = re.findall(r"with guidance (\d\.\d): ([\d.]+) % of 200", capsys.readouterr().out)
    assert [guidance for guidance, _ in shares] == ["1.0", "2.0"]
    assert (tmp_path / "digits" / "digits.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_dates_lstm(example, capsys, tmp_path):
    example("dates_lstm").main(tmp_path / "dates", minutes=0.2)
    assert "answers all of them as the translator does" in capsys.readouterr().out


@pytest.mark.slow
def test_scitldr(example, capsys, tmp_path):
    record = {"source": ["The first finding.", "It is long."], "target": ["A finding."]}
    for name in ("train", "dev", "test"):
        lines = "".join(json.dumps(record) + "\n" for _ in range(8))
        (tmp_path / f"{name}.jsonl.xz").write_bytes(lzma.compress(lines.encode()))
    example("scitldr").main(tmp_path, minutes=0.1)
    said = capsys.readouterr().out
    assert re.findall(r"lead1_rougeL.: ([\d.]+)", said) == [
        "40.0",
        "40.0",
    ]  # of either way: "The" is not common


@pytest.mark.slow
def test_follow_shapes(example, capsys, tmp_path):
    module = example("follow_shapes")
    for epochs in (1, 2):  # the second one goes on
        module.main("transt", tmp_path / "run", count=10, tested=2, epochs=epochs, schedule="constant")
    assert capsys.readouterr().out.count("auc_of_a_still_box") == 2


@pytest.mark.slow
def test_draw_digits(example, capsys, tmp_path):
    example("draw_digits").main(tmp_path, 1, 100)
    shares, confidence = capsys.readouterr().out.splitlines()[-2:]
    assert 0.1 < float(confidence.split()[-1]) <= 1
    assert (tmp_path / "drawn.png").exists() and len(shares.split(",")) == 10


@pytest.mark.slow
def test_segment_moving_shapes(example, tmp_path):
    main = example("segment_moving_shapes").main
    measures = main(tmp_path / "run", minutes=None, count=32, tested=4, epochs=1, warmup_steps=1)
    assert measures.keys() >= {"ap", "ap50", "ap75"} and measures["videos"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("way", ["dall-e", "imagen"])
def test_draw_scenes(example, capsys, tmp_path, way):
    little = {"epochs": 1, "count": 64, "asked": 12, "warmup_steps": 1}
    example("draw_scenes").main(way, tmp_path, **little)
    lines = re.findall(r"^(.*): [\d.]+ % of 12 pictures are right", capsys.readouterr().out, re.MULTILINE)
    assert lines == ["any picture", "of the nearest sentence", way]
    assert (tmp_path / way / "scenes.png").exists()


@pytest.mark.slow
def test_draw_clothes(example, capsys, tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (60, 28, 28)).astype("uint8")
    np.savez("clothes.npz", images=images, labels=np.arange(60) % 3)
    module = example("draw_clothes")
    monkeypatch.setattr(module, "MADE", 12)
    ways, kept = ["gpt", "imagegpt", "dit", "vitgan"], []
    for _ in range(2):  # the second one repeats nothing
        rows = module.main("clothes.npz", "clothes.npz", ways, 1e-9, tmp_path / "runs")
        kept.append({path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/pictures.npz")})
    assert kept[0] == kept[1] and len(kept[0]) == 4
    assert [row["way"] for row in rows if "right" in row] == ["VQ + GPT", "ImageGPT", "DiT"]
    assert capsys.readouterr().out.count("ViTGAN") == 2
    assert (tmp_path / "runs" / "clothes.png").stat().st_size < 150_000


@pytest.mark.slow
def test_next_frames(example):
    measures = example("next_frames").main(minutes=None, count=24, tested=8, epochs=1)
    assert measures.keys() >= {"psnr", "rule_psnr"} and measures["videos"] == 8


@pytest.mark.slow
def test_fill_holes(example):
    measures = example("fill_holes").main(minutes=None, count=24, tested=8, epochs=1)
    assert measures.keys() >= {"psnr", "rule_psnr", "pooled", "still"} and measures["videos"] == 8


@pytest.mark.slow
def test_sums(example, capsys, tmp_path):
    module = example("sums")
    for resume in (False, True):  # the second one goes on
        module.main(["marked", "words"], 0.1, tmp_path, resume, count=200)
    said = capsys.readouterr().out
    assert len(re.findall(r"marked +\d digits", said)) == 14 and said.count("unseen") == 4
    assert len(re.findall(r"words +[\d.]+ %", said)) == 2


@pytest.mark.slow
def test_fold_chains(example, capsys):
    model = example("fold_chains").main(steps=10, count=40, tested=50, length=8)
    first, *_, last = (line for line in capsys.readouterr().out.splitlines() if "fape" in line)
    assert first.startswith("before") and last.startswith("after")
    assert model.output["positions"].shape[2:] == (None, 14, 3)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["hot-net", "hand-transformer"])
def test_lift_hands(model, example):
    assert example("lift_hands").main(model, epochs=6, count=2_000, tested=200) < 0.9


@pytest.mark.slow
def test_instance_digits(example, tmp_path):
    main = example("instance_digits").main
    measures = main(None, count=32, folder=tmp_path / "drawn", epochs=1, warmup_steps=1)
    assert measures.keys() >= {"ap", "ap50", "ap75"} and measures["images"] == 300


@pytest.mark.slow
def test_find_digits(example, capsys, tmp_path):
    example("find_digits").main("tsp-rcnn", minutes=0.02, pictures=40, out=tmp_path / "drawn")
    assert "'ap50'" in capsys.readouterr().out and len(list((tmp_path / "drawn").iterdir())) == 20


@pytest.mark.slow
def test_find_lanes(example, capsys, tmp_path):
    example("find_lanes").main(tmp_path / "run", epochs=1, roads=64)
    assert "'accuracy'" in capsys.readouterr().out


@pytest.mark.slow
def test_relate_shapes(example, capsys, tmp_path):
    example("relate_shapes").main(tmp_path / "run", epochs=1, pictures=64)
    assert "'r20'" in capsys.readouterr().out


@pytest.mark.slow
def test_furnish_rooms(example, capsys, tmp_path):
    shares = example("furnish_rooms").main(tmp_path, count=64, asked=20)
    assert all(0 <= share <= 100 for share in shares.values())
    lines = re.findall(r"^(.*): ([\d.]+) % of 20 rooms obey", capsys.readouterr().out, re.MULTILINE)
    assert len(lines) == 3 + len(shares) and ("the world, another seed", "100.0") in lines
    assert (tmp_path / "rooms_1.0.png").exists()


@pytest.mark.slow
def test_copy_textures(example):
    measures = example("copy_textures").main(minutes=None, size="tiny", squares=2, count=16, epochs=1)
    assert measures.keys() >= {"x4_psnr", "x4_rule_psnr", "x4_unrelated_psnr"} and measures["images"] == 16
