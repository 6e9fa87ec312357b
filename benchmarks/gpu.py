"""Benchmarks of a GPU: `python benchmarks/gpu.py speed`, then `python benchmarks/gpu.py curve --minutes 8`.

Needs Reverie's wheel, PyTorch, Gymnasium, safetensors and this file alone; the curve of a game needs ale-py too. Each
call ends within ten minutes. `speed` measures the learner of Ape-X DQN on frames (512 of 84 x 84 x 4, the Nature
network with 3.3 million parameters): a bare loop on one batch that stays on the device; the learner with batches drawn
ahead and sent there while it computes, as with the runner `process`; with batches drawn when asked for, as in one
process; and the policy's own inference. `curve` trains on Pong for so many minutes and goes on from there when it is
called again. `compiled` measures the learner's update as it is and through `torch.compile`, which needs a C++ compiler,
for CartPole's small network and for frames. All write JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import reverie
from reverie.adapters.torch import to_torch
from reverie.agents import presets
from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import CompilePlan, Stopwatch, Weights
from reverie.agents.environments import EnvSpec
from reverie.agents.learning import WEIGHTS
from reverie.agents.replay import TABLE
from reverie.runners import StoppedError, train
from reverie.runners.planning.devices import networks_on
from reverie.runners.reports import logs

FRAMES = EnvSpec(
    env_id="frames of chance",
    obs_shape=(4, 84, 84),
    obs_dtype="uint8",
    num_actions=6,
    action_space="Discrete(6)",
    reward_threshold=None,
    frame_stack=4,
    reward_bound=1.0,
)
"""The spaces of an Atari game, without a game: the measurements do not depend on what the frames show."""
CARTPOLE = EnvSpec(
    env_id="CartPole-v1",
    obs_shape=(4,),
    obs_dtype="float32",
    num_actions=2,
    action_space="Discrete(2)",
    reward_threshold=475.0,
)
ENVS, WARM_UP = 8, 5


def main() -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=["speed", "curve", "compiled"])
    parser.add_argument("--device", default="cuda", help="%(default)s, or cpu to see that this runs")
    parser.add_argument(
        "--out", type=Path, default=Path("gpu"), help="folder for the JSON files and runs (%(default)s)"
    )
    parser.add_argument("--batch", type=int, default=512, help="items of a batch (%(default)s)")
    parser.add_argument("--items", type=int, default=50_000, help="in the table while speed is measured (%(default)s)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of every row of speed (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every row of speed (%(default)s)")
    parser.add_argument("--threads", type=int, default=4, help="of PyTorch (%(default)s)")
    parser.add_argument("--env", default="ALE/Pong-v5", help="of the curve (%(default)s)")
    parser.add_argument("--minutes", type=float, default=8.0, help="of the curve, then it saves and ends (%(default)s)")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="NAME=VALUE, as `reverie train --set`"
    )
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"PyTorch {torch.__version__} finds no CUDA here; --device cpu shows that the script runs")
    options.out.mkdir(parents=True, exist_ok=True)
    works = {"speed": speed, "curve": curve, "compiled": compiled}
    return works[options.work](options)


def machine(device: str) -> dict[str, Any]:
    """The device, versions and cores that the benchmark runs on."""
    cuda = device.startswith("cuda")
    return {
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "cuda": torch.version.cuda if cuda else None,
        "torch": torch.__version__,
        "reverie": version("reverie"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def write(path: Path, found: dict[str, Any]) -> None:
    """The results as JSON, in a file and on the standard output."""
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found), flush=True)


# Speed.


def speed(options: argparse.Namespace) -> int:
    """All rows, alternating."""
    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {"machine": machine(options.device), "batch": options.batch, "items": options.items}
    for precision in ("float32", "bfloat16"):
        found[precision] = precision_rows(options, precision)
    found["inference, observations a second"] = inference_rows(options)
    write(options.out / "speed.json", found)
    return 0


def precision_rows(options: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Batches a second of every way to feed the same learner, alternating; and each as a share of the bare loop."""
    config = settings(options, precision)
    with reverie.Server(apex_dqn.make_tables(FRAMES, config, seed=0), listen=False) as server:
        client = server.client()
        fill(client, options.items)
        # Only the learner is measured: no actor inserts while it runs.
        client.configure(TABLE, rate_limiter=reverie.rate_limiters.MinSize(1))
        plain, recorded = learners(options, config, client)
        ones = torch.ones(options.batch, device=options.device)
        fixed = {**to_torch(client.sample_batch(TABLE, options.batch), options.device).data, WEIGHTS: ones}
        drawn: list[Any] = []

        def gathered() -> None:
            if not drawn:  # the turn of this row begins
                drawn.append(client.batches(TABLE, options.batch))
            next(drawn[0])

        def bare(learner: Any) -> Callable[[], None]:
            def one() -> None:
                if drawn:
                    drawn.pop().close()
                learner._updated(fixed, lambda columns: learner._update(columns, columns[WEIGHTS]))[0].cpu().numpy()
                learner.version += 1

            return one

        def drawing(learner: Any, ahead: int) -> Callable[[], None]:
            def one() -> None:
                if learner._draws.ahead != ahead:  # the turn of this row begins
                    for each in (plain, recorded):
                        each.draw_ahead(0)
                    learner.draw_ahead(ahead)
                while ahead and not learner.fetch():
                    time.sleep(1e-4)
                learner.learn()

            return one

        ways = {
            "gathered, and not learnt from": gathered,
            "bare loop": bare(plain),
            "bare loop, recorded": bare(recorded),
            "drawn ahead": drawing(plain, 2),
            "drawn ahead, recorded": drawing(recorded, 2),
            "drawn when asked for": drawing(plain, 0),
        }
        rates = in_turns(ways if options.device.startswith("cuda") else without_recordings(ways), options)
        for learner in (plain, recorded):
            learner.draw_ahead(0)
    bare_rate = rates["bare loop"]
    return {
        "batches a second": rates,
        "of the bare loop": {way: rate / bare_rate for way, rate in rates.items()},
    }


