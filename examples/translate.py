"""English to German on Multi30k's captions, from the raw files to a served SavedModel.

    python examples/translate.py DIR       DIR holds train, val and test_2016_flickr .en.gz and .de.gz

Takes RESULT_TIME on 2 cores. Expected: RESULT_BLEU.

The same by the command line, as measured:

    COMMAND
"""

import pathlib
import sys

from keras_tfm.data import read_pairs
from keras_tfm.tasks import Translator


def main(folder, run="runs/multi30k"):
    folder = pathlib.Path(folder)
    train, valid, test = (
        read_pairs([folder / f"{name}.en.gz", folder / f"{name}.de.gz"])
        for name in ("train", "val", "test_2016_flickr")
    )
    translator = Translator.from_pairs(train, size="small", dropout=0.3)
    translator.fit(train, valid, epochs=30, run=run)
    print(translator.evaluate(test))
    for source, answer in zip(test.sources[:5], translator.generate(test.sources[:5]), strict=True):
        print(source, "->", answer)
    translator.export("saved_models/multi30k")


if __name__ == "__main__":
    main(sys.argv[1])
