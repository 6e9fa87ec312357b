"""`python -m benchmarks.train`: agents and their peers on CartPole-v1 (Ape-X DQN), or `--work pong` or `classic`.

CartPole: all train from the same seeds, alternating, alone on the machine, each in a process of its own. The same
greedy evaluator judges them at the same environment steps. The clock runs from the first environment step, evaluations
included. Pong: rates alone, and a bare torch loop next to them. Classic: DQN, PPO, TD3 and SAC, environment steps of a
processor second. Finished parts are kept until all are: the same command continues an interrupted one.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import last
from ..peers import ROOT, Peer, python_of
from ..report import machine
from . import classic, pong
from .kept import Kept, TimeIsUp

RESULTS = ROOT / "benchmarks" / "results"

RLLIB = replace(pong.RLLIB, worker="rllib")
SB3 = Peer("sb3-train", "sb3", ("stable-baselines3==2.9.2", "gymnasium==1.4.0", "torch==2.15.0", "numpy==2.4.6"))
OURS = Peer("reverie", "ours")
PEERS = {"reverie": OURS, "sb3": SB3, "rllib": RLLIB}
THERE = {"cartpole": PEERS, "pong": pong.PEERS, "classic": classic.PEERS}
"""The peers of each work."""
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
    """Returns the process's exit code: 1 where the time was up."""
    options = _options()
    if options.smoke:
        options.seeds, options.steps, options.rounds, options.seconds = "0", 1_000, 1, 1.0
        options.peers = "reverie fp32,bare fp32" if options.work == "pong" else "reverie"
    wanted = json.dumps({**vars(options), "out": "", "minutes": None, "fresh": None}, sort_keys=True, default=str)
    folder = ROOT / "runs" / "train-bench" / f"{options.work}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    kept = Kept(folder, options.minutes)
    if options.fresh or options.smoke:
        kept.forget()
    work, show = {"cartpole": (cartpole, table), "pong": (pong.main, pong.table)}.get(
        options.work, (classic.main, classic.table)
    )
    try:
        document = work(options, kept)
    except TimeIsUp:
        print(f"==> time is up; the same command goes on from {folder}", file=sys.stderr)
        return 1
    text = show(document)
    print(text)
    if not options.smoke:
        options.out.mkdir(parents=True, exist_ok=True)
        kind = "train" if options.work == "cartpole" else f"train-{options.work}"
        stem = options.out / datetime.datetime.now().strftime(f"%Y-%m-%d-%H%M-{kind}")
        stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        stem.with_suffix(".md").write_text(text + "\n")
        print(stem.with_suffix(".json"))
        if options.out == RESULTS:
            last.write(ROOT / "benchmarks" / "README.md", RESULTS)
    kept.forget()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train", description=__doc__)
    parser.add_argument("--work", choices=tuple(THERE), default="cartpole", help="what to train (%(default)s)")
    parser.add_argument("--peers", help="comma-separated (all): " + "; ".join(map(", ".join, THERE.values())))
    parser.add_argument("--threads", type=int, help="torch threads of each contender (1 on cartpole, 2 on pong)")
    parser.add_argument(
        "--minutes", type=float, help="begin nothing after so long; the same command goes on from there"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier call of this command did")
    parser.add_argument(
        "--smoke", action="store_true", help="short and without peers, kept nowhere: shows that it runs"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--seeds", default="0,1,2,3,4", help="cartpole: comma-separated (%(default)s)")
    parser.add_argument("--steps", type=int, default=50_000, help="cartpole: environment steps at most (%(default)s)")
    parser.add_argument(
        "--until-max-steps",
        action="store_true",
        help="cartpole: train on after the confirmation, to see which library holds the return",
    )
    parser.add_argument("--rounds", type=int, default=5, help="pong, classic: turns of each contender (%(default)s)")
    parser.add_argument("--tasks", help="classic: comma-separated (all): " + ", ".join(classic.TASKS))
    parser.add_argument("--seconds", type=float, default=60.0, help="pong: of training in a turn (%(default)s)")
    options = parser.parse_args()
    there = THERE[options.work]
    if options.peers is not None and (unknown := set(options.peers.split(",")) - set(there)):
        parser.error(f"unknown peers {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    if options.tasks is not None and (strange := set(options.tasks.split(",")) - set(classic.TASKS)):
        parser.error(f"unknown tasks {', '.join(sorted(strange))}; there are {', '.join(classic.TASKS)}")
    options.threads = options.threads or (2 if options.work == "pong" else 1)
    return options


def cartpole(options: argparse.Namespace, kept: Kept) -> dict[str, Any]:
    """All seeds, contenders alternating."""
    names = list(PEERS) if options.peers is None else options.peers.split(",")
    interpreters = {name: python_of(PEERS[name]) for name in names}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn, seed in enumerate(int(seed) for seed in options.seeds.split(",")):
        for k in range(len(names)):
            name = names[(turn + k) % len(names)]
            result = kept.part(
                f"{name}-{seed}", lambda name=name, seed=seed: train(interpreters[name], PEERS[name], seed, options)
            )
            runs[name].append(result)
            print(f"==> {name}, seed {seed}: {summary(result)}", file=sys.stderr, flush=True)
    return {"machine": machine(), "threads": options.threads, "steps": options.steps, "runs": runs}


def train(python: Path, peer: Peer, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One training run in a fresh process; its last line is the result."""
    arguments = ["--seed", str(seed), "--steps", str(options.steps), "--threads", str(options.threads)]
    arguments += ["--until-max-steps"] if options.until_max_steps else []
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
    """One line of progress."""
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
    return "\n".join([*out, *shares(runs.get("reverie", []))])


def shares(runs: list[dict[str, Any]]) -> list[str]:
    """Our time by activity, all seeds together, and the replay's share of the learner's and of the actors'."""
    seconds: dict[str, float] = {}
    for run in runs:
        for activity, spent in run["activities"].items():
            seconds[activity] = seconds.get(activity, 0.0) + spent
    if not seconds:
        return []
    total = sum(seconds.values())
    shares = ", ".join(
        f"{activity} {100 * spent / total:.1f} %" for activity, spent in sorted(seconds.items(), key=lambda p: -p[1])
    )
    replay, appends = seconds["sample"] + seconds["update"], seconds["append"]
    learner, actors = replay + seconds["learn"], appends + seconds["act"] + seconds["env step"]
    return [
        "",
        f"Time of reverie: {shares}. Calls of the replay are {100 * replay / learner:.1f} % of the learner's time and"
        f" {100 * appends / actors:.1f} % of the actors'; in one process no role waits.",
    ]


if __name__ == "__main__":
    sys.exit(main())
