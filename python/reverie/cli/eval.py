"""`reverie eval`: greedy episodes of a checkpoint."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reverie.cli.common import LastLineJson, find_modules_here, refuse, require_agents

if TYPE_CHECKING:
    from reverie.agents.core import Policy


def evaluate(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="A run's folder (its newest checkpoint), or one checkpoint.")
    ],
    episodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of greedy episodes, each with its own fixed seed.")
    ] = 20,
    first_seed: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Seed of the first episode; the others use the seeds that follow it."),
    ] = 30_000,
    video: Annotated[
        Path | None,
        typer.Option(help="Write the first episode as a video, an .mp4; needs reverie[video].", metavar="FILE"),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="AGENT", help="The agent as module:agent, if it is not found by the name in the checkpoint."
        ),
    ] = None,
    as_json: LastLineJson = False,
) -> None:
    """Play greedy episodes with the weights of CHECKPOINT, on seeds that training and its evaluations do not use.

    Exit codes: 0 the episodes were played; 2 the checkpoint cannot be read.
    """
    require_agents()
    find_modules_here()
    from reverie.cli import video as videos
    from reverie.runners import Evaluator

    stream = sys.stderr if as_json else sys.stdout
    try:
        if video is not None:
            videos.check(video)
        trained = _load(checkpoint, agent)
    except (ValueError, OSError) as error:
        refuse(error)
    with closing(Evaluator(trained.env_id, episodes)) as evaluator:
        evaluation = evaluator.evaluate(trained.policy, range(first_seed, first_seed + episodes))
    print(
        f"{trained.agent} on {trained.env_id} after {trained.env_steps:,} environment steps: mean return"
        f" {evaluation.mean_return:.1f} over {episodes} greedy episodes ({min(evaluation.returns):.1f} to"
        f" {max(evaluation.returns):.1f}; target {trained.target_return:g})",
        file=stream,
    )
    if video is not None:
        try:
            score, frames = videos.record(trained.env_id, trained.policy, first_seed, video)
        except videos.VideoError as error:
            refuse(error)
        print(f"video: {video}, {frames:,} frames, return {score:.1f}, seed {first_seed}", file=stream)
    if as_json:
        found = {
            "agent": trained.agent,
            "env_id": trained.env_id,
            "seed": trained.seed,
            "env_steps": trained.env_steps,
            "mean_return": evaluation.mean_return,
            "num_episodes": episodes,
            "returns": list(evaluation.returns),
            "checkpoint": str(trained.path),
            **({} if video is None else {"video": str(video)}),
        }
        print(json.dumps(found), flush=True)


@dataclass(frozen=True)
class _Trained:
    """The run of a checkpoint, and its policy."""

    agent: str
    env_id: str
    seed: int
    env_steps: int
    target_return: float
    policy: Policy
    path: Path


def _load(checkpoint: Path, name: str | None) -> _Trained:
    """Load a checkpoint with the agent `name`, by default its own. Raises ValueError or OSError if unreadable."""
    from reverie import agents
    from reverie.agents.core import Weights
    from reverie.agents.environments import describe
    from reverie.runners import checkpoints

    path = checkpoints.find(checkpoint)
    state = checkpoints.load(path)
    identity = state["identity"]
    agent, spec = agents.find(name or identity["agent"]), describe(identity["environment"])
    if agent.name != identity["agent"]:
        raise ValueError(
            f"checkpoint {path} is of the agent {identity['agent']}, and --agent is {agent.name}: name the agent of"
            " the checkpoint"
        )
    preset = agent.load_preset(spec.env_id, path / checkpoints.PRESET)
    policy = agent.make_policy(spec, preset.config)
    policy.load(Weights(*state["weights"]))
    return _Trained(
        identity["agent"],
        spec.env_id,
        identity["seed"],
        state["env_steps"],
        preset.run.target_return,
        policy,
        path,
    )
