"""How large models grew from 2017 to 2022.

    python docs/book/families.py

Draws families.png in a second: the numbers of weights that the authors gave.
"""

from keras_tfm.visualize import plots


def main(picture="families.png"):
    plots.save(plots.plot_sizes(), picture, dpi=100)


if __name__ == "__main__":
    main()
