"""TextGenerator's folder in transformers: the same tokens, the same continuations, and back."""

import numpy as np

from keras_tfm.tasks import TextGenerator
from tests.contract import randomise

TEXTS = ["So long and thanks for all the fish; it's 42, né? 日本\n\n  Yes." * 3, "The green witch arrived."]


def test_texts_go_on_as_in_transformers(tmp_path):
    import torch
    import transformers

    generator = TextGenerator.from_texts(TEXTS, "tiny", 320, dim=32, num_layers=2, num_heads=2, max_length=64)
    randomise(generator.model, seed=0)
    generator.save_huggingface(tmp_path / "hf")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    end_id = generator.tokenizer.end_id
    for text in TEXTS:  # of two documents, each begun by a start token
        ids = theirs(text)["input_ids"]
        assert ids == [
            end_id,
            *generator.tokenizer.tokenize([text]).to_list()[0],
        ]
        assert theirs.decode(ids, skip_special_tokens=True) == text
        prompt = torch.tensor([ids[:6]])
        for options, their_options in (({}, {}), ({"beam_size": 3}, {"num_beams": 3})):
            with torch.no_grad():
                expected = model.generate(
                    prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False,
                    pad_token_id=end_id, **their_options,
                )  # fmt: skip
            actual = generator.generate_ids(prompt.numpy(), max_new_tokens=20, **options)
            length = expected.shape[1]
            np.testing.assert_array_equal(actual[:, :length], expected.numpy())
            assert (actual[:, length:] == end_id).all()
    theirs.save_pretrained(tmp_path / "back")
    model.save_pretrained(tmp_path / "back")
    back = TextGenerator.from_huggingface(tmp_path / "back")
    assert back.generate(["The gr"]) == TextGenerator.from_huggingface(tmp_path / "hf").generate(["The gr"])
