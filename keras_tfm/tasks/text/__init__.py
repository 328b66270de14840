"""Tasks that read texts: they label, fill, compare and write them."""
