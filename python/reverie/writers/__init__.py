"""Writers: from an environment's steps to items in a table. Each takes a native client."""

from reverie.writers.legacy import Writer
from reverie.writers.structured import StructuredWriter
from reverie.writers.trajectory import TrajectoryColumn, TrajectoryWriter
from reverie.writers.transition import Autoreset, TransitionWriter

__all__ = ["Autoreset", "StructuredWriter", "TrajectoryColumn", "TrajectoryWriter", "TransitionWriter", "Writer"]
