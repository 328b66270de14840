"""Tasks for clouds of points."""
