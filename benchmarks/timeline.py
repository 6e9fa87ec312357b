"""`python -m benchmarks.timeline`: inserts and draws over time while the disk works.

One server with a journal that syncs once a second and a disk tier of which a third fits into memory. One thread inserts
items of 4 kB, 16 a call; the other draws batches of 64 as fast as they come. Items are evicted all the time, so that
files of chunks are compacted. In the middle a checkpoint is taken. With `--plain` the server has neither.

For each window of `--window` seconds: inserted items per second, and the 50th, 99th and 99.9th percentile and the
longest of the draws' seconds. Next to them: syncs, the checkpoint, bytes written again by compaction. The figures go to
a JSON file, and a picture next to it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from reverie import Client, Journal, Server, Table, rate_limiters, selectors

from .peers import ROOT
from .report import machine

RESULTS = ROOT / "benchmarks" / "results"
SIZE, AT_ONCE, BATCH = 4_000, 16, 64
PERCENTILES = (50.0, 99.0, 99.9)


def insert(client: Client, counts: list[int], end: threading.Event) -> None:
    """Inserts items of noise until `end`; the last number of `counts` is that of the items."""
    generator = np.random.default_rng(1)
    noise = generator.integers(0, 2**32, (AT_ONCE, SIZE // 4), dtype=np.uint32)
    while not end.is_set():
        client.insert_batch("t", {"x": (noise + np.uint32(counts[0])).view(np.uint8)})
        counts[0] += AT_ONCE


def work(made: Server, seconds: float, window: float, plain: bool) -> dict[str, Any]:
    """Draws for so long while another thread inserts; returns the windows and when the checkpoint began and ended."""
    client, counts, end = made.client(), [0], threading.Event()
    checkpoint: list[float] = []

    def take(began: float) -> None:
        checkpoint.append(time.perf_counter() - began)
        made.client().checkpoint()
        checkpoint.append(time.perf_counter() - began)

    writer = threading.Thread(target=insert, args=(made.client(), counts, end))
    writer.start()
    while counts[0] < 4 * BATCH and writer.is_alive():
        time.sleep(0.01)
    began = time.perf_counter()
    taker = threading.Thread(target=take, args=(began,))
    windows: list[dict[str, Any]] = []
    draws: list[float] = []
    next_at, before = window, counts[0]
    try:
        while (now := time.perf_counter() - began) < seconds:
            client.sample_batch("t", BATCH)
            draws.append(time.perf_counter() - began - now)
            if now + draws[-1] < next_at:
                continue
            at, info = now + draws[-1], client.info()
            lengths = np.percentile(draws, PERCENTILES)
            windows.append(
                {
                    "at": at,
                    "inserts_per_second": (counts[0] - before) / (at - (next_at - window)),
                    "draws": len(draws),
                    "percentiles": [float(length) for length in lengths],
                    "longest": max(draws),
                    "syncs": info.journal.syncs if info.journal else 0,
                    "compacted_bytes": info.disk.compacted_bytes if info.disk else 0,
                    "chunks_on_disk": info.disk.num_chunks if info.disk else 0,
                }
            )
            draws, before, next_at = [], counts[0], at + window
            if not plain and at >= seconds / 2 and taker.ident is None:
                taker.start()
    finally:
        end.set()
        writer.join()
        if taker.ident is not None:
            taker.join()
    return {"windows": windows, "checkpoint": checkpoint}


def picture(runs: dict[str, dict[str, Any]], path: Path) -> None:
    """Inserts above, draws below, one colour for each run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(10, 6), sharex=True)
    for (name, run), colour in zip(runs.items(), ("#4878a8", "#999999"), strict=False):
        at = [window["at"] for window in run["windows"]]
        above.plot(at, [window["inserts_per_second"] for window in run["windows"]], color=colour, label=name)
        for nth, style in enumerate((":", "--", "-")):
            lengths = [1e3 * window["percentiles"][nth] for window in run["windows"]]
            below.plot(at, lengths, style, color=colour, label=f"{name}, {PERCENTILES[nth]:g} %")
        for axes in (above, below):
            if run["checkpoint"]:
                axes.axvspan(*run["checkpoint"], color="#c03030", alpha=0.2)
        syncs = [window["syncs"] for window in run["windows"]]
        for one, (left, right) in zip(at[1:], itertools.pairwise(syncs), strict=True):
            if right > left:
                above.axvline(one, color="black", linewidth=0.3)
    above.set_ylabel("inserted items per second")
    above.legend(loc="lower right")
    below.set_ylabel("ms of a draw of 64")
    below.set_yscale("log")
    below.set_xlabel("seconds (thin lines: syncs of the journal; red: a checkpoint)")
    below.legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def measure(folder: Path, seconds: float, window: float, items: int, plain: bool) -> dict[str, Any]:
    """A run of a server that holds so many items."""
    table = Table("t", selectors.Uniform(), selectors.Fifo(), items, rate_limiters.MinSize(1))
    with tempfile.TemporaryDirectory(dir=folder, prefix="reverie-timeline-") as made_in:
        at = Path(made_in)
        if plain:
            made = Server([table], listen=False)
        else:
            journal = Journal(at / "journal", sync="interval", interval=1.0, checkpoint_period=None)
            memory = items * SIZE // 3
            made = Server([table], listen=False, journal=journal, disk=at / "disk", memory_bytes=memory)
        with made as server:
            return work(server, seconds, window, plain)


def main() -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timeline", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT, help="a folder on the disk to measure (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run (%(default)s)")
    parser.add_argument("--window", type=float, default=0.25, help="seconds of a figure (%(default)s)")
    parser.add_argument("--items", type=int, default=60_000, help="of the table (%(default)s)")
    parser.add_argument("--smoke", action="store_true", help="small and short: shows that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the JSON and the picture")
    given = parser.parse_args()
    seconds, window, items = (1.0, 0.25, 3_000) if given.smoke else (given.seconds, given.window, given.items)
    runs = {}
    for name, plain in (("journal and disk tier", False), ("neither", True)):
        print(f"==> {name}", file=sys.stderr, flush=True)
        runs[name] = measure(given.folder, seconds, window, items, plain)
    for name, run in runs.items():
        rates = np.median([one["inserts_per_second"] for one in run["windows"]])
        longest = max(one["longest"] for one in run["windows"])
        middle = [np.median([one["percentiles"][nth] for one in run["windows"]]) for nth in range(len(PERCENTILES))]
        shown = ", ".join(f"{1e3 * of:.2f} ms" for of in middle)
        print(f"{name}: {rates:,.0f} items/s; draws {shown}; the longest {1e3 * longest:.1f} ms")
    if given.smoke:
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{time.strftime('%Y-%m-%d-%H%M', time.gmtime())}-timeline.json"
    sizes = {"item_bytes": SIZE, "items_a_call": AT_ONCE, "batch": BATCH, "items": items, "percentiles": PERCENTILES}
    path.write_text(json.dumps({"suite": "timeline", "machine": machine(), **sizes, "runs": runs}, indent=1) + "\n")
    picture(runs, path.with_suffix(".png"))
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
