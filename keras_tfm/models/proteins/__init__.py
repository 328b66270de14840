"""Models of proteins: from sequences to positions of atoms."""
