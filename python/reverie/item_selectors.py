"""`reverie.selectors`, under dm-reverb's import path."""

from reverie.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform

__all__ = ["Fifo", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Uniform"]
