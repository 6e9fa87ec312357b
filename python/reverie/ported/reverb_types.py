"""`reverb.reverb_types`: types for the annotations of ported code."""

from typing import Any

from reverie.info import TableInfo
from reverie.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Selector, Uniform

__all__ = ["Fifo", "Heap", "Lifo", "Prioritized", "SelectorType", "SpecNest", "TableInfo", "Uniform"]

#: Both heaps.
Heap = MaxHeap | MinHeap

#: Any selector.
SelectorType = Selector

#: A nest of specs: anything with `.shape` and `.dtype`.
SpecNest = Any
