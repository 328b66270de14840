"""Series of numbers, and what follows them."""
