"""`reverb.platform`: dm-reverb keeps its checkpointers below this name."""

from reverie import checkpointers as checkpointers_lib
from reverie.ported.platform import default

__all__ = ["checkpointers_lib", "default"]
