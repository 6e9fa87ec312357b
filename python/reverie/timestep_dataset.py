"""`TimestepDataset` under dm-reverb's import path."""

from reverie.trajectory_dataset import TimestepDataset

__all__ = ["TimestepDataset"]
