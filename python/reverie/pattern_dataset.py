"""`PatternDataset` under dm-reverb's import path."""

from reverie.datasets.patterns import PatternDataset, pattern_dataset_with_info

__all__ = ["PatternDataset", "pattern_dataset_with_info"]
