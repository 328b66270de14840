"""What only makes things faster: the same numbers by another way, each file saying what was slow."""
