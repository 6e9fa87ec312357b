"""Ape-X DQN on Pong with the parts and the turns of the local runner; the last line of stdout is the result as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from importlib.metadata import version

import torch

import reverie
from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.core import Stopwatch
from reverie.agents.environments import describe
from reverie.agents.replay import TABLE

LEARNING_STARTS = 2_000
WARM_UP = 3
"""Updates before the clock starts."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    spec = describe("ALE/Pong-v5")
    preset = apex_dqn.load_preset(spec.env_id).config
    config = dataclasses.replace(
        preset,
        precision=options.precision,
        batch_size=options.batch,
        learning_starts=LEARNING_STARTS,
        samples_per_insert=8.0,
    )
    server = reverie.Server(apex_dqn.make_tables(spec, config, seed=0), listen=False)
    client, watch = server.client(), Stopwatch()
    learner = apex_dqn.make_learner(spec, config, client, seed=1, watch=watch)
    actor = apex_dqn.make_actor(spec, config, client, learner, index=0, seed=2, watch=watch)

    def turn() -> int:
        if client.can_sample(TABLE, options.batch):
            learner.learn()
            return 0
        assert client.can_insert(TABLE, config.inserts_per_act)
        return actor.act()

    while learner.version < WARM_UP:
        turn()
    watch.seconds.clear()
    began, updates, steps = time.perf_counter(), learner.version, 0
    while time.perf_counter() - began < options.seconds:
        steps += turn()
    seconds = time.perf_counter() - began
    shares = {part: spent / seconds for part, spent in watch.seconds.items()}
    info = client.info().tables[TABLE]
    print(
        json.dumps(
            {
                "version": version("reverie"),
                "what": f"dueling 3.3 M, {options.batch}, prioritised, n = {config.n_step}",
                "env_steps_per_second": steps / seconds,
                "samples_per_second": (learner.version - updates) * options.batch / seconds,
                "shares": {**shares, "the loop itself": 1 - sum(shares.values())},
                "bytes_per_item": info.size_bytes / info.current_size,
            }
        )
    )
    actor.close()
    server.stop()


if __name__ == "__main__":
    main()
