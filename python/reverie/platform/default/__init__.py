"""Import paths that ported code uses."""

from reverie.platform.default import checkpointers

__all__ = ["checkpointers"]
