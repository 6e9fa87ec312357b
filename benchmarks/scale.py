"""`python -m benchmarks --suite network --scale`: what many connected clients cost one server.

The clients live in a few processes of this machine; each has a session and a connection of its own. Memory is the
proportional share (`Pss` of Linux) of the server's process, threads are counted, and times include what the clients
themselves need of the machine's processors.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import report

#: Clients by transport.
CLIENTS = (("grpc", 1_000), ("grpc", 4_000), ("shared-memory", 500))
#: Processes that the clients share.
PROCESSES = 4


def main(*, seconds: float, out: Path | None, smoke: bool) -> int:
    """Returns the process's exit code."""
    rows = []
    for transport, count in [("grpc", 8), ("shared-memory", 8)] if smoke else CLIENTS:
        rows.append(measured(transport, count, seconds))
        print(line(rows[-1]), flush=True)
    if out is not None and not smoke:
        out.write_text(json.dumps({"machine": report.machine(), "seconds": seconds, "rows": rows}, indent=1) + "\n")
    print(table(rows))
    return 0


class Worker:
    """A process of `scale_work`, asked by lines."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.scale_work", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("a worker of the benchmark ended")
        return json.loads(answer)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def megabytes(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

    @property
    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))


def measured(transport: str, count: int, seconds: float) -> dict[str, Any]:
    """One row: a fresh server, and so many clients."""
    server, workers = Worker("serve"), []
    try:
        port = server.answer()
        before, idle_threads = server.megabytes, server.threads
        workers = [Worker("clients", port, transport, count // PROCESSES) for _ in range(PROCESSES)]
        for worker in workers:
            worker.answer()
        row: dict[str, Any] = {"transport": transport, "clients": count // PROCESSES * PROCESSES}
        empty = sum(worker.megabytes for worker in workers)
        start = time.perf_counter()
        asked(workers, "connect")
        row["connect_seconds"] = time.perf_counter() - start
        row["server_kib_each"] = (server.megabytes - before) * 1024 / row["clients"]
        row["client_kib_each"] = (sum(worker.megabytes for worker in workers) - empty) * 1024 / row["clients"]
        inserted, sent = map(sum, zip(*asked(workers, "insert", seconds), strict=True))
        row["inserted_per_second"] = inserted / seconds
        server.ask("inserted")
        row["lost_items"] = sent - server.answer()
        sampled, _ = map(sum, zip(*asked(workers, "sample", seconds), strict=True))
        row["sampled_per_second"] = sampled / seconds
        row["used_kib_each"] = (server.megabytes - before) * 1024 / row["clients"]
        row["server_threads"] = (idle_threads, server.threads)
        row["client_threads_each_process"] = max(worker.threads for worker in workers)
        return row
    finally:
        for worker in [server, *workers]:
            worker.close()


def asked(workers: list[Worker], *words: object) -> list[Any]:
    """The answers of all workers, which work at the same time."""
    for worker in workers:
        worker.ask(*words)
    return [worker.answer() for worker in workers]


def line(row: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
    )


def table(rows: list[dict[str, Any]]) -> str:
    """The table in docs/guides/run-a-server.md."""
    head = (
        "| clients | transport | to connect all | server's memory for each: connected, after use | server's threads |"
        " a client's own memory | items/s in: batches of 64 x 400 B | lost | items/s out |\n|" + "---|" * 9
    )
    lines = [
        f"| {row['clients']:,} | {row['transport']} | {row['connect_seconds']:.1f} s | {row['server_kib_each']:.0f},"
        f" {row['used_kib_each']:.0f} KiB | {row['server_threads'][1]} | {row['client_kib_each']:.0f} KiB |"
        f" {row['inserted_per_second']:,.0f} | {row['lost_items']} | {row['sampled_per_second']:,.0f} |"
        for row in rows
    ]
    return "\n".join([head, *lines])
