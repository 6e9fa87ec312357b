"""The main job on Pong: the Nature network, 84 x 84 x 4, eight trained samples for each environment step, on the CPU.

All contenders alternate. Each trains alone on the machine, in a process of its own, for some seconds after learning has
begun; the figures are environment steps and trained samples per second. Next to them is the same network's bare loop:
the learner's update in plain PyTorch on one batch that never changes, with no replay and no environment. A short run
like this learns nothing; docs/results.md has what is learned.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..peers import ROOT, Peer, python_of
from ..report import machine
from .kept import Kept

ATARI = ("ale-py==0.12.1", "torch==2.15.0", "opencv-python-headless==5.0.0.93")
SB3 = Peer("sb3-pong", "pong_sb3", ("stable-baselines3==2.9.2", "gymnasium==1.4.0", *ATARI))
RLLIB = Peer("rllib", "pong_rllib", ("ray[rllib]==2.60.0", *ATARI))
BATCH = 512
"""The size of a batch of all but SB3."""
PEERS: dict[str, tuple[Peer, tuple[str, ...]]] = {
    "reverie fp32": (Peer("reverie", "pong_ours"), ("--precision", "float32")),
    "reverie bf16": (Peer("reverie", "pong_ours"), ("--precision", "bfloat16")),
    "bare fp32": (Peer("reverie", "pong_bare"), ("--precision", "float32")),
    "bare bf16": (Peer("reverie", "pong_bare"), ("--precision", "bfloat16")),
    "sb3": (SB3, ()),
    "rllib": (RLLIB, ()),
}
TARGETS = (
    ("env_steps_per_second", "reverie bf16", "sb3", 2.0),
    ("env_steps_per_second", "reverie bf16", "rllib", 3.5),
    ("learner_samples_per_second", "reverie fp32", "bare fp32", 0.85),
    ("learner_samples_per_second", "reverie bf16", "bare bf16", 0.85),
)
ACTING = ("act", "env step", "append")
"""Parts of a turn that are the actors': the learner's rate is that of the rest, since all share the same cores."""
STARTING = 600
"""Seconds that a peer may take to start and to fill its replay."""


def main(options: Any, kept: Kept) -> dict[str, Any]:
    """All rounds; a document for `table`."""
    names = list(PEERS) if options.peers is None else options.peers.split(",")
    interpreters = {name: python_of(PEERS[name][0]) for name in names}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(options.rounds):
        for k in range(len(names)):
            name = names[(turn + k) % len(names)]
            result = kept.part(
                f"{name.replace(' ', '-')}-{turn}", lambda name=name: measure(name, interpreters, options)
            )
            runs[name].append(result)
            print(f"==> {name}, round {turn}: {summary(result)}", file=sys.stderr, flush=True)
    return {"work": "pong", "machine": machine(), "threads": options.threads, "seconds": options.seconds, "runs": runs}


def measure(name: str, interpreters: dict[str, Path], options: Any) -> dict[str, Any]:
    """One turn in a fresh process; its last line is the result."""
    peer, arguments = PEERS[name]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("VIRTUAL_ENV", "PYTHON"))}
    environment |= {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": str(options.threads)}
    words = ["--seconds", str(options.seconds), "--threads", str(options.threads), *arguments]
    if "--precision" in arguments:
        words += ["--batch", str(32 if options.smoke else BATCH)]
    done = subprocess.run(
        [interpreters[name], "-W", "ignore", Path(__file__).parent / f"{peer.worker}.py", *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=STARTING + 10 * options.seconds,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def of_learner(result: dict[str, Any]) -> dict[str, Any]:
    """Adds the trained samples of a second that the actors left to the learner; None where the shares are not known."""
    acts, shares = result["env_steps_per_second"] is not None, result.get("shares")
    left = (1.0 - sum(shares.get(part, 0.0) for part in ACTING) if shares else None) if acts else 1.0
    return result | {"learner_samples_per_second": result["samples_per_second"] / left if left else None}


def summary(result: dict[str, Any]) -> str:
    """One line of progress."""
    steps = result["env_steps_per_second"]
    acting = "" if steps is None else f"{steps:,.0f} environment steps/s, "
    return f"{acting}{result['samples_per_second']:,.0f} trained samples/s"


def table(document: dict[str, Any]) -> str:
    """Medians over the rounds, ratios of medians against the targets, and where our time went."""
    where = document["machine"]
    runs = {name: [of_learner(result) for result in results] for name, results in document["runs"].items()}
    out = [
        f"ALE/Pong-v5, 8 trained samples for each environment step; {where['cpu']}, {where['cores']} cores,"
        f" {document['threads']} torch threads, {document['seconds']:g} s a turn",
        "",
        "| | network, batch | environment steps/s: median, least to most | trained samples/s: median, least to most"
        " | the same of the learner's own time |",
        "|---|---|---|---|---|",
    ]
    for name, results in runs.items():
        keys = ("env_steps_per_second", "samples_per_second", "learner_samples_per_second")
        cells = " | ".join(_spread([one[key] for one in results]) for key in keys)
        out.append(f"| {name} ({results[0]['version']}) | {results[0]['what']} | {cells} |")
    rows = []
    for key, ours, theirs, target in TARGETS:
        if ours in runs and theirs in runs:
            ratio = _median(runs[ours], key) / _median(runs[theirs], key)
            reached = "yes" if ratio >= target else "NO"
            label = key.removesuffix("_per_second").replace("_", " ")
            rows.append(f"| {label}, {ours} to {theirs} | {ratio:.2f} | {target:g} | {reached} |")
    if rows:
        out += ["", "| | ratio of medians | target | reached |", "|---|---|---|---|", *rows]
    for name in ("reverie fp32", "reverie bf16"):
        if name in runs:
            shares = runs[name][-1]["shares"]
            shares = ", ".join(
                f"{part} {100 * share:.1f} %" for part, share in sorted(shares.items(), key=lambda p: -p[1])
            )
            out += ["", f"Time of {name}: {shares}."]
    return "\n".join(out)


def _median(results: list[dict[str, Any]], key: str) -> float:
    return statistics.median(one[key] for one in results)


def _spread(values: list[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{statistics.median(there):,.0f}, {min(there):,.0f} to {max(there):,.0f}" if there else "-"
