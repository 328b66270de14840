"""Models of poses and of surfaces of bodies."""
