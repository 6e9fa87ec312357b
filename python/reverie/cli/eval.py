"""`reverie eval`: greedy episodes of a checkpoint."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from reverie.cli.common import find_modules_here, refuse, require_agents


def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="A run's folder (its newest checkpoint), or one checkpoint.")],
    episodes: Annotated[int, typer.Option(min=1, help="Greedy episodes, on as many fixed seeds.")] = 20,
    first_seed: Annotated[
        int, typer.Option(min=0, help="Episodes begin from this seed and those that follow it.")
    ] = 30_000,
    video: Annotated[
        Path | None, typer.Option(help="Write the first of them as a video, an .mp4 (reverie[video]).", metavar="FILE")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object as the last line of stdout; all else goes to stderr.")
    ] = False,
) -> None:
    """Play greedy episodes with the weights of CHECKPOINT, on seeds that training and its evaluations never use.

    Exit codes: 0 the episodes were played; 2 the checkpoint cannot be read.
    """
    require_agents()
    find_modules_here()
    from reverie import agents
    from reverie.agents.core import Weights
    from reverie.agents.environments import describe
    from reverie.cli import video as videos
    from reverie.runners import Evaluator, checkpoints

    try:
        if video is not None:
            videos.check(video)
        path = checkpoints.find(checkpoint)
        state = checkpoints.load(path)
        identity = state["identity"]
        agent, spec = agents.find(identity["agent"]), describe(identity["environment"])
        preset = agent.load_preset(spec.env_id, path / checkpoints.PRESET)
        policy = agent.make_policy(spec, preset.config)
        policy.load(Weights(*state["weights"]))
    except (ValueError, OSError) as error:
        refuse(error)
    evaluator = Evaluator(spec.env_id, episodes)
    try:
        evaluation = evaluator.evaluate(policy, range(first_seed, first_seed + episodes))
    finally:
        evaluator.close()
    print(
        f"{identity['agent']} on {spec.env_id} after {state['env_steps']:,} environment steps: mean return"
        f" {evaluation.mean_return:.1f} over {episodes} greedy episodes ({min(evaluation.returns):.1f} to"
        f" {max(evaluation.returns):.1f}; target {preset.run.target_return:g})",
        file=sys.stderr if as_json else sys.stdout,
    )
    if video is not None:
        try:
            score, pictures = videos.record(spec.env_id, policy, first_seed, video)
        except videos.VideoError as error:
            refuse(error)
        print(
            f"video: {video}, {pictures:,} pictures, return {score:.1f}, seed {first_seed}",
            file=sys.stderr if as_json else sys.stdout,
        )
    if as_json:
        found = {
            "agent": identity["agent"],
            "env_id": spec.env_id,
            "seed": identity["seed"],
            "env_steps": state["env_steps"],
            "mean_return": evaluation.mean_return,
            "num_episodes": episodes,
            "returns": list(evaluation.returns),
            "checkpoint": str(path),
            **({} if video is None else {"video": str(video)}),
        }
        print(json.dumps(found), flush=True)
