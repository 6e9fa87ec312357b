"""Steps of an actor with EnvPool next to those with environments of Gymnasium that are stepped one after the other.

`python -m benchmarks.envpool` prints a row for each pair and number of environments; `--rows cartpole` chooses. Both
take turns; figures are medians of five turns, of steps per second of processor time (all threads) and by the clock. An
actor is measured whole: the policy, the environments, and the writer of dqn. `environments` is the vector alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import reverie
from reverie import agents
from reverie.agents.core import Stopwatch
from reverie.agents.environments import describe, make_vector

TURNS = 5
PAIRS = {"cartpole": ("CartPole-v1", "envpool:CartPole-v1"), "pong": ("ALE/Pong-v5", "envpool:Pong-v5")}


def actor(env_id: str, num_envs: int) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A step of dqn's actor with weights that never change, and a function that ends it."""
    dqn, spec = agents.find("dqn"), describe(env_id)
    config = dqn.load_preset(env_id).config
    config = dataclasses.replace(config, num_actors=1, envs_per_actor=num_envs, capacity=2_000, learning_starts=1)
    tables = [
        one.replace(rate_limiter=reverie.rate_limiters.MinSize(1)) for one in dqn.make_tables(spec, config, seed=0)
    ]
    server = reverie.Server(tables, listen=False)
    client = server.client()
    learner = dqn.make_learner(spec, config, client, seed=0, watch=Stopwatch())
    one = dqn.make_actor(spec, config, client, learner, index=0, seed=0, watch=Stopwatch())

    def step() -> None:
        one.act()
        one.settle()

    def end() -> None:
        one.close()
        server.stop()

    return step, end


def environments(env_id: str, num_envs: int) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A step of the vector alone, as actors get it, with random actions."""
    spec = describe(env_id)
    envs = make_vector(spec, num_envs, newest_frames=True)
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    return lambda: envs.step(rng.integers(spec.num_actions or 1, size=num_envs)), envs.close


def row(name: str, made: Callable[[str, int], Any], pair: tuple[str, str], num_envs: int, seconds: float) -> None:
    """Prints the medians of both, and their ratios."""
    both = [made(env_id, num_envs) for env_id in pair]
    figures: list[list[tuple[float, float]]] = [[], []]
    for turn in range(TURNS + 1):
        for (step, _), seen in zip(both, figures, strict=True):
            steps, wall, cpu = 0, time.perf_counter(), time.process_time()
            while time.perf_counter() - wall < seconds:
                step()
                steps += num_envs
            if turn:  # The first turn warms up.
                seen.append((steps / (time.process_time() - cpu), steps / (time.perf_counter() - wall)))
    for _, end in both:
        end()
    for place, unit in enumerate(("processor time", "the clock")):
        ours, pool = ([one[place] for one in seen] for seen in figures)
        shown = [f"{statistics.median(seen):,.0f} ({min(seen):,.0f} to {max(seen):,.0f})" for seen in (ours, pool)]
        ratio = statistics.median(pool) / statistics.median(ours)
        print(
            f"{name}, {num_envs} environments, per second of {unit}: {shown[0]}, EnvPool {shown[1]}, ratio {ratio:.2f}"
        )


def main() -> None:
    """Print the chosen rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", choices=list(PAIRS), default=list(PAIRS))
    parser.add_argument("--envs", nargs="*", type=int, default=[8, 64])
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for chosen in given.rows:
        for num_envs in given.envs:
            row(f"{chosen}, environments", environments, PAIRS[chosen], num_envs, given.seconds)
            row(f"{chosen}, actor of dqn", actor, PAIRS[chosen], num_envs, given.seconds)


if __name__ == "__main__":
    main()
