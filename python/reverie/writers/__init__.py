"""Writers: they turn the steps of an environment into items in a table. Each takes a native client."""

from reverie.writers.episode import EpisodeWriter
from reverie.writers.legacy import Writer
from reverie.writers.sequence import Head, SequenceWriter, Tail
from reverie.writers.structured import StructuredWriter
from reverie.writers.trajectory import TrajectoryColumn, TrajectoryWriter
from reverie.writers.transition import Autoreset, TransitionWriter
from reverie.writers.vector import VectorWriter

__all__ = [
    "Autoreset",
    "EpisodeWriter",
    "Head",
    "SequenceWriter",
    "StructuredWriter",
    "Tail",
    "TrajectoryColumn",
    "TrajectoryWriter",
    "TransitionWriter",
    "VectorWriter",
    "Writer",
]
