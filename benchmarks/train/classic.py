"""Agents on CartPole-v1 and Pendulum-v1 from end to end, next to Stable-Baselines3 and SBX.

All libraries have the same networks, batches, number of environments, and gradient steps for each environment step,
and alternate, each in a process of its own on one core. The figure is environment steps in a second of that process's
time on the processor, all threads together, after `warm_up` steps, when graphs are compiled. Nothing is evaluated
meanwhile; the environments of SB3 and SBX are those of `make_vec_env`, with its `Monitor`.
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

COMMON = ("gymnasium==1.4.0", "torch==2.15.0", "stable-baselines3==2.9.2")
JAX = ("jax==0.10.2", "flax==0.12.8", "optax==0.2.8")
PEERS = {
    "reverie": Peer("reverie", "classic_ours"),
    "sb3": Peer("sb3-classic", "classic_sb3", COMMON),
    "sbx": Peer("sbx-classic", "classic_sb3", (*COMMON, *JAX, "sbx-rl==0.28.0")),
}
CARTPOLE = {"env": "CartPole-v1", "num_envs": 8, "warm_up": 10_000, "steps": 20_000}
PENDULUM = {"env": "Pendulum-v1", "num_envs": 1, "warm_up": 1_500, "steps": 2_000}
WIDE = {"hidden": [256, 256], "batch": 256, "learning_starts": 1_000, "steps_per_update": 1}
TASKS: dict[str, dict[str, Any]] = {
    "dqn": {**CARTPOLE, "hidden": [128, 128], "batch": 128, "learning_starts": 1_000, "steps_per_update": 4},
    "ppo": {**CARTPOLE, "hidden": [64, 64], "batch": 256, "unroll": 32, "epochs": 20},
    "td3": {**PENDULUM, **WIDE},
    "sac": {**PENDULUM, **WIDE},
}
"""`steps_per_update`: environment steps for each gradient step. PPO makes `epochs` gradient steps of each unroll."""
SMOKE_STEPS = {"dqn": 4_000, "ppo": 4_000, "td3": 400, "sac": 400}
"""Enough for several tenths of a second, by which runs report their progress."""
LIMIT = 1_200
"""Seconds that a turn may take, its imports and its compiling included."""


def main(options: Any, kept: Kept) -> dict[str, Any]:
    """All rounds of all tasks; a document for `table`."""
    names = list(PEERS) if options.peers is None else options.peers.split(",")
    interpreters = {name: python_of(PEERS[name]) for name in names}
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for task in TASKS if options.tasks is None else options.tasks.split(","):
        runs[task] = {name: [] for name in names}
        for turn in range(options.rounds):
            for k in range(len(names)):
                name = names[(turn + k) % len(names)]
                result = kept.part(
                    f"{task}-{name}-{turn}", lambda t=task, n=name: measure(t, n, interpreters[n], smoke=options.smoke)
                )
                check(runs[task], result)
                runs[task][name].append(result)
                said = f"{result['steps_per_second']:,.0f} steps of a processor second"
                print(f"==> {task}, {name}, round {turn}: {said}", file=sys.stderr, flush=True)
    return {"work": "classic", "machine": machine(), "threads": 1, "tasks": TASKS, "runs": runs}


def check(runs: dict[str, list[dict[str, Any]]], result: dict[str, Any]) -> None:
    """Raise ValueError if a run made more or fewer gradient steps for each environment step than those before it."""
    for other in (one for results in runs.values() for one in results):
        ours, theirs = result["updates_per_step"], other["updates_per_step"]
        if abs(ours - theirs) > 0.05 * theirs:
            raise ValueError(f"{ours:.4f} gradient steps for each environment step, and {theirs:.4f} in another run")


def measure(task: str, name: str, python: Path, *, smoke: bool) -> dict[str, Any]:
    """One turn in a fresh process; its last line is the result."""
    short = {"warm_up": 1_100, "steps": SMOKE_STEPS[task], "batch": 32, "hidden": [32], "compile": "off"}
    arguments = json.dumps({"agent": task, "library": name, **TASKS[task], **(short if smoke else {})})
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("VIRTUAL_ENV", "PYTHON"))}
    environment |= {
        "PYTHONPATH": str(ROOT / "python"),
        "OMP_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "JAX_PLATFORMS": "cpu",
    }
    worker = Path(__file__).parent / f"{PEERS[name].worker}.py"
    done = subprocess.run(
        ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), python, "-W", "ignore", worker, arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(document: dict[str, Any]) -> str:
    """Medians over the rounds with the least and the most, and the ratios of the medians."""
    where, runs = document["machine"], document["runs"]
    names = list(next(iter(runs.values())))
    others = [name for name in names if name != "reverie"] if "reverie" in names else []
    versions = next(iter(runs.values()))
    out = [
        f"Environment steps of a processor second, one core; {where['cpu']}, {where['cores']} cores; "
        + ", ".join(f"{name} {versions[name][0]['version']}" for name in names),
        "",
        "| | " + " | ".join([*names, *(f"reverie to {name}" for name in others)]) + " |",
        "|---|" + "---|" * (len(names) + len(others)),
    ]
    for task, results in runs.items():
        rates = {name: [one["steps_per_second"] for one in results[name]] for name in names}
        cells = [f"{statistics.median(all_):,.0f} ({min(all_):,.0f} to {max(all_):,.0f})" for all_ in rates.values()]
        cells += [f"{statistics.median(rates['reverie']) / statistics.median(rates[name]):.2f}" for name in others]
        out.append(f"| {task}, {document['tasks'][task]['env']} | {' | '.join(cells)} |")
    return "\n".join(out)
