"""`reverb.trajectory_writer`: `TrajectoryWriter` and its columns."""

from reverie._native import HistoryColumn as _ColumnHistory
from reverie.writers import TrajectoryColumn, TrajectoryWriter

__all__ = ["TrajectoryColumn", "TrajectoryWriter", "_ColumnHistory"]
