"""Seconds of dm-reverb's checkpoint of items of 400 B: `python -m workers.dm_reverb_checkpoint FOLDER ITEMS`."""

from __future__ import annotations

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import reverb

TABLE = "t"


def main() -> int:
    """Prints the seconds as the last line."""
    folder, items = sys.argv[1], int(sys.argv[2])
    checkpointer = reverb.platform.checkpointers_lib.DefaultCheckpointer(path=folder)
    table = reverb.Table(
        TABLE, reverb.selectors.Uniform(), reverb.selectors.Fifo(), items, reverb.rate_limiters.MinSize(1)
    )
    server = reverb.Server([table], checkpointer=checkpointer)
    client = reverb.Client(f"localhost:{server.port}")
    data = np.random.default_rng(2).random((1_000, 100), np.float32)
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for index in range(items):
            writer.append({"x": data[index % len(data)]})
            writer.create_item(TABLE, 1.0, {"x": writer.history["x"][-1:]})
            if index % 200 == 0:
                writer.flush()
    began = time.perf_counter()
    client.checkpoint()
    print(time.perf_counter() - began)
    server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
