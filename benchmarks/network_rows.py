"""The rows of the network: the server in another process, one float32 column of the payload."""

from __future__ import annotations

from typing import Any

from .rows import Row

BATCH = 64
UPDATES = 256
#: Stored bytes of a row, about; 20 k items at most.
STORED_BYTES = 512 << 20
MOST_ITEMS = 20_000
PAYLOADS = {400: "400 B", 4_096: "4 kB", 40_960: "40 kB", 409_600: "400 kB"}

#: Wanted ratios by payload: dm-reverb's time over ours, and ours compared with a limit.
SAME_HOST = {400: 20.0, 4_096: 20.0, 40_960: 8.0, 409_600: 6.0}
TCP = {400: 10.0, 4_096: 10.0, 40_960: 2.5, 409_600: 1.4}
APPEND = {400: 15.0, 4_096: 12.0, 40_960: 6.0, 409_600: 5.0}
GATHER_SHARE, SOCKET_SHARE = 0.85, 0.9
FROM = 40_960  # shares of a limit are wanted from this payload on


def _row(name: str, kind: str, payload: int, unit: str, **options: Any) -> Row:
    capacity = min(MOST_ITEMS, STORED_BYTES // payload)
    columns = f"one column of {payload // 4} f32"
    return Row(name, kind, capacity, columns, unit, payload=payload, piece_seconds=0.1, **options)


def _batches() -> list[Row]:
    rows = []
    for payload, size in PAYLOADS.items():
        targets = {"dm-reverb": SAME_HOST[payload]} | ({"limits": GATHER_SHARE} if payload >= FROM else {})
        rows.append(
            _row(
                f"same host, batches of 64 x {size}",
                "batches",
                payload,
                "batch",
                targets=targets,
                peers=("dm-reverb", "limits"),
                kinds_of_peers={"limits": "gather"},
                transport="auto",
                items=BATCH,
            )
        )
    for payload, size in PAYLOADS.items():
        targets = {"dm-reverb": TCP[payload]} | ({"limits": SOCKET_SHARE} if payload >= FROM else {})
        rows.append(
            _row(
                f"TCP, batches of 64 x {size}",
                "batches",
                payload,
                "batch",
                targets=targets,
                peers=("dm-reverb", "limits"),
                kinds_of_peers={"limits": "tcp"},
                transport="grpc",
                items=BATCH,
            )
        )
    for transport, way in (("auto", "same host"), ("grpc", "TCP")):
        rows += [
            _row(
                f"{way}, one batch of 64 x {size} at a time",
                "one_batch",
                payload,
                "batch",
                transport=transport,
                items=BATCH,
            )
            for payload, size in PAYLOADS.items()
        ]
    return rows


def _shards() -> list[Row]:
    """Rows that compare with "one batch at a time": the cost of a draw from several servers as from one."""
    return [
        _row(
            f"{way}, one batch of 64 x {PAYLOADS[payload]} at a time from {count} shard{'s' if count > 1 else ''}",
            f"from_shards_{count}",
            payload,
            "batch",
            transport=transport,
            items=BATCH,
        )
        for transport, way in (("auto", "same host"), ("grpc", "TCP"))
        for payload in (400, 40_960)
        for count in (1, 2, 4)
    ]


def _items() -> list[Row]:
    peer = ("dm-reverb",)
    rows = [
        _row(
            "same host, client.sample by item, 400 B",
            "per_item",
            400,
            "item",
            targets={"dm-reverb": 40.0},
            peers=peer,
            transport="auto",
        ),
        _row("TCP, client.sample by item, 400 B", "per_item", 400, "item", peers=peer, transport="grpc"),
    ]
    for transport, way in (("auto", "same host"), ("grpc", "TCP")):
        rows += [
            _row(
                f"{way}, append + create_item, {size}",
                "append",
                payload,
                "item",
                targets={"dm-reverb": APPEND[payload]} if transport == "auto" else {},
                peers=peer,
                transport=transport,
            )
            for payload, size in PAYLOADS.items()
        ]
    return rows


def _others() -> list[Row]:
    rows = []
    for transport, way in (("auto", "same host"), ("grpc", "TCP")):
        wanted = transport == "auto"
        rows += [
            _row(
                f"{way}, insert_batch of 64 x 400 B, four threads of one client",
                "insert_batch_threads",
                400,
                "batch",
                transport=transport,
                items=BATCH,
            ),
            _row(
                f"{way}, insert_batch of 64 x 400 B, wait=False",
                "insert_batch_alone",
                400,
                "batch",
                transport=transport,
                items=BATCH,
            ),
            _row(
                f"{way}, insert_batch of 64 x 400 B, one at a time",
                "insert_batch",
                400,
                "batch",
                transport=transport,
                items=BATCH,
            ),
            _row(
                f"{way}, priority updates of 256, several in flight",
                "updates",
                400,
                "update",
                targets={"dm-reverb": 30.0} if wanted else {},
                peers=("dm-reverb",),
                transport=transport,
                items=UPDATES,
            ),
            _row(
                f"{way}, priority updates of 256, one at a time",
                "one_update",
                400,
                "update",
                peers=("dm-reverb",),
                kinds_of_peers={"dm-reverb": "updates"},
                transport=transport,
                items=UPDATES,
            ),
        ]
    return rows


ROWS = [*_batches(), *_shards(), *_items(), *_others()]
