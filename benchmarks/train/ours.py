"""One Ape-X DQN run on CartPole-v1 with its preset; the last line of stdout is the result as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
from importlib.metadata import version

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.runners import Evaluated, Event, train


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--until-max-steps", action="store_true")
    options = parser.parse_args()
    curve: list[tuple[int, float, float, float | None]] = []

    def note(event: Event) -> None:
        if isinstance(event, Evaluated):
            second = event.confirmation.mean_return if event.confirmation else None
            curve.append((event.point.env_steps, event.point.seconds, event.point.mean_return, second))

    preset = apex_dqn.load_preset("CartPole-v1")
    run = dataclasses.replace(preset.run, max_env_steps=options.steps, threads=options.threads)
    result = train(
        apex_dqn,
        "CartPole-v1",
        seed=options.seed,
        run=run,
        stop_when_confirmed=not options.until_max_steps,
        on_event=note,
    )
    print(
        json.dumps(
            {
                "seed": options.seed,
                "version": version("reverie"),
                "target": run.target_return,
                "env_steps": result.env_steps,
                "seconds": result.seconds,
                "mean_return": result.evaluation.mean_return,
                "trained_samples": result.replay["samples"],
                "activities": dict(result.activities),
                "curve": curve,
            }
        )
    )


if __name__ == "__main__":
    main()
