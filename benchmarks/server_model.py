"""`python -m benchmarks.server_model`: what one server can do, computed from its costs and checked over real links.

The server and its clients run in two network namespaces of this machine, joined by a pair of devices whose rate the
kernel limits (`tc ... tbf`). Over a link without a limit it measures what each item costs: processor time of the
server's process, and bytes on the link. From that follows the rate over 0.1, 1 and 10 Gbit/s: what the link carries,

    rate of the link / (bits of an item on the link),

but at most what the processors here did without a limit. It is then measured, and so is the memory of items, chunks
and requests that wait. The client has the same processors, and the kernel counts a part of receiving as the sender's.
Needs root and iproute2.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import report
from .peers import ROOT

NEAR, FAR = "reverie-model-near", "reverie-model-far"
ADDRESS = "10.213.8.1"
#: The direction of a client's items, the bytes of an item, and the items of a call.
KINDS = (
    ("in", 400, 64),
    ("in", 4_000, 64),
    ("in", 40_000, 64),
    ("out", 400, 64),
    ("out", 4_000, 64),
    ("out", 40_000, 64),
    ("out", 400, 1),
    ("updates", 400, 256),
)
#: The limit counts headers of 66 bytes for each 1,448; the devices count them once for up to 64 KiB.
HEADERS = 1 + 66 / 1448
#: Gbit/s of the links.
RATES = (0.1, 1.0, 10.0)
MEMORY = (("item", 200_000), ("item with a chunk of its own", 5_000), ("insert that waits", 4_000))


class Worker:
    """A process of `server_model_work` in a namespace."""

    def __init__(self, space: str | None, *arguments: object) -> None:
        inside = ["ip", "netns", "exec", space] if space else []
        command = [*inside, sys.executable, "-W", "ignore", "-m", "benchmarks.server_model_work"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([*command, *map(str, arguments)], cwd=ROOT, **pipes)

    def answer(self) -> Any:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a worker of the benchmark ended")
        return json.loads(line)

    def ask(self) -> Any:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextlib.contextmanager
def link(gbit: float | None) -> Iterator[None]:
    """Two namespaces with a link between them of this rate in each direction."""
    with contextlib.ExitStack() as stack:
        for space in (NEAR, FAR):
            ip("netns", "add", space)
            stack.callback(ip, "netns", "delete", space)
        ip("-n", NEAR, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", FAR)
        for space, device, address in ((NEAR, "near", ADDRESS), (FAR, "far", "10.213.8.2")):
            ip("-n", space, "address", "add", f"{address}/24", "dev", device)
            ip("-n", space, "link", "set", device, "up")
            if gbit is not None:
                # A burst of what passes in a millisecond, and at least the largest segment.
                shape = ["rate", f"{gbit}gbit", "burst", str(max(131_072, int(gbit * 125_000))), "latency", "20ms"]
                subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", *shape], check=True)
        yield


def on_the_link() -> tuple[int, int]:
    """Bytes that the server's device has received and sent."""
    shown = subprocess.run(["ip", "-n", NEAR, "-s", "-j", "link", "show", "near"], capture_output=True, check=True)
    counted = json.loads(shown.stdout)[0]["stats64"]
    return counted["rx"]["bytes"], counted["tx"]["bytes"]


def measured(kind: str, size: int, batch: int, seconds: float) -> dict[str, float]:
    """Figures of one run: items a second, and for each item processor seconds of both sides and bytes on the link."""
    server, user = Worker(NEAR, "serve", ADDRESS, size), None
    try:
        port = server.answer()
        user = Worker(FAR, "use", kind, size, batch, f"{ADDRESS}:{port}")
        user.answer()
        time.sleep(min(1.0, seconds / 2))
        before, bytes_before = server.ask(), on_the_link()
        time.sleep(seconds)
        after, bytes_after = server.ask(), on_the_link()
        user.process.stdin.close()
        busy = user.answer()
    finally:
        for worker in (user, server):
            if worker is not None:
                worker.close()
    items = max(1, after[kind] - before[kind])
    return {
        "per_second": items / (after["clock"] - before["clock"]),
        "processor": (after["seconds"] - before["seconds"]) / items,
        "cores": (after["seconds"] - before["seconds"]) / (after["clock"] - before["clock"]),
        "client": busy * (after["clock"] - before["clock"]) / items,
        "bytes_in": (bytes_after[0] - bytes_before[0]) / items,
        "bytes_out": (bytes_after[1] - bytes_before[1]) / items,
    }


def medians(gbit: float | None, kind: str, size: int, batch: int, rounds: int, seconds: float) -> dict[str, float]:
    """The medians over the rounds, over a link of this rate, with one client."""
    with link(gbit):
        found = [measured(kind, size, batch, seconds) for _ in range(rounds)]
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def predicted(cost: dict[str, float], gbit: float) -> float:
    """Items a second over a link of this rate: what it carries, at most what was measured without a limit."""
    return min(cost["per_second"], gbit * 1e9 / 8 / (HEADERS * max(cost["bytes_in"], cost["bytes_out"])))


def memory(what: str, count: int) -> float:
    worker = Worker(None, "memory", what, count)
    try:
        return float(worker.answer())
    finally:
        worker.close()


def table(rows: list[dict[str, Any]], memories: dict[str, float]) -> str:
    links = [f"{gbit:g} Gbit/s: items/s, of computed" for gbit in RATES]
    costs = ["items/s, no limit", "server, client: ns an item", "bytes an item", "a core's items/s"]
    head = ["what", *costs, *links]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cost = row["cost"]
        cells = [f"{one['per_second']:,.0f}, x{one['per_second'] / one['predicted']:.2f}" for one in row["links"]]
        shown = [
            f"{cost['per_second']:,.0f}",
            f"{cost['processor'] * 1e9:,.0f}, {cost['client'] * 1e9:,.0f}",
            f"{max(cost['bytes_in'], cost['bytes_out']):,.0f}",
            f"{1 / cost['processor']:,.0f}",
        ]
        lines.append("| " + " | ".join([row["name"], *shown, *cells]) + " |")
    lines += ["", "| one more | bytes of memory |", "|---|---|"]
    lines += [f"| {what} | {found:,.0f} |" for what, found in memories.items()]
    return "\n".join(lines)


def main() -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server_model", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--smoke", action="store_true", help="one short row: shows that it runs")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    if shutil.which("tc") is None:
        print("links cannot be made here: install iproute2", file=sys.stderr)
        return 2
    rounds, seconds = (1, 0.3) if given.smoke else (given.rounds, given.seconds)
    rows: list[dict[str, Any]] = []
    for kind, size, batch in KINDS[:1] if given.smoke else KINDS:
        what = (kind, size, batch, rounds, seconds)
        row = {"name": f"{kind}, {batch} x {size:,} B", "cost": medians(None, *what), "links": []}
        for gbit in RATES:
            row["links"].append({"gbit": gbit, "predicted": predicted(row["cost"], gbit), **medians(gbit, *what)})
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    memories = {what: memory(what, count // (20 if given.smoke else 1)) for what, count in MEMORY}
    print(table(rows, memories))
    if not given.smoke:
        path = given.out / f"{time.strftime('%Y-%m-%d-%H%M', time.gmtime())}-server-model.json"
        run = {"machine": report.machine(), "rounds": rounds, "seconds": seconds, "rows": rows, "memory": memories}
        path.write_text(json.dumps(run, indent=1) + "\n")
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
