"""One run of an agent of this package for `classic`; the last line of stdout is the result as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from importlib.metadata import version
from typing import Any

from reverie import agents
from reverie.runners import Event, Progress, train


def settings(wanted: dict[str, Any]) -> dict[str, Any]:
    """The agent's settings that have other names or units here."""
    widths = tuple(wanted["hidden"])
    own = {"num_actors": 1, "envs_per_actor": wanted["num_envs"]}
    if wanted["agent"] == "ppo":
        unrolls = {"unroll_length": wanted["unroll"], "minibatch_size": wanted["batch"], "epochs": wanted["epochs"]}
        return {**own, **unrolls, "hidden": widths}
    drawn = wanted["batch"] / wanted["steps_per_update"]
    own |= {"batch_size": wanted["batch"], "samples_per_insert": drawn, "learning_starts": wanted["learning_starts"]}
    return own | (
        {"hidden": widths} if wanted["agent"] == "dqn" else {"policy_hidden": widths, "critic_hidden": widths}
    )


def main() -> None:
    wanted = json.loads(sys.argv[1])
    agent, end = agents.find(wanted["agent"]), wanted["warm_up"] + wanted["steps"]
    preset = agent.load_preset(wanted["env"])
    config = dataclasses.replace(preset.config, **settings(wanted))
    run = dataclasses.replace(
        preset.run,
        max_env_steps=end,
        evaluate_every=2 * end,  # at the end only
        screening_episodes=1,
        confirmation_episodes=1,
        threads=1,
        compile=wanted.get("compile", "on"),
    )
    points: list[tuple[int, int, float]] = []

    def note(event: Event) -> None:
        # The last one repeats the steps of the one before, after the evaluations at the end.
        new = isinstance(event, Progress) and (not points or event.env_steps > points[-1][0])
        if isinstance(event, Progress) and new and event.env_steps >= wanted["warm_up"]:
            points.append((event.env_steps, event.updates, time.process_time()))

    result = train(agent, wanted["env"], config=config, run=run, stop_when_confirmed=False, on_event=note)
    if len(points) < 2:  # Progress comes ten times a second
        sys.exit(
            f"the steps after the warm-up took less than a tenth of a second: more than {wanted['steps']} are needed"
        )
    (steps, updates, began), (last_steps, last_updates, ended) = points[0], points[-1]
    gradient_steps = (
        wanted["epochs"] * wanted["num_envs"] * wanted["unroll"] / wanted["batch"] if "epochs" in wanted else 1
    )
    print(
        json.dumps(
            {
                "version": version("reverie"),
                "steps_per_second": (last_steps - steps) / (ended - began),
                "updates_per_step": (last_updates - updates) * gradient_steps / (last_steps - steps),
                "updates_compiled": result.learner.get("updates_compiled", 0),
                "activities": dict(result.activities),
                "seconds": result.seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
