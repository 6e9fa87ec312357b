"""`reverie demo`: watch Ape-X DQN learn on an embedded replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reverie.cli import exits, page_flags
from reverie.cli.common import LastLineJson, exit_code, refuse, require_agents

if TYPE_CHECKING:
    from reverie.runners import Result


def demo(
    env: Annotated[str, typer.Option(help="Gymnasium environment with discrete actions.")] = "CartPole-v1",
    seed: Annotated[int, typer.Option(help="Any integer. The same seed gives the same run, except for its times.")] = 0,
    as_json: LastLineJson = False,
    plot: Annotated[
        Path | None, typer.Option(help="File for the learning curve, a .png (default: runs/demo-ENV-seed-N.png).")
    ] = None,
    http: page_flags.Http = None,
    token_file: page_flags.PageToken = None,
    tls_cert: page_flags.PageCert = None,
    tls_key: page_flags.PageKey = None,
    insecure: page_flags.PageInsecure = False,
    preset: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "--preset",
            metavar="FILE",
            help="Preset file to use instead of the one for ENV, as for `reverie train`.",
        ),
    ] = None,
) -> None:
    """Train Ape-X DQN with a prioritised replay buffer in this process, until greedy evaluation reaches the target.

    Shows progress during training. At the end it shows the evaluation on 20 other episodes, the learning curve, the
    replay buffer's counters, and the time spent in each activity.
    """
    require_agents()
    from reverie.agents.apex_dqn import agent
    from reverie.cli import curve, report
    from reverie.runners import plan, train
    from reverie.runners.planning.page_address import page_address

    shown = page_flags.page(http, token_file, tls_cert, tls_key, insecure=insecure)
    path = plot or Path("runs") / f"demo-{env.replace('/', '_')}-seed-{seed}.png"
    try:
        curve.check_writable(path)
        page = None if shown is None else page_address(shown, "local")
        plan(agent, env, seed=seed, preset=preset)
    except (ValueError, OSError, MemoryError) as error:
        refuse(error)
    with exits.errors_reported("nothing was saved"), report.ProgressView(to_stderr=as_json) as progress:
        result = train(agent, env, seed=seed, preset=preset, on_event=progress, http=page)
    report.show(result, curve.save(result, path), to_stderr=as_json)
    if as_json:
        print(json.dumps(as_object(result)), flush=True)
    raise typer.Exit(exit_code(result.confirmed, result.topology.run.target_return))


def as_object(result: Result) -> dict[str, object]:
    """The object for `--json`, with exactly these six names."""
    return {
        "env_id": result.topology.env.env_id,
        "env_steps": result.env_steps,
        "seconds": round(result.seconds, 3),
        "mean_return": result.evaluation.mean_return,
        "num_episodes": result.evaluation.num_episodes,
        "seed": result.topology.seed,
    }