def learners(options: argparse.Namespace, config: Any, client: Any) -> tuple[Any, Any]:
    """A learner that makes each update by single operations, and one that records them on a GPU."""
    with networks_on(options.device):
        plain, recorded = (apex_dqn.make_learner(FRAMES, config, client, seed=0, watch=Stopwatch()) for _ in range(2))
    if options.device.startswith("cuda"):
        recorded.compile_updates(CompilePlan(begin=2, use_from=2, required=True))
    return plain, recorded


def without_recordings(ways: dict[str, Any]) -> dict[str, Any]:
    """The rows of a machine without a GPU."""
    return {name: way for name, way in ways.items() if "recorded" not in name}


# The update, compiled.


def compiled(options: argparse.Namespace) -> int:
    """Updates a second as they are and through `torch.compile`, alternating, and the seconds that compiling took."""
    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {"machine": machine(options.device), "threads": options.threads}
    cartpole = apex_dqn.load_preset("CartPole-v1").config
    found["CartPole-v1, float32"] = compiled_rows(options, CARTPOLE, cartpole)
    for precision in ("float32", "bfloat16"):
        found[f"frames, {precision}"] = compiled_rows(options, FRAMES, settings(options, precision))
    write(options.out / "compiled.json", found)
    return 0


def compiled_rows(options: argparse.Namespace, spec: EnvSpec, config: Any) -> dict[str, Any]:
    """One learner's update on a batch of chance that stays on the device."""
    with networks_on(options.device):
        learner: Any = apex_dqn.make_learner(spec, config, None, seed=0, watch=Stopwatch())
        rows = config.batch_size
        torch_dtype = getattr(torch, spec.obs_dtype)
        columns = {
            "obs": torch.randint(0, 256, (rows, *spec.obs_shape)).to(torch_dtype),
            "next_obs": torch.randint(0, 256, (rows, *spec.obs_shape)).to(torch_dtype),
            "action": torch.randint(0, spec.num_actions or 1, (rows,)),
            "reward": torch.randn(rows),
            "discount": torch.rand(rows),
        }
        ones = torch.ones(rows)
    compiled_update = torch.compile(learner._update, dynamic=False)

    def by(update: Callable[..., Any]) -> Callable[[], None]:
        def one() -> None:
            update(columns, ones)[0].double().cpu().numpy()
            learner.version += 1

        return one

    began = time.perf_counter()
    for _ in range(WARM_UP):
        by(compiled_update)()
    seconds = time.perf_counter() - began
    rates = in_turns({"as it is": by(learner._update), "compiled": by(compiled_update)}, options)
    return {
        "updates a second": rates,
        "compiled, of as it is": rates["compiled"] / rates["as it is"],
        "seconds until compiled": seconds,
    }


