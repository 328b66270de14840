"""Tasks that read images, and say what they show and where."""
