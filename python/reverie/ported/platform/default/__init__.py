"""`reverb.platform.default`: dm-reverb keeps its checkpointers below this name."""

from reverie import checkpointers

__all__ = ["checkpointers"]
