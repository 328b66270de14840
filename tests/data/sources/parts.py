"""What is read to be answered, as columns."""


def parts(inputs):
    """The examples and their places, two lists."""
    found = list(inputs)
    return [example for example, _ in found], [place for _, place in found]
