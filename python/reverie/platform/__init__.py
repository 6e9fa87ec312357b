"""Import paths that ported code uses."""
