"""What comes out of a replay: samples, batches, figures."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt

from reverie import _native
from reverie._tensorflow import tensorflow

__all__ = [
    "Batch",
    "BatchInfo",
    "Borders",
    "Condition",
    "CopyStats",
    "RateLimiterInfo",
    "ReplaySample",
    "SampleInfo",
    "TableInfo",
    "UpdateResult",
    "Waiting",
    "Why",
]

#: `(field, op, number)`; see `Client.query`.
Condition = tuple[
    Literal["priority", "times_sampled", "version", "age"], Literal["<", "<=", "==", "!=", ">=", ">"], float
]
#: What becomes of a window that reaches over the end of its item; see `Client.windows`.
Borders = Literal["drop", "pad", "cross"]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class SampleInfo(NamedTuple):
    """What the table knew of one draw; exactly these five fields, since code unpacks them.

    Scalars for one item or step; arrays where a dataset batched them.
    """

    key: Any
    """The item's key, a 63-bit integer."""
    probability: Any
    """Probability of the draw at its time; 1 for deterministic selectors."""
    table_size: Any
    """Items in the table at the draw, before the draw removed any."""
    priority: Any
    """The item's priority."""
    times_sampled: Any
    """How often the item was drawn, this draw included."""

    @classmethod
    def zeros(cls) -> SampleInfo:
        """An info of zeros, with the dtypes that samples have."""
        return cls(np.uint64(0), np.float64(0), np.int64(0), np.float64(0), np.int32(0))

    @classmethod
    def tf_dtypes(cls) -> SampleInfo:
        """TensorFlow's dtypes of the fields, as datasets give them. ImportError without TensorFlow."""
        tf = tensorflow("SampleInfo.tf_dtypes", "SampleInfo.zeros(), whose fields have the dtypes that samples have")
        return cls(*(tf.as_dtype(field.dtype) for field in cls.zeros()))

    @classmethod
    def tf_shapes(cls) -> SampleInfo:
        """TensorFlow's shapes of the fields: scalars. ImportError without TensorFlow."""
        tf = tensorflow("SampleInfo.tf_shapes", "SampleInfo.zeros(): every field is a scalar")
        return cls(*(tf.TensorShape([]) for _ in cls._fields))


class ReplaySample(NamedTuple):
    """One draw: what the table knew, and the data."""

    info: SampleInfo
    data: Any


