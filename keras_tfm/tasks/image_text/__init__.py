"""Tasks that learn from images and the texts that belong to them."""
