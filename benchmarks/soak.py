"""`python -m benchmarks.soak --minutes 10`: does the memory of a run stay flat?

Trains Ape-X DQN with a small table that is full soon, and no end but the time: on CartPole-v1 with every role in a
process of its own, or on `--env ALE/Pong-v5`, whose batches of frames try the allocator, or in one process with
`--runner local`. Every second the private memory of all processes is added up (`Pss` of Linux: shared memory is counted
once).
Written as JSON: the megabytes of each tenth of the time, and what an hour would add to them, by the second half alone
(the first fills tables, caches and the allocators' pools).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.runners import Event, Progress, RoleRestarted, StoppedError, train

from .report import machine

CAPACITY = 5_000


def descendants(root: int) -> list[int]:
    """The process and all below it that live."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def megabytes(pids: list[int]) -> float:
    """Private memory of these processes together, and their parts of what they share."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it ended meanwhile
            continue
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def main() -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="(%(default)s)")
    parser.add_argument("--env", default="CartPole-v1", help="one that has a preset (%(default)s)")
    parser.add_argument("--runner", choices=("process", "local"), default="process", help="(%(default)s)")
    parser.add_argument("--num-actors", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--num-shards", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--out", type=Path, help="a file for the JSON, in addition to what is printed")
    options = parser.parse_args()
    preset = apex_dqn.load_preset(options.env)
    config = dataclasses.replace(
        preset.config,
        num_actors=options.num_actors,
        capacity=CAPACITY,
        learning_starts=min(preset.config.learning_starts, CAPACITY // 5),
    )
    run = dataclasses.replace(
        preset.run, target_return=10_000.0, max_env_steps=10**9, evaluate_every=20_000, checkpoint_every=20_000
    )
    seen: list[tuple[float, float]] = []
    last: list[Progress] = []
    restarted: list[str] = []
    began: list[float] = []

    def on_event(event: Event) -> None:
        if isinstance(event, RoleRestarted):
            restarted.append(event.role)
        if not isinstance(event, Progress):
            return
        last[:] = [event]
        if not began and event.updates:
            began.append(time.monotonic())
        if began and (not seen or time.monotonic() - began[0] - seen[-1][0] >= 1.0):
            seen.append((time.monotonic() - began[0], megabytes(descendants(os.getpid()))))

    runner = functools.partial(
        train, runner=options.runner, num_shards=1 if options.runner == "local" else options.num_shards
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            runner(
                apex_dqn,
                options.env,
                config=config,
                run=run,
                on_event=on_event,
                folder=Path(folder),
                should_stop=lambda: bool(began) and time.monotonic() - began[0] > 60 * options.minutes,
            )
        except StoppedError as stopped:
            print(stopped, file=sys.stderr)
    found = {
        "machine": machine(),
        "env_id": options.env,
        "runner": options.runner,
        "minutes": options.minutes,
        "env_steps": last[0].env_steps,
        "updates": last[0].updates,
        "restarted": restarted,
        "megabytes by tenths of the time": tenths(seen),
        "megabytes an hour would add": round(3600 * slope(seen[len(seen) // 2 :]), 1),
    }
    print(json.dumps(found))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def tenths(seen: list[tuple[float, float]]) -> list[float]:
    """Medians of ten parts of equal length."""
    parts = [seen[len(seen) * i // 10 : len(seen) * (i + 1) // 10] for i in range(10)]
    return [round(statistics.median(value for _, value in part), 1) for part in parts if part]


def slope(seen: list[tuple[float, float]]) -> float:
    """Growth in a second: the median of the slopes of all pairs (Theil and Sen)."""
    pairs = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(seen) for b in seen[i + 1 :] if b[0] > a[0]]
    return statistics.median(pairs) if pairs else 0.0


if __name__ == "__main__":
    sys.exit(main())