@final
@dataclasses.dataclass(eq=False)
class BatchInfo(_native.DrawInfo):
    """What the table knew of each draw of a batch: one array per field, all of shape `[B]`.

    Arrays are made when they are first asked for; from then on they are the caller's own.
    """

    __slots__ = ()

    # `field()` says that none has a default: the getters of the base are none.
    key: IntArray = dataclasses.field()
    """Keys of the items, int64."""
    probability: FloatArray = dataclasses.field()
    """Probability of each draw at its time; 1 for deterministic selectors."""
    priority: FloatArray = dataclasses.field()
    """Priorities as they were at the draw."""
    table_size: IntArray = dataclasses.field()
    """Items in the table at each draw, before the draw removed any."""
    times_sampled: IntArray = dataclasses.field()
    """How often each item was drawn, this draw included."""
    version: IntArray = dataclasses.field()
    """Updates of each item's priority so far; `update_priorities(..., if_version=)` takes them."""
    inserted_at: FloatArray = dataclasses.field()
    """When each item was inserted, in seconds of the table's monotonic clock."""

    def __len__(self) -> int:
        return len(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchInfo, tuple(getattr(self, field.name) for field in dataclasses.fields(self))


@final
@dataclasses.dataclass(slots=True, eq=False)
class Batch:
    """Draws from a table as arrays: one contiguous array per column.

    The arrays are the caller's own: writable, and never reused while anybody holds them.
    """

    info: BatchInfo
    """What the table knew of each draw."""
    data: Any
    """The structure that was stored, its leaves arrays of `[B, ...]` or `[B, T, ...]`."""
    mask: Any = None
    """With `ragged="pad"` which cells are data: bool `[B, T]`, or a dict of them by path where columns differ."""
    lengths: Any = None
    """With `ragged="values"` how many cells each item has: int64 `[B]`, or a dict by path where columns differ."""
    smallest_probability: float | None = None
    """The least probability that any item of the table had; None where the table gave out no probabilities."""
    is_first: Any = None
    """Of windows: bool `[B, T]`, true at the first step of each window and wherever another episode begins."""
    start: Any = None
    """Of windows: int64 `[B]`, the step of its item at which each begins; below 0 where it begins with padding."""
    loss_mask: Any = None
    """Of windows: bool `[B, T]`, true at the steps to learn from: behind the burn-in, and no padding."""
    burn_in: int = 0
    """Of windows: so many of the T steps stand before those to learn from."""

    def __len__(self) -> int:
        return len(self.info.key)

    def weights(self, beta: float, normalise: Literal["batch", "table"] = "batch") -> FloatArray:
        """Importance weights `(N * P(i)) ** -beta`, divided by the largest (Schaul et al. 2016, section 3.4).

        Args:
            beta: how much of the bias is corrected, from 0 (none, all weights 1) to 1 (all).
            normalise: "batch" divides by the largest weight of this batch, "table" by the largest that any item of the
                table could have, so that weights of different batches can be compared.

        Returns:
            float64 `[B]`, at most 1.

        Raises:
            ValueError: for a beta outside [0, 1], another `normalise`, or items that were read with `client.get`.
        """
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must be between 0 and 1, got {beta}")
        if normalise == "batch":
            return self.info._weights(beta, None)
        if normalise != "table":
            raise ValueError(f'normalise must be "batch" or "table", got {normalise!r}')
        if self.smallest_probability is None:
            raise ValueError('normalise="table" needs draws from one table with a selector that has probabilities')
        return self.info._weights(beta, self.smallest_probability)


class UpdateResult(NamedTuple):
    """What became of updates or deletes."""

    applied: int
    """How many items they reached."""
    stale: int
    """How many keys were of items that are gone, or (with `if_version=`) of items updated since: ignored."""


@dataclasses.dataclass(frozen=True, slots=True)
class CallStats:
    """Calls of one kind that a table admitted."""

    completed: int
    """Items inserted, or draws made."""
    pending: int
    """Items or draws that wait now."""
    blocked_time: float
    """Seconds during which at least one of them waited."""


@dataclasses.dataclass(frozen=True, slots=True)
class CopyStats:
    """What became of the copies of an `insert_on_sample`, since the start or the last reset of its table."""

    target: str
    """The table that they go into."""
    timeout: float | None
    """For how many seconds one may wait; None for as long as it takes."""
    inserted: int
    """Copies that went in."""
    dropped: int
    """Copies that did not: their time was over, too many waited, or the other table refused them."""
    waiting: int
    """Copies that wait now."""


@dataclasses.dataclass(frozen=True, slots=True)
class RateLimiterInfo:
    """A rate limiter's settings, and what it admitted."""

    samples_per_insert: float
    min_diff: float
    max_diff: float
    min_size_to_sample: int
    insert_stats: CallStats
    sample_stats: CallStats


@dataclasses.dataclass(frozen=True, slots=True)
class TableWorkerTime:
    """Where a table's time went, in milliseconds; the work is measured on one operation in 64 and scaled."""

    running_ms: int
    sampling_ms: int
    inserting_ms: int
    sleeping_ms: int
    waiting_for_sampling_ms: int
    waiting_for_inserts_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class TableInfo:
    """A table's settings and figures at one moment."""

    name: str
    sampler_options: Any
    """The sampler; answers `WhichOneof("distribution")`, `.prioritized.priority_exponent` and the like."""
    remover_options: Any
    max_size: int
    max_times_sampled: int
    """0: no limit."""
    rate_limiter_info: RateLimiterInfo
    signature: Any
    """The nest of specs that the table was made with, or None."""
    current_size: int
    num_episodes: int
    """Episodes that the present items have cells of; a step of `insert` is one of its own."""
    num_deleted_episodes: int
    num_unique_samples: int
    table_worker_time: TableWorkerTime
    num_inserts: int
    """Items inserted since the start or the last reset."""
    num_samples: int
    """Draws made since then."""
    num_deletes: int
    """Items that left since then, for whatever reason."""
    num_evicted: int
    """Of these, items that the remover chose."""
    num_updates: int
    """Priorities that were set."""
    num_stale_updates: int
    """Updates for items that were gone or had been updated since."""
    size_bytes: int
    """Bytes of the chunks that the items hold alive, each chunk once."""
    max_bytes: int | None
    max_priority: float
    """The largest priority of a present item, 1 without items."""
    age_histogram: tuple[int, ...]
    """Draws by age of the item: bucket b counts ages in [2**(b-1), 2**b) nanoseconds."""
    shard: int = 0
    """The shard that the table's keys name: `Server(..., shard=)`."""
    num_leased: int = 0
    """Draws that clients have not acknowledged yet; those that do not reach their client come back."""
    copies: tuple[CopyStats, ...] = ()
    """What became of the copies, for each `reverie.extensions.insert_on_sample` of the table."""


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits at a table."""

    since: float
    """For how many seconds."""
    wanted: int
    """Items or draws asked for."""
    done: int
    """How many of them are done."""


@dataclasses.dataclass(frozen=True, slots=True)
class Why:
    """Who waits at a table, since when, for what, and what would free them. `str()` says it in words."""

    table: str
    size: int
    max_size: int
    num_inserts: int
    num_samples: int
    num_deletes: int
    inserts: tuple[Waiting, ...]
    """Inserts that wait, in order of arrival; of more than 1000 the first. `str()` counts all."""
    samples: tuple[Waiting, ...]
    """Requests for samples that wait, in order of arrival; of more than 1000 the first."""
    insert_reason: str | None
    """What holds a single insert back now; None where one could go on."""
    sample_reason: str | None
    """What holds a single draw back now; None where one could go on."""
    stuck: bool
    """True where both sides are held back and no call that waits now can change it."""
    text: str
    num_leased: int = 0
    """Draws that clients have not acknowledged yet; those that do not reach their client come back."""

    def __str__(self) -> str:
        return self.text
