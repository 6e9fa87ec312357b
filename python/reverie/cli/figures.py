"""The figures of a server, as plain data and in lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import reverie
from reverie.cli.sizes import size


def figures(client: reverie.Client) -> dict[str, Any]:
    """The server's figures and waiting requests, in the order of its tables, as plain data for `--json`."""
    info = client.info()
    tables = {}
    for name, table in info.tables.items():
        limiter, why = table.rate_limiter_info, client.why(name)
        tables[name] = {
            "size": table.current_size,
            "max_size": table.max_size,
            "size_bytes": table.size_bytes,
            "max_bytes": table.max_bytes,
            "episodes": table.num_episodes,
            "inserts": table.num_inserts,
            "samples": table.num_samples,
            "deletes": table.num_deletes,
            "leased": table.num_leased,
            "updates": table.num_updates,
            "stale_updates": table.num_stale_updates,
            "samples_per_insert": limiter.samples_per_insert,
            "waiting_inserts": why.num_waiting_inserts,
            "waiting_samples": why.num_waiting_samples,
            "insert_reason": why.insert_reason,
            "sample_reason": why.sample_reason,
            "stuck": why.stuck,
            "why": why.text,
        }
    return {
        "transport": info.transport,
        "reason": info.reason,
        "size_bytes": info.size_bytes,
        "max_bytes": info.max_bytes,
        "network_bytes": info.network_bytes,
        "max_network_bytes": info.max_network_bytes,
        "max_memory": info.max_memory,
        "max_connections": info.max_connections,
        # These are on the page only.
        **dict.fromkeys(("ready", "trouble", "uptime_seconds", "checkpoint_age_seconds", "clients", "run")),
        "journal": None if info.journal is None else dataclasses.asdict(info.journal),
        "disk": None if info.disk is None else dataclasses.asdict(info.disk),
        "tables": tables,
    }


def storage_lines(now: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """The states of a journal and of a disk tier, as far as there are any, each with whether it has an error."""
    for kind, line in (("journal", journal_line), ("disk", disk_line)):
        if now[kind] is not None:
            yield line(now[kind]), now[kind]["error"] is not None


def journal_line(journal: dict[str, Any]) -> str:
    """The state of a journal in one line."""
    if journal["error"] is not None:
        state = "waits for room on the disk" if journal["is_full"] else "has stopped, inserts are refused"
        return f"journal: {state}: {journal['error']}"
    line = f"journal: sync={journal['sync']}, {size(journal['unsynced_bytes'])} not on the disk yet"
    if journal["syncs"]:
        mean = journal["sync_seconds"] / journal["syncs"]
        longest = journal["longest_sync_seconds"]
        line += f"; {journal['syncs']:,} syncs of {mean * 1e3:.1f} ms, the longest {longest * 1e3:.1f} ms"
    return line


def disk_line(disk: dict[str, Any]) -> str:
    """The state of a disk tier in one line."""
    own = disk["chunk_bytes"] - disk["shared_bytes"]
    line = f"disk {disk['folder']}: {size(own)} of chunks in {size(disk['file_bytes'])} of files"
    if disk["max_file_bytes"] is not None:
        line += f" of {size(disk['max_file_bytes'])}"
    if disk["shared_bytes"]:
        line += f", {size(disk['shared_bytes'])} in segments of the journal or of checkpoints"
    line += f"; {size(disk['memory_bytes'])} of {size(disk['max_memory_bytes'])} in memory"
    return line if disk["error"] is None else f"{line}; no chunk can move: {disk['error']}"
