r"""What pre-training by masked words looks at: three demonstrations, and a BERT pre-trained on your text.

    python examples/masked_words.py               the demonstrations
    python examples/masked_words.py FILE…         and 30 minutes of pre-training on documents: text, a
                                                  paragraph a line, blank lines between documents

The demonstrations take two minutes on 2 busy cores. Expected: the figure's "So [MASK] and [MASK] for all
apricot fish" with its three targets, then three drawings; a vector of "bank" that knows what follows, where a
decoder's cannot; and for "I am ___ tired" the word "very" before "because I did not sleep", "not" before
"because I slept well": what stands on the left is the same.

Pre-training a small BERT (4 layers 256 wide) on 32,183 Wikipedia articles for 30 minutes, sharing 2 cores
with other work, took 3,044 steps of 32 rows of 64 tokens. On 500 articles held out masked words were 15.5 %
right (the commonest word 4.5 %) at 5.94 nats (unigrams 6.47), pairs of texts 64 % (50 %). As a command:

    keras-tfm train masked-lm --data wiki.txt.xz --out runs/bert --max-length 64 --batch-tokens 2048 \
        --minutes 30
    echo "The [MASK] of the river" | keras-tfm predict runs/bert
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.data import NOT_CHOSEN, BERTTokenizer, Masking, read_documents
from keras_tfm.models import BERT, GPT2
from keras_tfm.tasks import MaskedLanguageModel, MaskedLanguageModelConfig

SMALL = {"num_layers": 2, "dim": 64, "num_heads": 4, "intermediate_dim": 128}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer_of(lines):
    """A vocabulary of the words in `lines`."""
    words = {word for line in lines for word in line.replace(",", " ,").split()}
    return BERTTokenizer([*SPECIAL, *sorted(words)], lowercase=False)


def fish():
    """The figure: of three chosen words two are masked, and one is replaced; then three drawings."""
    line = "So long and thanks for all the fish"
    tokenizer = tokenizer_of([line, "apricot"])
    ids = {word: i for i, word in enumerate(tokenizer.vocabulary)}
    token_ids = tokenizer.tokenize([line]).to_tensor()
    masking = Masking.of(tokenizer, share=3 / 8)
    replacements = np.full(token_ids.shape, NOT_CHOSEN)
    replacements[0, [1, 3, 6]] = [ids["[MASK]"], ids["[MASK]"], ids["apricot"]]
    drawn = [masking.draw(token_ids, (seed, 0), num_positions=3) for seed in range(3)]
    for choices in (replacements, *drawn):
        inputs, labels, _ = masking.replace(token_ids, choices)
        words = " ".join(tokenizer.vocabulary[i] for i in inputs["token_ids"][0])
        places = inputs["mask_positions"][0].numpy().tolist()
        targets = [tokenizer.vocabulary[i] for i in labels[0]]
        print(f"{words:60} -> {dict(zip(places, targets, strict=True))}")
        assert [line.split()[place] for place in places] == targets


def bank():
    """Does the vector of "bank" know whether a river or a city follows?"""
    lines = [
        "The bank of the river was very green and shady",
        "The bank of the city was very green and shady",
    ]
    tokenizer = tokenizer_of(lines)
    token_ids = tokenizer.tokenize(lines).to_tensor()
    sizes = {**SMALL, "vocabulary_size": tokenizer.vocabulary_size}
    bert, gpt = BERT.from_size("tiny", **sizes), GPT2.from_size("tiny", **sizes)
    for name, model in (("bidirectional", bert), ("from the left alone", gpt)):
        first, second = model({"token_ids": token_ids})["sequence_output"].numpy()[:, 1]
        difference = np.abs(first - second).max()
        print(f'"bank" before river or city, {name}: differs by {difference:.1e}')
        assert (difference > 1e-4) == (model is bert)


def tired():
    """I am ___ tired: which word fills the blank depends on what comes after it."""
    why = {"very": "because I did not sleep last night", "not": "because I slept well last night"}
    documents = [f"I am {word} tired, {reason}" for word, reason in why.items()] * 50
    keras.utils.set_random_seed(0)
    config = MaskedLanguageModelConfig(24, pairs="none")
    task = MaskedLanguageModel.from_tokenizer(
        tokenizer_of(documents), "tiny", config, **SMALL, dropout=0.0, attention_dropout=0.0
    )
    task.fit(documents, epochs=40, batch_tokens=480, learning_rate=3e-3, patience=40)
    for word, reason in why.items():
        (blank,) = task.candidates([f"I am [MASK] tired, {reason}"], count=2)[0]
        print(f"I am ___ tired, {reason}:", ", ".join(f"{piece} {chance:.2f}" for piece, chance in blank))
        assert blank[0][0] == word


def pretrain(files):
    documents = read_documents(files)
    held = min(500, len(documents) // 10)
    if held < 2:
        sys.exit(f"expected 20 documents or more, with blank lines between them; got {len(documents)}")
    config = MaskedLanguageModelConfig(max_length=64)
    task = MaskedLanguageModel.from_documents(documents, "mini", config=config)
    task.fit(documents[2 * held :], documents[:held], minutes=30, batch_tokens=2048, run="runs/bert")
    print(task.evaluate(documents[held : 2 * held]))
    print(task.predict(["The [MASK] of the river was very green and shady."]))


if __name__ == "__main__":
    tf.get_logger().setLevel("ERROR")
    fish()
    bank()
    tired()
    if len(sys.argv) > 1:
        pretrain(sys.argv[1:])
