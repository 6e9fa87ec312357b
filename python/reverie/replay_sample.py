"""`ReplaySample` and `SampleInfo`, under dm-reverb's import path."""

from reverie.types import ReplaySample, SampleInfo

__all__ = ["ReplaySample", "SampleInfo"]
