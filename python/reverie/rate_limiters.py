"""Rate limiters: whether a sample or an insert may proceed, decided by counts of inserts, samples and deletes.

With `size = inserts - deletes`:

- n samples are admitted while `size >= min_size_to_sample` and
  `inserts * samples_per_insert - samples - n >= min_diff`;
- n inserts are admitted while `size + n <= min_size_to_sample`, or
  `(inserts + n) * samples_per_insert - samples <= max_diff`.

The others wait. A rate limiter is an immutable option, safe to share between tables; the counts belong to the table.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings

from reverie import _checks

__all__ = ["MinSize", "Queue", "RateLimiter", "Rationed", "SampleToInsertRatio", "Stack"]

_UNLIMITED = sys.float_info.max


@dataclasses.dataclass(frozen=True, slots=True)
class RateLimiter:
    """The general rate limiter; the others are special cases of it.

    Attributes:
        samples_per_insert: the number of samples that each insert allows; above 0.
        min_size_to_sample: the number of items that the table must hold before it is sampled; at least 1.
        min_diff: the smallest `inserts * samples_per_insert - samples` that may remain after a sample.
        max_diff: the largest that may remain after an insert.

    Raises:
        ValueError: for a `samples_per_insert` that is not above 0 and finite, a `min_size_to_sample` below 1, and a
            `min_diff` above `max_diff`. The server refuses limits with which nothing could ever be sampled.
    """

    samples_per_insert: float
    min_size_to_sample: int
    min_diff: float
    max_diff: float

    def __post_init__(self) -> None:
        for name in ("samples_per_insert", "min_diff", "max_diff"):
            object.__setattr__(self, name, _checks.number(name, getattr(self, name)))
        least = _checks.count("min_size_to_sample", self.min_size_to_sample, 1, _checks.MANY)
        object.__setattr__(self, "min_size_to_sample", least)
        if not (self.samples_per_insert > 0 and math.isfinite(self.samples_per_insert)):
            raise ValueError(f"samples_per_insert must be a finite number above 0, got {self.samples_per_insert}")
        if not self.min_diff <= self.max_diff:
            raise ValueError(f"min_diff must not be above max_diff, got {self.min_diff} and {self.max_diff}")


class MinSize(RateLimiter):
    """Samples wait until the table holds `min_size_to_sample` items; inserts never wait."""

    __slots__ = ()

    def __init__(self, min_size_to_sample: int) -> None:
        super().__init__(1.0, min_size_to_sample, -_UNLIMITED, _UNLIMITED)


class Rationed(RateLimiter):
    """The limiter of a shard: samples wait for the first item, inserts for the ration of the client of all shards.

    That client is the one `reverie.Client([...], rate_limiter=...)`. Until it has reached the shard, the table admits
    no insert.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(1.0, 1, -math.inf, -math.inf)


class SampleToInsertRatio(RateLimiter):
    """Keeps the ratio of samples to inserts within limits; the side that is ahead waits.

    Args:
        samples_per_insert: how often each item is sampled on average.
        min_size_to_sample: the number of items that the table must hold before it is sampled.
        error_buffer: the range of `inserts * samples_per_insert - samples`. A number e allows
            `min_size_to_sample * samples_per_insert - e` to `... + e`; a pair is the two limits.

    Raises:
        ValueError: for limits so close that samples and inserts would block each other.
    """

    __slots__ = ()

    def __init__(
        self, samples_per_insert: float, min_size_to_sample: int, error_buffer: float | tuple[float, float]
    ) -> None:
        samples_per_insert = _checks.number("samples_per_insert", samples_per_insert)
        middle = samples_per_insert * _checks.count("min_size_to_sample", min_size_to_sample, 1)
        if isinstance(error_buffer, tuple | list):
            if len(error_buffer) != 2:
                raise ValueError(f"error_buffer must be a number or a pair of limits, got {error_buffer!r}")
            low, high = (_checks.number("error_buffer", limit) for limit in error_buffer)
            if not low <= high:
                raise ValueError(f"error_buffer must be a pair of limits, the lower first, got {error_buffer!r}")
        else:
            error = _checks.number("error_buffer", error_buffer)
            if not error >= 0:
                raise ValueError(f"error_buffer must be at least 0, got {error_buffer!r}")
            low, high = middle - error, middle + error
        super().__init__(samples_per_insert, min_size_to_sample, low, high)
        room = 2 * max(1.0, samples_per_insert)
        if high - low < room:
            raise ValueError(
                f"the error buffer allows [{low}, {high}], which is narrower than {room} = 2 * max(1, "
                "samples_per_insert): samples and inserts would block each other; widen error_buffer"
            )
        if low > middle:
            raise ValueError(
                f"error_buffer begins at {low}, above samples_per_insert * min_size_to_sample = {middle}: nothing "
                "could ever be sampled; lower its first limit"
            )
        if high < middle:
            warnings.warn(
                f"error_buffer ends at {high}, below samples_per_insert * min_size_to_sample = {middle}: once the "
                "table has reached its minimum size, inserts wait until enough was sampled; raise its second limit",
                stacklevel=2,
            )


class Queue(RateLimiter):
    """Inserts wait while the table holds `size` items, samples while it is empty; for `max_times_sampled=1`."""

    __slots__ = ()

    def __init__(self, size: int) -> None:
        super().__init__(1.0, 1, 0.0, _checks.count("size", size, 1))


class Stack(RateLimiter):
    """Inserts wait while the table holds `size` items, samples while it is empty; for the sampler `Lifo`."""

    __slots__ = ()

    def __init__(self, size: int) -> None:
        super().__init__(1.0, 1, 0.0, _checks.count("size", size, 1))