def settings(options: argparse.Namespace, precision: str) -> Any:
    """The numbers of the paper, whose optimiser and network they are; with the batch that was asked for."""
    preset = apex_dqn.load_preset("ALE/Pong-v5").config
    return dataclasses.replace(
        preset, batch_size=options.batch, capacity=options.items, learning_starts=1, precision=precision
    )


def fill(client: Any, items: int) -> None:
    """Transitions of 3 steps over stacks of 4 frames of chance, as an actor writes them."""
    rng = np.random.default_rng(0)
    writer = client.transition_writer(
        TABLE, n_step=3, discount=0.99, num_envs=ENVS, frame_stack=4, autoreset="disabled"
    )
    none, sent = np.zeros(ENVS, bool), 0
    client.configure(TABLE, rate_limiter=reverie.rate_limiters.MinSize(1))
    while sent < items:
        frame = rng.integers(0, 256, (ENVS, 84, 84), dtype=np.uint8)
        actions, q = rng.integers(0, 6, ENVS), rng.normal(size=ENVS).astype(np.float32)
        extras = {"weights_version": np.zeros(ENVS, np.int64)}
        sent += writer.append(
            frame, actions, rng.normal(size=ENVS), none, none, q_taken=q, bootstrap_value=q, extras=extras
        )
    writer.flush(timeout=60.0)


def in_turns(ways: dict[str, Callable[[], Any]], options: argparse.Namespace) -> dict[str, float]:
    """Calls a second of each: the median of alternating rounds. A single round warms up little: a smoke test."""
    for way in ways.values():
        for _ in range(WARM_UP if options.rounds > 1 else 1):
            way()
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            settle(options.device)
            began, calls = time.perf_counter(), 0
            while time.perf_counter() - began < options.seconds / options.rounds:
                way()
                calls += 1
            settle(options.device)
            rates[name].append(calls / (time.perf_counter() - began))
    return {name: statistics.median(found) for name, found in rates.items()}


def settle(device: str) -> None:
    """Wait until the device has done all queued work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def inference_rows(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Observations a second of the policy that acts, which come from the processor's memory and go back as actions."""
    config, found = settings(options, "float32"), {}
    for device in dict.fromkeys(("cpu", options.device)):
        with networks_on(device):
            policy: Any = apex_dqn.make_policy(FRAMES, config)
            size = apex_dqn.make_learner(FRAMES, config, None, seed=0, watch=Stopwatch()).latest(-1).flat
        policy.load(Weights(0, size))
        rng, found[device] = np.random.default_rng(0), {}
        for count in dict.fromkeys((ENVS, max(options.batch // 8, 1), options.batch)):
            observations = rng.integers(0, 256, (count, 4, 84, 84), dtype=np.uint8)
            ways = {"policy": lambda observations=observations, policy=policy: policy(observations)}
            found[device][str(count)] = count * in_turns(ways, options)["policy"]
    return found


# The curve.


def curve(options: argparse.Namespace) -> int:
    """Trains for some minutes, or on from where the call before ended."""
    folder = options.out / f"apex-dqn-{options.env.replace('/', '_')}"
    until = time.monotonic() + 60 * options.minutes
    wished = [f"device={options.device}", f"threads={options.threads}", *options.settings]
    preset = presets.override(apex_dqn.load_preset(options.env), wished)
    log, goes_on = logs.JsonLines(folder / logs.LOG), False
    try:
        train(
            apex_dqn,
            options.env,
            preset=preset.path,
            config=preset.config,
            run=preset.run,
            on_event=log,
            folder=folder,
            resume=True,
            should_stop=lambda: time.monotonic() > until,
        )
    except StoppedError as stopped:
        goes_on = True
        print(stopped, flush=True)
    finally:
        log.close()
    read = logs.read(folder)
    found = {
        "machine": machine(options.device),
        "env": options.env,
        "settings": wished,
        "target": read.target_return,
        "curve": [list(point) for point in zip(read.env_steps, read.returns, strict=True)],
        "finished": read.finished,
        "goes on with the same command": goes_on,
    }
    write(options.out / "curve.json", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
