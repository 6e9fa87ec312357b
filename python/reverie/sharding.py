"""One table's options as those of its shards: the tables of several servers that are one replay."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from reverie import _checks, rate_limiters, selectors
from reverie._late_types import late
from reverie.client import Client
from reverie.tables import Table

if TYPE_CHECKING:
    from reverie.info import Info
else:
    Info = late("reverie.info", "Info")

__all__ = ["MAX_SHARDS", "ShardedClient", "shard_figures", "shard_table"]

#: A `Client` has any number of servers.
ShardedClient = Client

#: A key names its shard by 6 bits.
MAX_SHARDS = 64


def shard_table(table: Table, num_shards: int) -> tuple[list[Table], rate_limiters.RateLimiter]:
    """Splits a table's options into those of `num_shards` shards, and the rate limiter over all of them.

    Each shard has its part of `max_size` and of `max_bytes`, its own seeds, and `Rationed` instead of the table's
    limiter. Pass that limiter to the `Client` that samples.

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
        raise ValueError(
            f"table '{table.name}' has max_times_sampled={table.max_times_sampled}: its items leave as they are"
            " sampled, so there is no distribution over all shards to keep; give each server a Client of its own"
        )
    if table.max_size < num_shards:
        raise ValueError(f"table '{table.name}' holds {table.max_size} items, fewer than {num_shards} shards")
    parts = [
        table.replace(
            max_size=_part(table.max_size, num_shards, shard),
            max_bytes=None if table.max_bytes is None else max(1, _part(table.max_bytes, num_shards, shard)),
            rate_limiter=rate_limiters.Rationed(),
            sampler=_reseeded(table.sampler, shard),
            remover=_reseeded(table.remover, shard),
        )
        for shard in range(num_shards)
    ]
    return parts, table.rate_limiter


def _part(whole: int, num_shards: int, shard: int) -> int:
    """A shard's part of a number that is split over all shards."""
    return whole // num_shards + (shard < whole % num_shards)


def _reseeded(selector: selectors.Selector, shard: int) -> selectors.Selector:
    # Shards that draw the same random numbers would not be independent.
    if selector.seed is None:
        return selector
    return dataclasses.replace(selector, seed=(selector.seed + shard * 0x9E3779B97F4A7C15) % 2**64)


def shard_figures(info: Info) -> list[dict[str, Any]]:
    """The chance and the health of each server, for `Server.publish({..., "shards": ...})`.

    Args:
        info: `client.info()` of a client of several servers.

    Returns:
        for each server, in the client's order: its `address`; whether it is `present`; the `problem` of its journal or
        None; `items` and `bytes` of its tables (None while it cannot be reached); the client's `reconnects` to it, and
        the `restarts` of it that the client noticed; and `chances`: for each table, the probability that a draw uses
        this server.
    """
    return [
        {
            "address": shard.address,
            "present": shard.present,
            "problem": own.journal.error if own is not None and own.journal is not None else None,
            "items": None if own is None else sum(table.current_size for table in own.tables.values()),
            "bytes": None if own is None else own.size_bytes,
            "reconnects": None if own is None else own.reconnects,
            "restarts": None if own is None else own.server_restarts,
            "chances": {name: figures["chance"] for name, figures in shard.tables.items()},
        }
        for shard in info.shards
        for own in (shard.info,)
    ]
