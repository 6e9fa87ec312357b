"""`python -m benchmarks --suite network --wan`: inserts and reads over links with delay and loss; a bare stream.

The server and the client run in two network namespaces of this machine. A relay (`wan_relay.rs`) connects a TUN device
of one with a TUN device of the other: it delays, it has a rate, and it loses packets. It needs root, `ip` of iproute2
and the kernel's TUN driver, and no other machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .peers import ROOT

#: Round trips in milliseconds and shares of lost packets.
ROUND_TRIPS, LOSSES = (0.1, 4.0, 40.0, 100.0), (0.0, 0.001)
MBIT = 400.0
#: The least wanted share of the bare stream in the same direction, for every row.
SHARE = 0.8
#: Rows by the bare stream that each is compared with.
ROWS = {
    "bare stream up": ("insert_batch of 64, wait=False", "trajectory writer", "transition writer"),
    "bare stream down": ("batches of 64", "batches of 64, prefetch=4", "batches of 64, prefetch=16"),
}
#: Rows whose read-ahead the caller limits: shown, with no target.
LIMITED = ("batches of 64, prefetch=4", "batches of 64, prefetch=16")
NEAR, FAR = "reverie-near", "reverie-far"
NEAR_ADDRESS, FAR_ADDRESS = "10.213.7.1", "10.213.7.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
#: Packets that a device keeps until the relay reads them.
DEVICE_QUEUE = 10_000


def main(*, rounds: int, seconds: float, rows: str, out: Path | None, smoke: bool) -> int:
    """Returns the process's exit code: 1 where a row does not reach its share."""
    if missing := unmet():
        print(f"the rows of links cannot be measured here: {missing}", file=sys.stderr)
        return 2
    relay = build_relay()
    links = [(40.0, 0.001)] if smoke else [(trip, loss) for trip in ROUND_TRIPS for loss in LOSSES]
    results = []
    for trip, loss in links:
        with Link(relay, trip, MBIT, loss) as link:
            results.append({"round_trip_ms": trip, "loss": loss, "mbit": measured(link, rounds, seconds, rows)})
        print(line(results[-1]), flush=True)
    if out is not None and not smoke:
        out.write_text(json.dumps({"rate_mbit": MBIT, "seconds": seconds, "links": results}, indent=1) + "\n")
    print(table(results))
    return 0 if smoke or all(reached(result) for result in results) else 1


def unmet() -> str | None:
    """The reason why this machine cannot make links; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no `ip`; install iproute2"
    return None if Path("/dev/net/tun").exists() else "the kernel has no TUN devices (/dev/net/tun)"


def build_relay() -> Path:
    """The relay's program."""
    source = ROOT / "crates" / "reverie-net" / "examples" / "wan_relay.rs"
    program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "wan_relay"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(exist_ok=True)
        subprocess.run(["rustc", "--edition=2024", "-O", str(source), "-o", str(program)], check=True)
    return program


class Link(contextlib.ExitStack):
    """Two namespaces and the relay between them; gone at the end of the `with` block."""

    def __init__(self, relay: Path, round_trip_ms: float, mbit: float, loss: float) -> None:
        super().__init__()
        devices = []
        try:
            for space, own in ((NEAR, NEAR_ADDRESS), (FAR, FAR_ADDRESS)):
                ip("netns", "add", space)
                self.callback(ip, "netns", "delete", space)
                devices.append(tun(space, f"{own}/24"))
                self.callback(os.close, devices[-1])
            arguments = [str(relay), str(round_trip_ms / 2), str(mbit), str(loss), "7"]
            process = subprocess.Popen(arguments, stdin=devices[0], stdout=devices[1])
            self.callback(process.wait)
            self.callback(process.kill)
        except BaseException:
            self.close()
            raise

    def start(self, space: str, *arguments: object) -> subprocess.Popen[str]:
        """A worker of `wan_work` in a namespace."""
        command = ["ip", "netns", "exec", space, sys.executable, "-W", "ignore", "-m", "benchmarks.wan_work"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([*command, *map(str, arguments)], **pipes)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def tun(space: str, address: str) -> int:
    """A new device in the namespace, as a descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", space.encode(), IFF_TUN | IFF_NO_PI))
    ip("link", "set", space, "netns", space)
    inside = ("netns", "exec", space, "ip")
    ip(*inside, "link", "set", space, "up", "txqueuelen", str(DEVICE_QUEUE))
    ip(*inside, "address", "add", address, "dev", space)
    return device


def measured(link: Link, rounds: int, seconds: float, rows: str) -> dict[str, list[float]]:
    """Megabits per second of each row, one figure a round; the rows take turns."""
    names = [name for bare, ours in ROWS.items() for name in (bare, *ours) if name == bare or rows in name]
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for at in range(len(names)):
            name = names[(at + turn) % len(names)]
            with serving(link) as address:
                work = link.start(FAR, name, address, seconds)
                answer, _ = work.communicate()
            if work.returncode:
                raise RuntimeError(f"the row '{name}' failed")
            found[name].append(float(answer))
    return found


@contextlib.contextmanager
def serving(link: Link) -> Iterator[str]:
    """A fresh server for a row: what one row leaves on its way must not slow the next."""
    server = link.start(NEAR, "serve", NEAR_ADDRESS)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


def shares(result: dict[str, Any]) -> dict[str, float]:
    """The share of the bare stream that each row reached: a ratio of medians."""
    medians = {name: statistics.median(figures) for name, figures in result["mbit"].items()}
    return {name: medians[name] / medians[bare] for bare, ours in ROWS.items() for name in ours if name in medians}


def reached(result: dict[str, Any]) -> bool:
    return all(share >= SHARE for name, share in shares(result).items() if name not in LIMITED)


def line(result: dict[str, Any]) -> str:
    parts = [f"{name} {statistics.median(figures):.1f}" for name, figures in result["mbit"].items()]
    return f"{result['round_trip_ms']} ms, {result['loss']:.1%} lost: {', '.join(parts)} Mbit/s"


def table(results: list[dict[str, Any]]) -> str:
    """Shares of the bare stream, and in brackets the least and the most Mbit/s."""
    names = list(results[0]["mbit"])
    head = "| round trip | lost | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 2)
    rows = []
    for result in results:
        share = shares(result)
        cells = []
        for name, figures in result["mbit"].items():
            spread = f"{min(figures):.0f} to {max(figures):.0f} Mbit/s"
            cells.append(f"x{share[name]:.2f} ({spread})" if name in share else spread)
        rows.append(f"| {result['round_trip_ms']} ms | {result['loss']:.1%} | " + " | ".join(cells) + " |")
    return "\n".join([head, *rows])
