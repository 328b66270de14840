"""Models of clouds of points."""
