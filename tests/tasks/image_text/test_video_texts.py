"""Videos and texts: what a captioner and a matcher learn, keep, export and refuse, as they do of images."""

import keras
import numpy as np
import pytest

from keras_tfm import serving, tasks
from keras_tfm.data import ImageTexts, VideoTexts
from keras_tfm.heads import CrossMatcher, LanguageModel
from keras_tfm.models import GPT2, TimeSformer, VisionEncoderDecoder
from keras_tfm.tasks import (
    Captioner,
    CaptionerOptions,
    ImageTextMatcher,
    MatcherOptions,
    VideoCaptioner,
    VideoTextMatcher,
)
from tests.data.sources.made_videos import grey_frames, write_sound, write_video

SENTENCES = np.array(["the light is left", "the light is right"])
MOVES = np.array(["the light moves right", "the light moves left"])
TOWERS = {
    "image_size": 8, "patch_size": 4, "num_image_layers": 1, "image_dim": 16, "num_image_heads": 2,
    "image_intermediate_dim": 32, "num_text_layers": 1, "text_dim": 16, "num_text_heads": 2,
    "text_intermediate_dim": 32, "embedding_dim": 16, "num_frame_layers": 1,
}  # fmt: skip
SIZES = {"num_layers": 1, "dim": 16, "num_heads": 2}
ENCODER = {"stem": ((4, 2),), "tubelet_size": (4, 8, 8), "intermediate_dim": 16, **SIZES}
RATES = dict.fromkeys(("dropout", "attention_dropout", "embedding_dropout"), 0.0)
PARTS = {"image_size": 8, "encoder_config": ENCODER, "decoder_config": {**SIZES, **RATES}}


def pairs(size, seed=0, moves=False):
    """Videos (N, 6, 8, 8, 3) with a bright half; if it changes sides no still frame shows how."""
    rng = np.random.default_rng(seed)
    labels, videos = rng.integers(0, 2, size), rng.integers(0, 60, (size, 6, 8, 8, 3), "uint8")
    for video, label in zip(videos, labels, strict=True):
        later = 1 - label if moves else label
        video[:3, :, 4 * label : 4 * label + 4] += 180
        video[3:, :, 4 * later : 4 * later + 4] += 180
    return VideoTexts(videos, (MOVES if moves else SENTENCES)[labels].tolist())


def fresh_matcher(**options):
    keras.utils.set_random_seed(0)
    options = MatcherOptions("clip4clip", vocabulary_size=600, max_length=12, num_frames=4, **options)
    return ImageTextMatcher.make(pairs(12), options, TOWERS)


def fresh_captioner():
    keras.utils.set_random_seed(0)
    options = CaptionerOptions(encoder="vivit", vocabulary_size=300, max_length=32, num_frames=4)
    return Captioner.make(pairs(12), options, PARTS)


@pytest.fixture(scope="module")
def matcher():
    task = fresh_matcher()
    task.fit(pairs(160), pairs(8, seed=1), epochs=4, batch_size=4, learning_rate=6e-3)
    return task


