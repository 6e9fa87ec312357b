"""The two ends of a link of `wan.py`: `python -m benchmarks.wan_work ROW ADDRESS SECONDS`, or `serve`.

A row prints the megabits of payload that it moved in each second, after a time that it had to gain speed. Bytes
that are written count when the server has them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

import reverie

TABLE, TOKEN, BATCH, PAYLOAD = "replay", "a-token-of-the-benchmark", 64, 4_096
#: Items that the table holds, and that are there to be read.
CAPACITY, STORED = 20_000, 2_000
BLOCK = bytes(1 << 16)
#: Seconds, and round trips, that a row may take to gain speed.
WARM, WARM_TRIPS = 1.0, 20


def serve(host: str) -> None:
    """A server of Reverie, and one that takes and gives bytes; prints `host:port:port`."""
    listener = socket.create_server((host, 0))
    threading.Thread(target=bare_server, args=(listener,), daemon=True).start()
    table = reverie.Table(
        TABLE,
        sampler=reverie.selectors.Uniform(),
        remover=reverie.selectors.Fifo(),
        max_size=CAPACITY,
        rate_limiter=reverie.rate_limiters.MinSize(1),
    )
    steps = np.random.default_rng(7).standard_normal((STORED, PAYLOAD // 4), dtype=np.float32)
    with reverie.Server([table], host=host, port=0, token=TOKEN, insecure=True) as server:
        server.client().insert_batch(TABLE, {"x": steps})
        print(f"{host}:{server.port}:{listener.getsockname()[1]}", flush=True)
        sys.stdin.read()


def bare_server(listener: socket.socket) -> None:
    """Counts what one connection sends after `up`, or sends for ever after `down`."""
    stream, _ = listener.accept()
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asked = json.loads(stream.makefile("r").readline())
    if asked["way"] == "down":
        with contextlib.suppress(OSError):  # until the client has enough
            while True:
                stream.sendall(BLOCK)
        return
    stream.sendall(f"{received(stream, asked['warm'], asked['seconds'])}\n".encode())
    while stream.recv(1 << 20):
        pass  # until the client has read that: closed with unread bytes, the connection would be reset


def received(stream: socket.socket, warm: float, seconds: float) -> float:
    """Bytes per second that arrive, from `warm` seconds after the first on."""
    buffer, count, since = bytearray(1 << 20), 0, 0.0
    begin = time.perf_counter() + warm
    while (now := time.perf_counter()) < begin + seconds:
        count += stream.recv_into(buffer)
        if not since and now >= begin:
            count, since = 0, now
    return count / (now - since)


def bare(way: str, address: str, warm: float, seconds: float) -> float:
    host, _, port = address.split(":")
    stream = socket.create_connection((host, int(port)))
    stream.sendall((json.dumps({"way": way, "warm": warm, "seconds": seconds}) + "\n").encode())
    if way == "down":
        return received(stream, warm, seconds)
    answers: list[str] = []
    reader = threading.Thread(target=lambda: answers.append(stream.makefile("r").readline()))
    reader.start()
    while not answers:
        stream.sendall(BLOCK)
    return float(answers[0])


def written(watch: reverie.Client, write: Callable[[], None], warm: float, seconds: float) -> float:
    """Bytes per second that the server takes, while `write` goes on; `watch` asks how many."""
    marks, done = [], threading.Event()

    def look() -> None:
        for wait in (warm, seconds):
            time.sleep(wait)
            inserts = watch.server_info()[TABLE].num_inserts
            marks.append((time.perf_counter(), inserts))
        done.set()

    thread = threading.Thread(target=look)
    thread.start()
    while not done.is_set():
        write()
    (begin, before), (end, after) = marks
    return (after - before) * PAYLOAD / (end - begin)


def insert_batch(client: reverie.Client) -> Callable[[], None]:
    data = {"x": np.random.default_rng(1).standard_normal((BATCH, PAYLOAD // 4), dtype=np.float32)}
    return lambda: client.insert_batch(TABLE, data, wait=False)


def trajectory(client: reverie.Client) -> Callable[[], None]:
    data = np.random.default_rng(1).standard_normal((BATCH, PAYLOAD // 4), dtype=np.float32)
    writer = client.trajectory_writer(num_keep_alive_refs=1)

    def write() -> None:
        for step in data:
            writer.append({"x": step})
            writer.create_item(TABLE, 1.0, {"x": writer.history["x"][-1:]})

    return write


def transition(client: reverie.Client) -> Callable[[], None]:
    """One environment; the bytes of a transition are those of its observation, each sent once."""
    obs = np.random.default_rng(1).standard_normal((BATCH, 1, PAYLOAD // 4), dtype=np.float32)
    writer = client.transition_writer(TABLE, num_envs=1)
    never, action, reward = np.zeros(1, bool), np.zeros(1, np.int64), np.zeros(1, np.float32)

    def write() -> None:
        for step in obs:
            writer.append(step, action, reward, never, never)

    return write


def read(client: reverie.Client, prefetch: int | None, warm: float, seconds: float) -> float:
    batches: Iterator[reverie.Batch] = iter(client.batches(TABLE, BATCH, prefetch=prefetch))
    begin, count, since = time.perf_counter() + warm, 0, 0.0
    while (now := time.perf_counter()) < begin + seconds:
        count += next(batches).data["x"].nbytes
        if not since and now >= begin:
            count, since = 0, now
    return count / (now - since)


def main(row: str, address: str, seconds: float) -> float:
    """Megabits per second."""
    host, port, _ = address.split(":")
    client, watch = (reverie.Client(f"{host}:{port}", transport="grpc", token=TOKEN, grace=5.0) for _ in range(2))
    client.server_info(), watch.server_info()
    start = time.perf_counter()
    client.server_info()
    warm = WARM + WARM_TRIPS * min(0.2, time.perf_counter() - start)
    writers = {"insert_batch of 64, wait=False": insert_batch, "trajectory writer": trajectory}
    writers["transition writer"] = transition
    if row.startswith("bare stream"):
        rate = bare(row.split()[-1], address, warm, seconds)
    elif row in writers:
        rate = written(watch, writers[row](client), warm, seconds)
    else:
        _, _, prefetch = row.partition("prefetch=")
        rate = read(client, int(prefetch) if prefetch else None, warm, seconds)
    return rate * 8 / 1e6


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        print(main(sys.argv[1], sys.argv[2], float(sys.argv[3])), flush=True)
        # No caller waits for what is on its way any more.
        os._exit(0)
