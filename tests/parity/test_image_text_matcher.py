"""Live: whole folders of CLIP and SigLIP that transformers writes: images and texts to probabilities."""

import io
import json

import numpy as np
import PIL.Image
import pytest
import torch
import transformers

from keras_tfm import tasks
from keras_tfm.tasks import ImageTextMatcher
from tests.parity.images import draw_weights
from tests.parity.test_clip import draw_config
from tests.parity.test_clip_tokenizers import LINES, clip, siglip  # noqa: F401  (fixtures)

pytestmark = pytest.mark.parity
TEXTS = ["A photo of a cat.", "It's two dogs, 3 birds!", "", "word " * 90]
SIDES = {"shortest_edge": 24}


def pictures():
    """Files of several sizes and kinds, each a picture of waves."""
    files = []
    for kind, height, width in (("PNG", 40, 31), ("JPEG", 25, 60), ("PNG", 24, 24)):
        y, x = np.mgrid[:height, :width]
        waves = [np.sin(x / (3 + i) + y / 7) * 100 + 128 for i in range(3)]
        buffer = io.BytesIO()
        PIL.Image.fromarray(np.stack(waves, -1).astype("uint8")).save(buffer, kind)
        files.append(buffer.getvalue())
    return files


def theirs_of(kind, tokenizer_size, images, length):
    rng = np.random.default_rng(0)
    config = draw_config(rng, kind)
    image, text = config.vision_config, config.text_config
    image.image_size, image.patch_size, image.num_channels = images, 8, 3
    text.vocab_size, text.max_position_embeddings = tokenizer_size, length
    text.eos_token_id = tokenizer_size - 1
    for tower in (image, text):
        tower.hidden_size, tower.num_attention_heads, tower.intermediate_size = 16, 2, 24
    text.projection_size = 16
    model = kind(type(config)(text_config=text.to_dict(), vision_config=image.to_dict(), projection_dim=8))
    draw_weights(rng, model)
    return model.eval()


def check(folder, model, processor, padded):
    files = pictures()
    images = [PIL.Image.open(io.BytesIO(file)).convert("RGB") for file in files]
    length = model.config.text_config.max_position_embeddings
    options = {"padding": "max_length" if padded else True, "truncation": True, "max_length": length}
    inputs = processor(text=TEXTS, images=images, return_tensors="pt", **options)
    assert ("attention_mask" in inputs) != padded
    with torch.no_grad():
        logits = model(**inputs).logits_per_image.numpy()
    ours = ImageTextMatcher.from_huggingface(folder)
    found = ours.probabilities(ours.encode_images(files), ours.encode_texts(TEXTS))
    expected = torch.from_numpy(logits)
    expected = (torch.sigmoid(expected) if padded else torch.softmax(expected, -1)).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3)  # JPEG, and rounding of 8 bits
    np.testing.assert_allclose(found[::2], expected[::2], atol=2e-4)  # PNG
    return ours


def test_clips(clip, tmp_path):  # noqa: F811
    ids = {token: i for i, token in enumerate(clip.tokens)}
    merges = [tuple(merge.split(" ")) for merge in clip.content["merges"]]
    tokenizer = transformers.CLIPTokenizer(vocab=ids, merges=merges)
    model = theirs_of(transformers.CLIPModel, len(ids), 24, 16)
    processor = transformers.CLIPProcessor(
        transformers.CLIPImageProcessorPil(size=SIDES, crop_size={"height": 24, "width": 24}), tokenizer
    )
    model.save_pretrained(tmp_path / "theirs")
    processor.save_pretrained(tmp_path / "theirs")
    ours = check(tmp_path / "theirs", model, processor, padded=False)
    ours.save_huggingface(tmp_path / "ours")
    back = transformers.CLIPProcessor.from_pretrained(tmp_path / "ours")
    model = transformers.CLIPModel.from_pretrained(tmp_path / "ours").eval()
    check(tmp_path / "ours", model, back, padded=False)
    assert type(tasks.from_huggingface(tmp_path / "ours")) is ImageTextMatcher


def test_siglips(siglip, tmp_path):  # noqa: F811
    folder, ours = siglip
    # As the published folders say it: padding is read as all else is.
    tokenizer = transformers.SiglipTokenizer.from_pretrained(folder, model_input_names=["input_ids"])
    model = theirs_of(transformers.SiglipModel, ours.vocabulary_size, 24, 16)
    size = {"height": 24, "width": 24}
    processor = transformers.SiglipProcessor(transformers.SiglipImageProcessorPil(size=size), tokenizer)
    model.save_pretrained(tmp_path / "theirs")
    processor.save_pretrained(tmp_path / "theirs")
    assert json.loads((tmp_path / "theirs" / "config.json").read_text())["model_type"] == "siglip"
    task = check(tmp_path / "theirs", model, processor, padded=True)
    task.save_huggingface(tmp_path / "ours")
    back = transformers.SiglipProcessor.from_pretrained(tmp_path / "ours")
    check(tmp_path / "ours", transformers.SiglipModel.from_pretrained(tmp_path / "ours").eval(), back, True)
