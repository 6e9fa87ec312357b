"""Datasets: from a table to a training loop. Each takes a native client."""

from reverie.datasets.batches import Batches
from reverie.datasets.shares import Annealed

__all__ = ["Annealed", "Batches"]
