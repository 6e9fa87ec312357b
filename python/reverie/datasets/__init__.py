"""Datasets: from a table to a training loop. Each takes a native client."""

from reverie.datasets.batches import Batches

__all__ = ["Batches"]
