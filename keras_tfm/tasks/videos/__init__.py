"""Tasks that read videos, and say what happens in them."""
