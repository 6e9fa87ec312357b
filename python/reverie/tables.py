"""Tables: bounded sets of items with a sampler, a remover and a rate limiter."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Protocol, final, get_args

from reverie import _checks, rate_limiters, selectors, specs
from reverie._late_types import late
from reverie.extensions import InsertOnSample

if TYPE_CHECKING:
    from reverie.info import TableInfo
else:
    TableInfo = late("reverie.info", "TableInfo")

__all__ = ["Table"]

Compression = Literal["auto", "auto:speed", "auto:size", "none", "lz4", "zstd"]


class TableHost(Protocol):
    """The calls that a table makes on its server."""

    def server_info(self) -> Mapping[str, TableInfo]: ...
    def can_sample(self, table: str, num_samples: int) -> bool: ...
    def can_insert(self, table: str, num_inserts: int) -> bool: ...
    def configure(
        self,
        table: str,
        *,
        max_size: int | None,
        rate_limiter: rate_limiters.RateLimiter | None,
        max_times_sampled: int | None,
    ) -> None: ...


@final
class Table:
    """The options of a table; on a server, also a view of the table there.

    Args:
        name: unique on the server.
        sampler: which item is sampled next; `reverie.selectors`.
        remover: which item leaves when the table is over `max_size`: an item goes in first, so this may be itself.
        max_size: items that the table holds at most, up to 134,217,728 (2**27); draws that a client did not acknowledge
            may come back beyond it.
        rate_limiter: what holds samples and inserts back; `reverie.rate_limiters`. None: samples wait for an item.
        max_times_sampled: an item leaves after it was sampled this often; below 1, never.
        extensions: what the table does in addition; `reverie.extensions`.
        signature: a nest of specs (anything with `.shape` and `.dtype`; None as a size accepts any) that every item
            must match. It includes the time axis, except for a squeezed column. A table for single steps may give the
            signature of a step.
        max_bytes: bytes of the chunks that items refer to; over it, the remover evicts items.
        compression: how the steps of this table are stored. "auto" tries each column, and compresses it where that
            saves enough; "auto:speed" only where draws stay nearly as fast, "auto:size" wherever that saves bytes.
            "lz4" and "zstd" compress all columns that get smaller, "none" does not.

    Raises:
        ValueError: for an empty name or a `max_size` below 1. The server refuses limits that can never work.
    """

    __slots__ = (
        "_host",
        "compression",
        "extensions",
        "max_bytes",
        "max_size",
        "max_times_sampled",
        "name",
        "rate_limiter",
        "remover",
        "sampler",
        "signature",
    )

    name: str
    sampler: selectors.Selector
    remover: selectors.Selector
    max_size: int
    rate_limiter: rate_limiters.RateLimiter
    max_times_sampled: int
    extensions: tuple[InsertOnSample, ...]
    signature: Any
    max_bytes: int | None
    compression: Compression
    _host: TableHost | None

    def __init__(
        self,
        name: str,
        sampler: selectors.Selector,
        remover: selectors.Selector,
        max_size: int,
        rate_limiter: rate_limiters.RateLimiter | None = None,
        max_times_sampled: int = 0,
        extensions: Sequence[InsertOnSample] = (),
        signature: Any = None,
        *,
        max_bytes: int | None = None,
        compression: Compression = "auto",
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, got {name!r}")
        if not name:
            raise ValueError("name must not be empty")
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise ValueError(f"name must be text that UTF-8 can encode, got {name!r}")
        for role, selector in (("sampler", sampler), ("remover", remover)):
            if not isinstance(selector, selectors.Selector):
                raise TypeError(f"{role} must be one of reverie.selectors, got a {type(selector).__name__}")
        limiter = rate_limiters.MinSize(1) if rate_limiter is None else rate_limiter
        if not isinstance(limiter, rate_limiters.RateLimiter):
            raise TypeError(f"rate_limiter must be one of reverie.rate_limiters, got a {type(limiter).__name__}")
        for extension in extensions or ():
            if not isinstance(extension, InsertOnSample):
                raise TypeError(f"extensions must come from reverie.extensions, got a {type(extension).__name__}")
        if compression not in get_args(Compression):
            *names, last = (f'"{name}"' for name in get_args(Compression))
            raise ValueError(f"compression must be {', '.join(names)} or {last}, got {compression!r}")
        values = {
            "name": name,
            "sampler": sampler,
            "remover": remover,
            "max_size": _checks.count("max_size", max_size, 1),
            "rate_limiter": limiter,
            "max_times_sampled": max(0, _checks.count("max_times_sampled", max_times_sampled, -sys.maxsize)),
            "extensions": tuple(extensions or ()),
            "signature": None if signature is None else specs.signature(signature),
            "max_bytes": None if max_bytes is None else _checks.count("max_bytes", max_bytes, 1, _checks.MANY),
            "compression": compression,
            "_host": None,
        }
        for slot, value in values.items():
            object.__setattr__(self, slot, value)

    @classmethod
    def queue(cls, name: str, max_size: int, extensions: Sequence[InsertOnSample] = (), signature: Any = None) -> Table:
        """A queue: first in, first out, each item sampled once. Inserts wait while the table holds `max_size` items."""
        return cls(
            name=name,
            sampler=selectors.Fifo(),
            remover=selectors.Fifo(),
            max_size=max_size,
            rate_limiter=rate_limiters.Queue(max_size),
            max_times_sampled=1,
            extensions=extensions,
            signature=signature,
        )

    @classmethod
    def stack(cls, name: str, max_size: int, extensions: Sequence[InsertOnSample] = (), signature: Any = None) -> Table:
        """A stack: last in, first out, each item sampled once. Inserts wait while the table holds `max_size` items."""
        return cls(
            name=name,
            sampler=selectors.Lifo(),
            remover=selectors.Lifo(),
            max_size=max_size,
            rate_limiter=rate_limiters.Stack(max_size),
            max_times_sampled=1,
            extensions=extensions,
            signature=signature,
        )

    def replace(
        self,
        name: str | None = None,
        sampler: selectors.Selector | None = None,
        remover: selectors.Selector | None = None,
        max_size: int | None = None,
        rate_limiter: rate_limiters.RateLimiter | None = None,
        max_times_sampled: int | None = None,
        extensions: Sequence[InsertOnSample] | None = None,
        signature: Any = None,
        *,
        max_bytes: int | EllipsisType | None = ...,
        compression: Compression | None = None,
    ) -> Table:
        """A new, empty table with some options changed, which is on no server yet; None keeps an option.

        Args:
            name, sampler, remover, max_size, rate_limiter, max_times_sampled, extensions, signature, compression: as
                for `Table`.
            max_bytes: as for `Table`; None removes the limit, and `...` keeps it.
        """
        given = {
            "name": name,
            "sampler": sampler,
            "remover": remover,
            "max_size": max_size,
            "rate_limiter": rate_limiter,
            "max_times_sampled": max_times_sampled,
            "extensions": extensions,
            "signature": signature,
            "compression": compression,
        }
        changed = {option: value for option, value in given.items() if value is not None}
        if max_bytes is not ...:
            changed["max_bytes"] = max_bytes
        return Table(**{**self._options(), **changed})

    @property
    def info(self) -> TableInfo:
        """The figures of this table on its server; for a table that is on no server, those of an empty table."""
        return self._info_from(self._empty()) if self._host is None else self._host.server_info()[self.name]

    def can_sample(self, num_samples: int) -> bool:
        """True where the rate limiter would admit this number of samples now; False after its server stopped.

        Does not block. A table that is on no server is empty.
        """
        if self._host is not None:
            return self._host.can_sample(self.name, num_samples)
        _checks.integer("num_samples", num_samples)
        return False

    def can_insert(self, num_inserts: int) -> bool:
        """True where the rate limiter would admit this number of inserts now; False after its server stopped.

        Does not block. A table that is on no server is empty.
        """
        if self._host is not None:
            return self._host.can_insert(self.name, num_inserts)
        count, limits = _checks.integer("num_inserts", num_inserts), self.rate_limiter
        return count <= limits.min_size_to_sample or count * limits.samples_per_insert <= limits.max_diff

    def configure(
        self,
        *,
        max_size: int | None = None,
        rate_limiter: rate_limiters.RateLimiter | None = None,
        max_times_sampled: int | None = None,
    ) -> None:
        """Changes limits on the running server, as `client.configure` does; None keeps a limit.

        A smaller `max_size` evicts items at once, and calls that wait continue where the new limits admit them. `info`
        has the new limits; the options of this object do not change.

        Raises:
            ValueError: for limits that can never work, or a table that is on no server.
        """
        self._server().configure(
            self.name, max_size=max_size, rate_limiter=rate_limiter, max_times_sampled=max_times_sampled
        )

    @classmethod
    def _described(cls, options: Mapping[str, Any], like: Table | None = None) -> Table:
        """A table from the description that a server or a checkpoint has.

        The seeds, which neither has, are those of `like`; so are the extensions, which a checkpoint does not have.
        """
        signature = options["signature"]
        if signature is not None:
            structure, columns = signature
            signature = structure.unflatten([specs.TensorSpec(shape, dtype) for _, dtype, shape in columns])
        return cls(
            options["name"],
            sampler=selectors.from_engine(options["sampler"], None if like is None else like.sampler.seed),
            remover=selectors.from_engine(options["remover"], None if like is None else like.remover.seed),
            max_size=options["max_size"],
            rate_limiter=rate_limiters.RateLimiter(*options["rate_limiter"]),
            max_times_sampled=options["max_times_sampled"],
            extensions=[InsertOnSample(*of) for of in options["extensions"]] if like is None else like.extensions,
            signature=signature,
            max_bytes=options["max_bytes"],
            compression=options["compression"],
        )

    def _info_from(self, figures: dict[str, Any]) -> TableInfo:
        """The `TableInfo` of this table, from the figures that a server reports."""
        from reverie.info import CallStats, CopyStats, RateLimiterInfo, TableInfo, TableWorkerTime

        limiter = RateLimiterInfo(
            samples_per_insert=figures.pop("samples_per_insert"),
            min_diff=figures.pop("min_diff"),
            max_diff=figures.pop("max_diff"),
            min_size_to_sample=figures.pop("min_size_to_sample"),
            insert_stats=CallStats(
                figures["num_inserts"],
                figures.pop("pending_inserts"),
                blocked_inserts := figures.pop("inserts_blocked"),
            ),
            sample_stats=CallStats(
                figures["num_samples"],
                figures.pop("pending_samples"),
                blocked_samples := figures.pop("samples_blocked"),
            ),
        )
        inserting, sampling, alive = (figures.pop(name) for name in ("inserting", "sampling", "alive"))
        working = inserting + sampling
        times = TableWorkerTime(
            running_ms=int(working * 1e3),
            sampling_ms=int(sampling * 1e3),
            inserting_ms=int(inserting * 1e3),
            sleeping_ms=int(max(0.0, alive - working) * 1e3),
            waiting_for_sampling_ms=int(blocked_samples * 1e3),
            waiting_for_inserts_ms=int(blocked_inserts * 1e3),
        )
        return TableInfo(
            name=self.name,
            sampler_options=self.sampler,
            remover_options=self.remover,
            signature=self.signature,
            rate_limiter_info=limiter,
            table_worker_time=times,
            copies=tuple(CopyStats(*of) for of in figures.pop("copies")),
            **figures,
        )

    def _empty(self) -> dict[str, Any]:
        """The figures that a server would report for this table while it is empty."""
        limits = self.rate_limiter
        counts = (
            "current_size", "num_episodes", "num_deleted_episodes", "num_unique_samples", "num_inserts", "num_samples",
            "num_deletes", "num_leased", "num_evicted", "num_updates", "num_stale_updates", "size_bytes",
            "pending_inserts", "pending_samples", "inserts_blocked", "samples_blocked", "inserting", "sampling",
            "alive",
        )  # fmt: skip
        return {
            **dict.fromkeys(counts, 0),
            "max_size": self.max_size,
            "max_times_sampled": self.max_times_sampled,
            "samples_per_insert": limits.samples_per_insert,
            "min_diff": limits.min_diff,
            "max_diff": limits.max_diff,
            "min_size_to_sample": limits.min_size_to_sample,
            "max_bytes": self.max_bytes,
            "max_priority": 1.0,
            "age_histogram": (0,) * 48,
            "age_sum": 0.0,
            "sample_times": (0,) * 18,
            "sample_times_sum": 0,
            "copies": (),
        }

    def _server(self) -> TableHost:
        if self._host is None:
            raise ValueError(f"table '{self.name}' is on no server; pass it to reverie.Server([...])")
        return self._host

    def _attach(self, host: TableHost) -> None:
        object.__setattr__(self, "_host", host)

    def _options(self) -> dict[str, Any]:
        return {slot: getattr(self, slot) for slot in self.__slots__ if slot != "_host"}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"a table's options cannot be changed ({name}); use .replace(), or .configure() for its limits"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._host is not None:
            raise TypeError(
                f"table '{self.name}' is live on a server of this process and cannot be pickled; "
                ".replace() gives a new table with its options"
            )
        return _from_options, (self._options(),)

    def __repr__(self) -> str:
        return f"Table({', '.join(f'{name}={value!r}' for name, value in self._options().items())})"


def _from_options(options: dict[str, Any]) -> Table:
    return Table(**options)
