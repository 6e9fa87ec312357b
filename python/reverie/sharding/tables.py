"""Options of the tables of shards, and their checks."""

from __future__ import annotations

import dataclasses

from reverie import _checks, rate_limiters, selectors
from reverie.tables import Table

__all__ = [
    "MAX_SHARDS",
    "draws_independently",
    "is_rationed",
    "part",
    "refuse_no_limits",
    "refuse_unfit",
    "shard_table",
]

#: A key names its shard by 6 bits.
MAX_SHARDS = 64


def shard_table(table: Table, num_shards: int) -> tuple[list[Table], rate_limiters.RateLimiter]:
    """Splits a table's options into those of `num_shards` shards, and the rate limiter over all of them.

    Each shard has its part of `max_size` and of `max_bytes`, its own seeds, and `Rationed` instead of the table's
    limiter. Pass that limiter to the `ShardedClient` that samples.

    Args:
        table: a table that is on no server, without `max_times_sampled`.
        num_shards: from 1 to 64.

    Returns:
        the tables, one for each server, and the limiter.

    Raises:
        ValueError: for a table that cannot be sharded, or whose `max_size` is below `num_shards`.
    """
    num_shards = _checks.count("num_shards", num_shards, 1)
    if num_shards > MAX_SHARDS:
        raise ValueError(f"num_shards must be at most {MAX_SHARDS}, got {num_shards}")
    if table.max_times_sampled:
        raise ValueError(_consumes(f"table '{table.name}'", table.max_times_sampled))
    if table.max_size < num_shards:
        raise ValueError(f"table '{table.name}' holds {table.max_size} items, fewer than {num_shards} shards")
    parts = [
        table.replace(
            max_size=part(table.max_size, num_shards, shard),
            max_bytes=None if table.max_bytes is None else max(1, part(table.max_bytes, num_shards, shard)),
            rate_limiter=rate_limiters.Rationed(),
            sampler=_reseeded(table.sampler, shard),
            remover=_reseeded(table.remover, shard),
        )
        for shard in range(num_shards)
    ]
    return parts, table.rate_limiter


def part(whole: int, num_shards: int, shard: int) -> int:
    """A shard's part of a number that is split over all shards."""
    return whole // num_shards + (shard < whole % num_shards)


def _reseeded(selector: selectors.Selector, shard: int) -> selectors.Selector:
    # Shards that draw the same random numbers would not be independent.
    if selector.seed is None:
        return selector
    return dataclasses.replace(selector, seed=(selector.seed + shard * 0x9E3779B97F4A7C15) % 2**64)


def is_rationed(limiter: rate_limiters.RateLimiter | object) -> bool:
    """True for `Rationed()`, also for a server's description of it."""
    return getattr(limiter, "max_diff", 0.0) == float("-inf")


def draws_independently(sampler: object) -> bool:
    """True if the draws of a batch are independent of each other."""
    return isinstance(sampler, selectors.Uniform) or (
        isinstance(sampler, selectors.Prioritized) and not sampler.stratified
    )


def refuse_no_limits(limiter: object) -> None:
    """Raises TypeError or ValueError for an invalid limiter over all shards."""
    if not isinstance(limiter, rate_limiters.RateLimiter):
        raise TypeError(f"rate_limiter must be one of reverie.rate_limiters, got a {type(limiter).__name__}")
    if is_rationed(limiter):
        raise ValueError("rate_limiter must be the limits of all shards; Rationed() is for the tables of the shards")


def refuse_unfit(where: str, max_times_sampled: int, limiter: object) -> None:
    """Raises ValueError for a table that cannot be the table of a shard."""
    if max_times_sampled:
        raise ValueError(_consumes(where, max_times_sampled))
    least = getattr(limiter, "min_size_to_sample", 1)
    unlimited = rate_limiters.MinSize(1)
    plain = (
        getattr(limiter, "min_diff", 0) <= unlimited.min_diff and getattr(limiter, "max_diff", 0) >= unlimited.max_diff
    )
    if least != 1 or not (plain or is_rationed(limiter)):
        raise ValueError(
            f"{where} has a rate limiter of its own, of which the other shards know nothing; give its Table"
            " rate_limiters.Rationed() or MinSize(1), and the limits to ShardedClient(rate_limiter=...):"
            " reverie.sharding.shard_table makes both of one table"
        )


def _consumes(where: str, times: int) -> str:
    return (
        f"{where} has max_times_sampled={times}: its items leave as they are sampled, so there is no distribution over"
        " all shards to keep; read each server with a Client of its own"
    )
