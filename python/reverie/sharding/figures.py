"""The figures of a sharded replay, in total and of each shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from reverie.client import Info
from reverie.types import CallStats, CopyStats, RateLimiterInfo, TableInfo, TableWorkerTime, Why

if TYPE_CHECKING:
    from reverie.sharding.members import Members
    from reverie.sharding.sampler import Sampler

__all__ = ["ShardInfo", "ShardedInfo", "info", "why"]


@dataclasses.dataclass(frozen=True, slots=True)
class ShardInfo:
    """One shard of a `ShardedClient`."""

    address: str | None
    """None for a server in this process that does not listen."""
    present: bool
    """False while it cannot be reached."""
    info: Info | None
    """Its own figures; None while it cannot be reached."""
    tables: dict[str, dict[str, Any]]
    """For every table that this client uses: its `mass`; the `chance` that a draw uses this shard; its `ration`
    (inserts admitted in total; None if its own limiter decides); `num_inserts`, `num_samples`, `waiting_inserts`;
    `discarded`: those of the samples that were drawn again elsewhere, since the masses had changed; `clock_ahead`:
    seconds by which its clock is ahead of this process's."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShardedInfo(Info):
    """The return value of `ShardedClient.info()`: sums over all reachable shards, and each shard's figures."""

    shards: tuple[ShardInfo, ...] = ()


def info(infos: Mapping[int, Info], samplers: Mapping[str, Sampler], members: Members) -> ShardedInfo:
    """The figures of all shards, from their present infos and the samplers' last responses."""
    known = {name: sampler.figures()["shards"] for name, sampler in samplers.items()}
    shards = tuple(
        ShardInfo(
            address=client.server_address,
            present=shard in infos,
            info=infos.get(shard),
            tables={name: dict(figures[shard]) for name, figures in known.items()},
        )
        for shard, client in enumerate(members.clients)
    )
    all_infos = list(infos.values())
    places = [of.max_connections for of in all_infos if of.max_connections is not None]
    names = [name for name in all_infos[0].tables if all(name in of.tables for of in all_infos)]
    return ShardedInfo(
        transport=" ".join(sorted({of.transport for of in all_infos})),
        reason=f"{len(infos)} of {len(shards)} shards can be reached",
        tables={name: _sum([of.tables[name] for of in all_infos], samplers.get(name)) for name in names},
        size_bytes=sum(of.size_bytes for of in all_infos),
        max_bytes=_total(of.max_bytes for of in all_infos),
        max_network_bytes=_total(of.max_network_bytes for of in all_infos),
        max_memory=_total(of.max_memory for of in all_infos),
        # A client needs a place on each shard.
        max_connections=min(places, default=None),
        connected=len(infos) == len(shards),
        shards=shards,
        **{
            field: sum(getattr(of, field) for of in all_infos)
            for field in (
                "reconnects",
                "server_restarts",
                "bytes_sent",
                "bytes_received",
                "unheard_errors",
                "network_bytes",
            )
        },
    )


def _total(limits: Iterable[int | None]) -> int | None:
    """The sum of limits; None if one of them is unlimited."""
    known = list(limits)
    return None if None in known else sum(limit for limit in known if limit is not None)


#: Figures of a table that are summed over shards.
_SUMS = (
    "max_size",
    "current_size",
    "num_episodes",
    "num_deleted_episodes",
    "num_unique_samples",
    "num_inserts",
    "num_samples",
    "num_deletes",
    "num_leased",
    "num_evicted",
    "num_updates",
    "num_stale_updates",
    "size_bytes",
)


def _sum(tables: list[TableInfo], sampler: Sampler | None) -> TableInfo:
    sums = {name: sum(getattr(table, name) for table in tables) for name in _SUMS}
    if sampler is not None:
        sums["num_samples"] -= sum(shard["discarded"] for shard in sampler.figures()["shards"] if shard["present"])
    limits = [table.max_bytes for table in tables]
    times = [dataclasses.astuple(table.table_worker_time) for table in tables]
    return dataclasses.replace(
        tables[0],
        **sums,
        max_bytes=None if None in limits else sum(limit for limit in limits if limit is not None),
        max_priority=max(table.max_priority for table in tables),
        age_histogram=tuple(map(sum, zip(*(table.age_histogram for table in tables), strict=True))),
        table_worker_time=TableWorkerTime(*map(sum, zip(*times, strict=True))),
        copies=_copies(tables),
        rate_limiter_info=_limiter([table.rate_limiter_info for table in tables], sampler),
    )


def _copies(tables: list[TableInfo]) -> tuple[CopyStats, ...]:
    """The copies of all shards, summed by target table."""
    together: dict[str, CopyStats] = {}
    for stats in (stats for table in tables for stats in table.copies):
        known = together.get(stats.target, dataclasses.replace(stats, inserted=0, dropped=0, waiting=0))
        sums = {name: getattr(known, name) + getattr(stats, name) for name in ("inserted", "dropped", "waiting")}
        together[stats.target] = dataclasses.replace(known, **sums)
    return tuple(together.values())


def _limiter(infos: list[RateLimiterInfo], sampler: Sampler | None) -> RateLimiterInfo:
    def together(stats: list[CallStats]) -> CallStats:
        return CallStats(
            sum(each.completed for each in stats),
            sum(each.pending for each in stats),
            max(each.blocked_time for each in stats),
        )

    limits: Any = infos[0] if sampler is None or sampler.limiter is None else sampler.limiter
    return RateLimiterInfo(
        samples_per_insert=limits.samples_per_insert,
        min_diff=limits.min_diff,
        max_diff=limits.max_diff,
        min_size_to_sample=limits.min_size_to_sample,
        insert_stats=together([each.insert_stats for each in infos]),
        sample_stats=together([each.sample_stats for each in infos]),
    )


def why(sampler: Sampler, known: dict[str, Any], whys: Mapping[int, Why], members: Members) -> Why:
    """Why requests wait, over all shards; `known` is the sampler's latest figures."""
    each = " ".join(f"{members.name(shard)}: {why.text}" for shard, why in whys.items())
    blocked = [why.insert_reason for why in whys.values() if why.insert_reason is not None]
    insert_reason = known["insert_reason"] if sampler.limiter is not None else None
    # An insert goes to any one shard: it is blocked only if all shards block it.
    if insert_reason is None and len(blocked) == len(whys):
        insert_reason = blocked[0]
    return Why(
        table=sampler.table,
        size=known["size"],
        max_size=sum(why.max_size for why in whys.values()),
        num_inserts=known["num_inserts"],
        num_samples=known["num_samples"],
        num_deletes=known["num_deletes"],
        num_leased=sum(why.num_leased for why in whys.values()),
        inserts=tuple(waiting for why in whys.values() for waiting in why.inserts),
        samples=sampler.waiting + tuple(waiting for why in whys.values() for waiting in why.samples),
        insert_reason=insert_reason,
        sample_reason=known["sample_reason"],
        stuck=any(why.stuck for why in whys.values()),
        text=f"{sampler.why(known)} {each}",
    )
