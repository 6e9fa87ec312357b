"""Import paths that ported code uses."""

from reverie.platform import checkpointers_lib, default

__all__ = ["checkpointers_lib", "default"]
