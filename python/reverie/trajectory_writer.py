"""`TrajectoryWriter`, under dm-reverb's import path."""

from reverie.writers import TrajectoryColumn, TrajectoryWriter

__all__ = ["TrajectoryColumn", "TrajectoryWriter"]
