"""`reverie data record`: a policy plays, and its episodes become a data set."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from reverie.cli import data_flags as flags
from reverie.cli import exits
from reverie.cli.common import find_modules_here, refuse, require_agents
from reverie.cli.sizes import size

EPILOG = (
    "Exit codes: 0 done; 2 invalid arguments, a policy that cannot be read, a PATH that is there already, or a disk"
    " without room; 3 the environment raised; 130 interrupted, also by SIGTERM. Only 0 leaves a file."
)


def record(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="POLICY", help="A run's folder (its newest checkpoint), one checkpoint, or a .safetensors file."
        ),
    ],
    target: flags.Target,
    steps: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Play whole episodes until they have at least N steps."),
    ] = None,
    episodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Play N episodes.")] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Take the best actions (default: with the policy's exploration).")
    ] = False,
    random_actions: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="SHARE", help="Share of the actions that are drawn uniformly instead."),
    ] = 0.0,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Seed of the actions and of the first episode; the next ones have N + 1, N + 2 and so on.",
        ),
    ] = 50_000,
    format: flags.OutFormat = flags.DatasetFormat.parquet,
    option: flags.Option = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="AGENT", help="The agent as module:agent, if it is not found by the name in POLICY."),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Play a policy in the environment that it was trained in, and write the episodes as a data set.

    Its columns are obs, action, reward, terminated and truncated. `iql`, `cql` and `cql-sac` train from it. Exploration
    is that of `policy(observation, greedy=False)` in Python.
    """
    require_agents()
    find_modules_here()
    from reverie.policies import load_policy
    from reverie.runners import record_episodes

    if (steps is None) == (episodes is None):
        refuse("give the amount to play: --steps N, or --episodes N")
    try:
        options = flags.options_of(format, option)
        policy = load_policy(path, agent=agent)
    except (ValueError, OSError, ImportError) as error:
        refuse(error)
    console = Console(stderr=True)
    with (
        exits.sigterm_as_ctrl_c(),
        exits.errors_reported("nothing was written"),
        Status("recording", console=console) as status,
    ):
        if not console.is_terminal:
            status.stop()
        try:
            found = record_episodes(
                policy,
                target,
                steps=steps,
                episodes=episodes,
                greedy=greedy,
                random_actions=random_actions,
                seed=seed,
                format=format.value,
                progress=lambda done, number: status.update(f"recording: {done:,} steps in {number:,} episodes"),
                **options,
            )
        except (ValueError, ImportError) as error:
            refuse(error)
    written = sum(file.stat().st_size for file in [target, *target.rglob("*")] if file.is_file())
    played = found.episodes
    rate = played.success_rate
    succeeded = "" if rate is None else f"; {rate:.0%} succeeded"
    print(
        f"{found.num_steps:,} steps in {played.num_episodes:,} episodes of {policy.agent.name} on"
        f" {policy.spec.env_id} to {target}, {size(written)}: mean return {played.mean_return:.1f}"
        f" ({min(played.returns):.1f} to {max(played.returns):.1f}{succeeded}), {found.num_rows:,} rows, seeds"
        f" {played.seeds[0]} to {played.seeds[-1]}, in {found.seconds:.1f} s",
        file=sys.stderr if as_json else sys.stdout,
    )
    if as_json:
        document = {
            "path": str(target),
            "format": found.format,
            "agent": policy.agent.name,
            "env_id": policy.spec.env_id,
            "policy": str(policy.path),
            "steps": found.num_steps,
            "rows": found.num_rows,
            "episodes": played.num_episodes,
            "mean_return": played.mean_return,
            "seeds": list(played.seeds),
            "returns": list(played.returns),
            "lengths": list(played.lengths),
            "success_rate": rate,
            "seconds": found.seconds,
            "file_bytes": written,
        }
        print(json.dumps(document), flush=True)