@pytest.fixture(scope="module")
def captioner():
    task = fresh_captioner()
    task.fit(pairs(192, moves=True), pairs(8, 1, moves=True), epochs=8, batch_size=16, learning_rate=2e-2)
    return task


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table of two videos and their texts, one a file and one a folder of frames."""
    folder = tmp_path_factory.mktemp("videos")
    write_video(folder / "up.mp4", grey_frames([60, 90, 110, 130, 150, 180], (16, 16)))
    (folder / "down").mkdir()
    for number, frame in enumerate(grey_frames([180, 150, 130, 110, 90, 60], (16, 16))):
        keras.utils.save_img(folder / "down" / f"{number}.png", frame, scale=False)
    (folder / "pairs.tsv").write_text("up.mp4\tthe light moves right\ndown\tthe light moves left\n")
    return folder


def test_a_matcher_finds_the_text_of_a_video(matcher):
    assert type(matcher) is VideoTextMatcher and matcher.video_shape == (4, 8, 8, 3)
    asked = pairs(60, seed=2)
    scores = matcher.similarity(asked.videos, SENTENCES.tolist())
    assert np.mean(SENTENCES[scores.argmax(1)] == asked.texts) > 0.9
    vectors = matcher.encode_videos(asked.videos[:3])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, atol=1e-5)
    chances = matcher.probabilities(vectors, matcher.encode_texts(SENTENCES.tolist()))
    np.testing.assert_array_equal(chances.argmax(1), scores[:3].argmax(1))


def test_a_captioner_says_what_no_still_frame_shows(captioner):
    assert type(captioner) is VideoCaptioner
    measures = captioner.evaluate(pairs(60, 2, moves=True))
    assert measures["exact_match"] > 90 and measures["pairs"] == 60


@pytest.mark.parametrize("name", ["matcher", "captioner"])
def test_it_is_kept_exported_and_reads_files(name, files, tmp_path, request):
    task = request.getfixturevalue(name)
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert type(again) is type(task) and again.config == task.config
    clips = pairs(3, seed=3).videos[:, :4]
    task.export(tmp_path / "served")
    served = serving.load(tmp_path / "served")(list(clips))
    if name == "matcher":
        np.testing.assert_allclose(served["vector"], again.predict(clips), atol=1e-5)
    else:
        assert served["text"].tolist() == again.predict(clips)
    with pytest.raises(ValueError, match=r"row 0: expected a clip of the shape \(4, 8, 8, 3\), got \(6, 8"):
        serving.load(tmp_path / "served")(list(pairs(2).videos))
    read = task.read_examples([files / "pairs.tsv"])
    assert type(read) is VideoTexts and read.texts == ["the light moves right", "the light moves left"]
    as_arrays = task.predict(list(np.asarray(read.videos)))
    found = task.predict([str(files / "up.mp4"), files / "down"])
    np.testing.assert_array_equal(np.array(found), np.array(as_arrays))


def test_blocks_over_both_compare_each_pair_by_itself():
    task = fresh_matcher(cross_layers=1)
    assert isinstance(task.model, CrossMatcher)
    videos, texts = pairs(5)
    whole = task.similarity(videos, texts)
    alone = [[task.similarity(videos[i : i + 1], [text])[0, 0] for text in texts[:2]] for i in range(2)]
    np.testing.assert_allclose(whole[:2, :2], alone, atol=1e-5)
    assert np.ptp(whole) > 1e-4 and whole.shape == (5, 5)
    loss = task.objective(task.training)["loss"]
    logits = np.array([[2.0, 0.0], [1.0, 1.0]], "float32")
    rows, columns = (np.log(np.exp(logits).sum(axis)) for axis in (1, 0))
    np.testing.assert_allclose(loss(np.zeros(2), logits), np.mean((rows + columns) / 2 - [2, 1]), rtol=1e-6)
    for ask in (task.predict, task.encode_videos, lambda videos: task.encode_texts(texts)):
        with pytest.raises(ValueError, match="has no vectors to predict, search or export"):
            ask(videos)


@pytest.mark.slow
def test_blocks_over_both_learn_and_are_kept(tmp_path):
    task = fresh_matcher(cross_layers=1)
    task.fit(pairs(160), pairs(8, seed=1), epochs=8, batch_size=4, learning_rate=3e-3)
    asked = pairs(60, seed=2)
    scores = task.similarity(asked.videos, SENTENCES.tolist())
    assert np.mean(SENTENCES[scores.argmax(1)] == asked.texts) > 0.9
    assert task.evaluate(asked)["image_recall_5"] == 1
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run").similarity(asked.videos, SENTENCES.tolist())
    np.testing.assert_allclose(again, scores, atol=1e-5)


def test_what_it_refuses(tmp_path, files):
    task = fresh_captioner()
    videos, texts = pairs(3)
    write_sound(tmp_path / "sound.mp4")
    write_video(tmp_path / "one.mp4", grey_frames([9]))
    for wrong, message in (
        ((videos, texts[:2]), "`texts` must be one for each of 3 videos; there are 2"),
        ((videos[:0], []), "`videos` must not be empty"),
        ((videos[..., :1], texts), r"`videos`, row 0: expected \(T, H, W, 3\), got \(6, 8, 8, 1\)"),
        ((np.zeros((3, 8, 8)), texts), "`videos`, row 0: expected a video"),
    ):
        with pytest.raises(ValueError, match=message):
            task.fit(wrong)
    for name, message in (("sound.mp4", "expected a video"), ("one.mp4", "two frames or more, got one")):
        with pytest.raises(ValueError, match=message):
            task.generate([tmp_path / name])
    (tmp_path / "pairs.tsv").write_text("sound.mp4\ta sound\n")
    with pytest.raises(ValueError, match=r"sound\.mp4: expected a video"):
        task.read_examples([tmp_path / "pairs.tsv"])
    (tmp_path / "pairs.tsv").write_text("../up.mp4\tup\n")
    with pytest.raises(ValueError, match="expected the path of a video inside"):
        task.read_examples([tmp_path / "pairs.tsv"])
    with pytest.raises(ValueError, match=r"has only `encoder` ViT, .*TimeSformer; it is 'ViViT'"):
        task.save_huggingface(tmp_path / "theirs")
    with pytest.raises(TypeError, match="transformers has no CLIP4Clip of videos and texts"):
        fresh_matcher().save_huggingface(tmp_path / "theirs")
    with pytest.raises(ValueError, match="`num_frames` must be left out: 'vit' reads images"):
        CaptionerOptions(num_frames=4).base()
    with pytest.raises(ValueError, match="`num_frames` must be left out: 'clip' reads images"):
        MatcherOptions(num_frames=4).base()
    with pytest.raises(ValueError, match="`cross_layers` must be 0 for 'clip'"):
        MatcherOptions(cross_layers=2).base()
    images = ImageTexts(videos[:, 0], texts)
    small = {name: x for name, x in TOWERS.items() if name != "num_frame_layers"}
    options = MatcherOptions(vocabulary_size=600, max_length=12)
    with pytest.raises(ValueError, match="`frame_step` must be left out: the model reads images, no videos"):
        ImageTextMatcher.make(images, options, small, frame_step=2)


def test_what_is_read_before_a_model_is_made():
    options = CaptionerOptions(encoder="vivit", num_frames=4)
    reading = Captioner.reading(options, {"image_size": 8, "encoder_config": ENCODER})
    assert reading == {"video_shape": (4, 8, 8, 3)}
    assert options.config({"encoder_config": ENCODER}).encoder_config["num_frames"] == 4
    assert MatcherOptions("clip4clip", num_frames=5).base().num_frames == 5
    assert Captioner.reading(CaptionerOptions(), {}) == {"image_shape": (32, 32, 3)}


def test_folders_of_transformers(tmp_path):
    task, sizes = fresh_captioner(), {"num_frames": 4, "image_size": 8, "patch_size": 4, **SIZES}
    keras.utils.set_random_seed(0)
    encoder = TimeSformer.from_size("B/16", intermediate_dim=32, **sizes)
    tokens = {"vocabulary_size": task.tokenizer.vocabulary_size, "max_length": 32}
    decoder = GPT2.from_size("tiny", **tokens, **SIZES)
    task = Captioner(LanguageModel(VisionEncoderDecoder.around(encoder, decoder)), task.tokenizer)
    task.save_huggingface(tmp_path / "theirs")
    again = tasks.from_huggingface(tmp_path / "theirs")
    assert type(again) is VideoCaptioner and again.video_shape == (4, 8, 8, 3)
    videos = pairs(3).videos
    asked = {"videos": videos[:, :4], "decoder_token_ids": np.array([[0, 5, 7]] * 3)}
    np.testing.assert_allclose(again(asked), task(asked), atol=1e-5)
    assert again.generate(videos, max_new_tokens=3) == task.generate(videos, max_new_tokens=3)
