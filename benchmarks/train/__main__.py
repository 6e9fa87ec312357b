"""`python -m benchmarks.train`: Ape-X DQN against Stable-Baselines3's DQN on CartPole-v1, in one run.

Both train from the same seeds in turns, alone on the machine, each in a process of its own, and are judged by the same
greedy evaluator at the same environment steps. The clock runs from the first environment step, evaluations included.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..peers import ROOT, Peer, python_of
from ..report import machine

SB3 = Peer("sb3-train", "sb3", ("stable-baselines3==2.9.2", "gymnasium==1.4.0", "torch==2.15.0", "numpy==2.4.6"))
OURS = Peer("reverie", "ours")
PEERS = {"reverie": OURS, "sb3": SB3}
FIGURES = (
    ("first_475_seconds", "seconds to a first greedy 475", "{:.1f}"),
    ("first_475_steps", "environment steps to it", "{:,.0f}"),
    ("confirmed_seconds", "seconds until 20 other episodes agree", "{:.1f}"),
    ("confirmed_steps", "environment steps to it", "{:,.0f}"),
    ("seconds", "seconds in all", "{:.1f}"),
    ("env_steps_per_second", "environment steps/s", "{:,.0f}"),
    ("trained_samples_per_second", "trained samples/s", "{:,.0f}"),
    ("held_after", "share of later evaluations that hold 475", "{:.2f}"),
    ("mean_return", "mean return of the last weights", "{:.1f}"),
)


def main() -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train", description=__doc__)
    parser.add_argument("--seeds", default="0,1,2,3,4", help="comma-separated (%(default)s)")
    parser.add_argument("--steps", type=int, default=50_000, help="environment steps at most (%(default)s, the zoo's)")
    parser.add_argument("--to-the-end", action="store_true", help="go on after the confirmation: shows who holds it")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of both (%(default)s)")
    parser.add_argument("--peers", default="reverie,sb3", help="who takes part (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder for the results")
    options = parser.parse_args()
    names = options.peers.split(",")
    if unknown := set(names) - set(PEERS):
        parser.error(f"unknown peers {sorted(unknown)}; there are {', '.join(PEERS)}")
    interpreters = {name: python_of(PEERS[name]) for name in names}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn, seed in enumerate(int(seed) for seed in options.seeds.split(",")):
        for k in range(len(names)):
            name = names[(turn + k) % len(names)]
            result = train(interpreters[name], PEERS[name], seed, options)
            runs[name].append(result)
            print(f"==> {name}, seed {seed}: {summary(result)}", file=sys.stderr, flush=True)
    document = {"machine": machine(), "threads": options.threads, "steps": options.steps, "runs": runs}
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / datetime.datetime.now().strftime("%Y-%m-%d-%H%M-train")
    stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    stem.with_suffix(".md").write_text(table(document) + "\n")
    print(table(document))
    print(stem.with_suffix(".json"))
    return 0


def train(python: Path, peer: Peer, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One training run in a fresh process; its last line is the result."""
    arguments = ["--seed", str(seed), "--steps", str(options.steps), "--threads", str(options.threads)]
    arguments += ["--to-the-end"] if options.to_the_end else []
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("VIRTUAL_ENV", "PYTHON"))}
    environment |= {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": str(options.threads)}
    worker = Path(__file__).parent / f"{peer.worker}.py"
    done = subprocess.run(
        [python, "-W", "ignore", worker, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return judge(result)


def judge(result: dict[str, Any]) -> dict[str, Any]:
    """Adds what follows from the curve: `[env_steps, seconds, screening mean, confirmation mean or None]` a point."""
    curve, target = result["curve"], result["target"]
    first = next((p for p in curve if p[2] >= target), None)
    confirmed = next((p for p in curve if p[3] is not None and p[3] >= target), None)
    later = [p for p in curve if confirmed and p[0] > confirmed[0]]
    return result | {
        "first_475_steps": first and first[0],
        "first_475_seconds": first and first[1],
        "confirmed_steps": confirmed and confirmed[0],
        "confirmed_seconds": confirmed and confirmed[1],
        "held_after": sum(p[2] >= target for p in later) / len(later) if later else None,
        "env_steps_per_second": result["env_steps"] / result["seconds"],
        "trained_samples_per_second": result["trained_samples"] / result["seconds"],
    }


def summary(result: dict[str, Any]) -> str:
    """One line for a person who waits."""
    if result["confirmed_seconds"] is None:
        return f"not confirmed in {result['env_steps']:,} steps, {result['seconds']:.1f} s"
    return f"confirmed after {result['confirmed_steps']:,} steps, {result['confirmed_seconds']:.1f} s"


def table(document: dict[str, Any]) -> str:
    """Medians over the seeds with the least and the most; a seed that never got there counts as the worst."""
    where, runs = document["machine"], document["runs"]
    names = list(runs)
    head = " | ".join(f"{name}: median | least to most | seeds" for name in names)
    out = [
        f"CartPole-v1, {where['cpu']}, {where['cores']} cores, {document['threads']} torch threads; "
        + ", ".join(f"{name} {runs[name][0]['version']}" for name in names),
        "",
        f"| | {head} |",
        "|---|" + "---|---|---|" * len(names),
    ]
    for key, label, form in FIGURES:
        cells = []
        for name in names:
            found = [run[key] for run in runs[name]]
            there = sorted(value for value in found if value is not None)
            ranked = there + [float("inf")] * (len(found) - len(there))
            median = statistics.median(ranked)
            spread = f"{form.format(there[0])} to {form.format(there[-1])}" if there else "-"
            cells.append(
                f"{form.format(median) if median < float('inf') else '-'} | {spread} | {len(there)} of {len(found)}"
            )
        out.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(out)


if __name__ == "__main__":
    sys.exit(main())
