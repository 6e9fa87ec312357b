"""Bytes that overlapping sequences take, of one package: `python overlap.py theirs|ours`, a JSON line per case.

Sent: as the system counts for the sockets of the client, so alike for both. Stored: ours as the server counts its
chunks, theirs as the chunks of a checkpoint, which are the messages that the server keeps in memory.
"""

from __future__ import annotations

import glob
import json
import os
import socket
import struct
import subprocess
import sys
import zlib
from typing import Any

import numpy as np

STEPS = 2_000
#: Steps of an item, and steps from the start of one to the start of the next.
SEQUENCES = {"80 steps, every 40": (80, 40), "5 steps, every step": (5, 1)}


#: Offset, in Linux's `struct tcp_info`, of the bytes that the peer has acknowledged (`tcpi_bytes_acked`).
_BYTES_ACKED = 120


def sent_to(port: int) -> int:
    """Bytes that the connections of this process to a port have taken there."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.getpeername()[1] == port:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    total += struct.unpack_from("=Q", info, _BYTES_ACKED)[0]
        except (OSError, IndexError):
            continue  # Closed meanwhile, or a socket of another kind.
    return total


def steps(kind: str) -> Any:
    """Frames of a bright square that moves over a still background; or numbers that nothing compresses."""
    rng = np.random.default_rng(0)
    background = np.repeat(np.arange(0, 84, dtype=np.uint8)[:, None] // 8 * 8, 84, 1)
    for step in range(STEPS):
        if kind == "frames":
            frame = background.copy()
            row, column = (step * 2) % 76, (step * 3) % 76
            frame[row : row + 8, column : column + 8] = 255
            yield {"o": frame, "a": np.int32(step % 6), "r": np.float32(step % 3)}
        else:
            yield {"o": rng.normal(size=64).astype(np.float32), "a": np.int32(step % 6), "r": np.float32(step % 3)}


def chunk_bytes(checkpoint: str) -> int:
    """The length of the chunks of one of dm-reverb's checkpoints: TFRecords in one zlib stream."""
    [path] = glob.glob(os.path.join(checkpoint, "chunks.tfrecord"))
    with open(path, "rb") as file:
        data = zlib.decompress(file.read())
    total = at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        total, at = total + length, at + 16 + length
    return total


def serve(reverb: Any) -> None:
    """A server in a process of its own, so that nothing is handed over but by the network: prints its port."""
    # Two selectors: one that serves as both stops dm-reverb's table for good ("Key ... already inserted").
    first, oldest = reverb.selectors.Fifo(), reverb.selectors.Fifo()
    server = reverb.Server([reverb.Table("t", first, oldest, STEPS, reverb.rate_limiters.MinSize(1))])
    print(server.port, flush=True)
    sys.stdin.read()


def measure(reverb: Any, which: str, kind: str, length: int, period: int) -> dict[str, Any]:
    """One case over a fresh server."""
    ours = which == "ours"
    command = [sys.executable, __file__, which, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        lines = (line for line in server.stdout if line.strip().isdecimal())  # Libraries greet there.
        port = int(next(lines))
        address = f"127.0.0.1:{port}"
        client = reverb.Client(address, transport="grpc") if ours else reverb.Client(address)
        raw, items = write(client, kind, length, period)
        sent = sent_to(port)
        stored = client.info().size_bytes if ours else chunk_bytes(client.checkpoint())
        server.kill()
    return {"raw": raw, "items": items, "sent": sent, "stored": stored}


def write(client: Any, kind: str, length: int, period: int) -> tuple[int, int]:
    """Writes the steps and the items over them: bytes of the steps, and how many items."""
    writer = client.trajectory_writer(num_keep_alive_refs=length)
    raw = items = 0
    for number, step in enumerate(steps(kind), 1):
        writer.append(step)
        raw += sum(np.asarray(value).nbytes for value in step.values())
        if number >= length and (number - length) % period == 0:
            columns = {name: writer.history[name][-length:] for name in step}
            writer.create_item("t", 1.0, columns)
            items += 1
            writer.flush(25)
    writer.flush()
    return raw, items


def main() -> None:
    which = sys.argv[1]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if which == "ours":
        import reverie as reverb
    else:
        import reverb
    if sys.argv[2:] == ["serve"]:
        return serve(reverb)
    for kind in ("frames", "random"):
        for name, (length, period) in SEQUENCES.items():
            print(json.dumps({"case": f"{kind}, {name}", **measure(reverb, which, kind, length, period)}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
