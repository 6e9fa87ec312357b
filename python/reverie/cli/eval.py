"""`reverie eval`: greedy episodes of a trained policy."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reverie.cli import exits
from reverie.cli.common import LastLineJson, find_modules_here, refuse, require_agents

if TYPE_CHECKING:
    from reverie.agents.environments import EnvSpec


def evaluate(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="POLICY", help="A run's folder (its newest checkpoint), one checkpoint, or a .safetensors file."
        ),
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
        typer.Option(metavar="AGENT", help="The agent as module:agent, if it is not found by the name in POLICY."),
    ] = None,
    log: Annotated[
        bool,
        typer.Option(
            "--log",
            help="Add the mean return and the video to the run's logs in Weights & Biases and MLflow; POLICY is its"
            " folder.",
        ),
    ] = False,
    as_json: LastLineJson = False,
) -> None:
    """Play greedy episodes with the weights of POLICY, on seeds that training and its evaluations do not use.

    Exit codes: 0 the episodes were played; 2 the policy cannot be read; 3 the environment raised; 130 interrupted.
    """
    require_agents()
    find_modules_here()
    from reverie.cli import tracked_run
    from reverie.cli import video as videos
    from reverie.policies import load_policy
    from reverie.runners import Evaluator
    from reverie.runners.reports.sinks.sink import RunDescription

    stream = sys.stderr if as_json else sys.stdout
    try:
        if video is not None:
            videos.check(video)
        trackers = tracked_run.open_logs(path) if log else []
        policy = load_policy(path, agent=agent)
        _check_environment(policy.spec)
    except (ValueError, OSError, ImportError) as error:
        refuse(error)
    env_id, played, run = policy.spec.env_id, policy.spec.for_evaluation().env_id, policy.run
    target = "no target" if run.target_return is None else f"target {run.target_return:g}"
    with exits.errors_reported("no result"), closing(Evaluator(policy.spec, episodes)) as evaluator:
        evaluation = evaluator.evaluate(policy, range(first_seed, first_seed + episodes))
    rate = evaluation.success_rate
    succeeded = "" if rate is None else f"{rate:.0%} succeeded; "
    print(
        f"{policy.agent.name} on {played} after {run.env_steps:,} environment steps: mean return"
        f" {evaluation.mean_return:.1f} over {episodes} greedy episodes ({min(evaluation.returns):.1f} to"
        f" {max(evaluation.returns):.1f}; {succeeded}{target})",
        file=stream,
    )
    if video is not None:
        try:
            score, frames = videos.record(policy.spec, policy, first_seed, video)
        except videos.VideoError as error:
            refuse(error)
        print(f"video: {video}, {frames:,} frames, return {score:.1f}, seed {first_seed}", file=stream)
    if trackers:
        description = RunDescription(
            name=path.name,
            settings={"agent": policy.agent.name, "env_id": env_id, "seed": run.seed},
            env_steps=run.env_steps,
        )
        tracked_run.add(trackers, description, path, evaluation.mean_return, video)
    if as_json:
        found = {
            "agent": policy.agent.name,
            "env_id": env_id,
            "seed": run.seed,
            "env_steps": run.env_steps,
            "mean_return": evaluation.mean_return,
            "num_episodes": episodes,
            "returns": list(evaluation.returns),
            "lengths": list(evaluation.lengths),
            "success_rate": rate,
            "checkpoint": str(policy.path),
            **({} if video is None else {"video": str(video)}),
        }
        print(json.dumps(found), flush=True)


def _check_environment(trained: EnvSpec) -> None:
    """Raise ValueError if the environment cannot be made here, or is another one than a policy was trained in."""
    from reverie.agents.environments import describe

    here = describe(trained.env_id, trained.settings)
    found = here.difference(trained)
    if found is not None:
        raise ValueError(
            f"{found.subject} {found.this} in {trained.env_id} here, and {found.other} where the policy was trained:"
            " install the version of the environment that it was trained in"
        )
