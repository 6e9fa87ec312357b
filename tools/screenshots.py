"""The pictures of the guide "Watch a server", from a server that works: `python tools/screenshots.py FOLDER`.

Needs Debian's packages `chromium` and `fonts-dejavu-core`. Each picture has less than 150 kB, or it is an error.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, expect, sync_playwright

from reverie import Client, ClosedError, Server, Table, rate_limiters, selectors
from reverie.sharding import shard_figures, shard_table

MOST_BYTES = 150_000
#: Seconds of a wait that ends only where something is broken.
PATIENT = 100
#: Seconds for which the lines of the rates grow.
WORK = 20
#: Points of each seed's learning curve in the picture of several seeds.
LEAST_POINTS = 8
NUM_SEEDS = 3


def tables() -> list[Table]:
    """One that keeps a ratio, one that cannot be sampled yet, and a full queue."""
    limiter = rate_limiters.SampleToInsertRatio(8.0, 100, 400.0)
    return [
        Table("replay", selectors.Prioritized(0.6), selectors.Fifo(), 500, limiter),
        Table("evaluation", selectors.Uniform(), selectors.Fifo(), 10_000, rate_limiters.MinSize(500)),
        Table.queue("rollouts", 4),
    ]


def frame(step: int) -> np.ndarray:
    """A ball and two paddles, 84 x 84."""
    picture = np.zeros((84, 84), np.uint8)
    x, y = 8 + (7 * step) % 66, 8 + (5 * step) % 66
    picture[y : y + 3, x : x + 3] = 236
    picture[max(4, y - 8) : y + 8, 4:7] = 147
    picture[max(4, 70 - y) : 86 - y, 77:80] = 147
    return picture


class Work:
    """Threads that write and sample, so that the rates are not zero and the rollouts' writer waits."""

    def __init__(self, client: Client) -> None:
        self._client, self._end = client, threading.Event()
        works = (self._write, self._learn, self._roll_out)
        self._threads = [threading.Thread(target=self._until_closed, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def _until_closed(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(ClosedError):
            work()

    def _write(self) -> None:
        step = 0
        with self._client.trajectory_writer(num_keep_alive_refs=4) as writer:
            while not self._end.wait(0.005):
                writer.append(
                    {"frame": frame(step), "action": np.int64(step % 4), "reward": np.float32(np.sin(step / 9))}
                )
                step += 1
                if step >= 4:
                    columns = {name: column[-4:] for name, column in writer.history.items()}
                    writer.create_item("replay", 1.0 + abs(np.sin(step)), columns)
                if step % 25 == 0:
                    self._client.insert({"return": np.float32(step % 21)}, {"evaluation": 1.0})

    def _learn(self) -> None:
        rng = np.random.default_rng(3)
        while not self._end.wait(0.04):
            drawn = self._client.sample_batch("replay", 32)
            self._client.update_priorities("replay", drawn.info.key, rng.random(32) + 0.1)

    def _roll_out(self) -> None:
        while not self._end.wait(0.05):
            self._client.insert({"rollout": np.zeros(128, np.float32)}, {"rollouts": 1.0})

    def stop(self, server: Server) -> None:
        """Ends the threads; the stop of the server ends what waits there."""
        self._end.set()
        server.stop()
        for thread in self._threads:
            thread.join()


def take(browser: Browser, address: str, folder: Path) -> None:
    """Takes each picture."""
    wide = browser.new_context(viewport={"width": 1040, "height": 400}, color_scheme="light")
    page = wide.new_page()
    page.goto(f"http://{address}/")
    expect(page.get_by_role("article")).to_have_count(3)
    page.wait_for_timeout(WORK * 1000)
    page.screenshot(path=folder / "overview.png", full_page=True)
    page.goto(f"http://{address}/#replay")
    expect(page.locator("#items canvas").first).to_be_visible()
    items = page.get_by_role("heading", name="Items", exact=True).bounding_box()
    first = page.locator("#items article").first.bounding_box()
    assert items is not None
    assert first is not None
    top, end = items["y"] - 8, first["y"] + first["height"] + 16
    page.screenshot(path=folder / "table.png", full_page=True, clip={"x": 0, "y": 0, "width": 1040, "height": top})
    page.screenshot(
        path=folder / "items.png", full_page=True, clip={"x": 0, "y": top, "width": 1040, "height": end - top}
    )
    page.goto(f"http://{address}/#/clients")
    expect(page.locator("#clients tbody tr")).to_have_count(4)
    page.screenshot(path=folder / "clients.png", full_page=True)
    phone = browser.new_context(viewport={"width": 390, "height": 760}, color_scheme="dark")
    page = phone.new_page()
    page.goto(f"http://{address}/")
    expect(page.get_by_role("article")).to_have_count(3)
    page.wait_for_timeout(WORK * 1000)
    page.screenshot(path=folder / "phone.png")


def take_shards(browser: Browser, folder: Path) -> None:
    """Takes the picture of three servers that are one replay, one of which has stopped."""
    table = Table("replay", selectors.Prioritized(0.6), selectors.Fifo(), 30_000, rate_limiters.MinSize(1))
    with contextlib.ExitStack() as stack:
        shards, limiter = shard_table(table, 3)
        servers = [stack.enter_context(Server([one], shard=at, http=0)) for at, one in enumerate(shards)]
        clients = [Client(server.address, transport="grpc", patience=1.0) for server in servers]
        client = stack.enter_context(Client(clients, rate_limiter=limiter))
        for shard, steps in enumerate((9000, 5000, 2000)):
            client.insert_batch("replay", {"obs": np.zeros((steps, 4), np.float32)}, shard=shard)
        client.sample_batch("replay", 32)
        servers[2].stop()
        while all(shard.present for shard in client.info().shards):
            pass
        figures = {"agent": "apex-dqn", "env": "CartPole-v1", "env_steps": 16_000, "updates": 0}
        servers[0].publish({**figures, "shards": shard_figures(client.info())})
        page = browser.new_context(viewport={"width": 1040, "height": 200}, color_scheme="light").new_page()
        page.goto(f"http://{servers[0].http_address}/#/shards")
        expect(page.locator("#shards article")).to_have_count(3)
        page.screenshot(path=folder / "shards.png", full_page=True)


def take_seeds(browser: Browser, folder: Path) -> None:
    """Takes the picture of a run with three seeds, as `reverie train` shows it."""
    with tempfile.TemporaryDirectory() as out:
        command = [
            sys.executable,
            "-m",
            "reverie",
            "train",
            "dqn",
            "--env",
            "CartPole-v1",
            "--seeds",
            f"0-{NUM_SEEDS - 1}",
            "--jobs",
            str(NUM_SEEDS),
        ]
        command += ["--http", "0", "--out", f"{out}/runs", "--threads", "1"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert process.stdout is not None
            url = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+/", line)))
            threading.Thread(target=process.stdout.read, daemon=True).start()
            while len(long := [seed for seed in seeds_of(url) if len(seed["curve"]) >= LEAST_POINTS]) < NUM_SEEDS:
                print(f"{len(long)} of {NUM_SEEDS} seeds have {LEAST_POINTS} points", end="\r", flush=True)
                time.sleep(0.2)
            page = browser.new_context(viewport={"width": 1040, "height": 400}, color_scheme="dark").new_page()
            page.goto(url)
            expect(page.locator("#run tbody tr")).to_have_count(NUM_SEEDS)
            page.screenshot(path=folder / "seeds.png", full_page=True)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def seeds_of(url: str) -> list[dict[str, Any]]:
    """The figures of each seed of a run; none before it has begun."""
    with urllib.request.urlopen(f"{url}api/run") as response:
        figures = json.load(response)
    return [] if figures is None else list(figures["seeds"])


def main(folder: Path) -> None:
    """Shows a server that works, and takes the pictures of it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("the program chromium is missing; install Debian's package chromium")
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENT * 1000)
    with Server(tables(), http=0) as server:
        work = Work(server.client())
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                with contextlib.ExitStack() as stack:
                    for transport in ("shared-memory", "shared-memory", "grpc", "grpc"):
                        client = stack.enter_context(Client(server.address, transport=transport))
                        # They wait behind the rollouts of the server's own writer: their bytes are in flight.
                        rows = np.random.default_rng(3).random((2000 if transport == "grpc" else 20, 128), np.float32)
                        client.insert_batch("rollouts", {"rollout": rows}, wait=False)
                    take(browser, server.http_address, folder)
                take_shards(browser, folder)
                take_seeds(browser, folder)
                browser.close()
        finally:
            work.stop(server)
    for picture in sorted(folder.glob("*.png")):
        size = picture.stat().st_size
        print(f"{picture}: {size} bytes")
        if size > MOST_BYTES:
            raise SystemExit(f"{picture} has {size} bytes, more than {MOST_BYTES}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
