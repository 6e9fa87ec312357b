"""The arguments and flags of `reverie train`, as its --help groups them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from reverie import agents
from reverie.cli.common import LAST_LINE_JSON


class Runner(enum.Enum):
    """Where the roles of a run are executed."""

    local = "local"
    process = "process"
    ray = "ray"


Agent = Annotated[
    str,
    typer.Argument(
        metavar="AGENT", help=f"One of {', '.join(agents.BUILT_IN)}; of another package its name, or module:agent."
    ),
]
Env = Annotated[str, typer.Option(metavar="ENV", help="Gymnasium environment.")]
Seed = Annotated[
    int | None,
    typer.Option(metavar="N", help="Any integer; the same seed gives the same run, times apart.", show_default="0"),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A preset file in place of the agent's own for ENV, or the name of another: paper, or an environment's"
        " such as CartPole-v1.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="One setting of the preset changed (--dry-run lists them); may be given often.",
    ),
]
Out = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="The run's folder (by default runs/AGENT-ENV-seed-N).")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in the run's folder.")]
ToTheEnd = Annotated[
    bool, typer.Option("--to-the-end", help="Train on to max_env_steps when the target is reached and confirmed.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would run and what memory it needs, and end.")]
_TELLS = "What it tells"
TensorBoard = Annotated[
    bool | None,
    typer.Option(
        help="Write TensorBoard's files too (by default where tensorboard is installed).", rich_help_panel=_TELLS
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Say nothing but what went wrong, and the result in one line.",
        rich_help_panel=_TELLS,
    ),
]
Json = Annotated[bool, typer.Option("--json", help=LAST_LINE_JSON, rich_help_panel=_TELLS)]

_SEVERAL = "Several seeds"
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        "--sweep",
        metavar="SEEDS",
        help="As 0-4 or 0,2,5: one run after the other.",
        rich_help_panel=_SEVERAL,
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Runs at a time.", show_default="1", rich_help_panel=_SEVERAL)
]

_WHERE = "Where it runs"
Where = Annotated[
    Runner,
    typer.Option(
        metavar="RUNNER",
        help="local: one process and one thread; process: a process for every role; ray: an actor of a Ray cluster.",
        rich_help_panel=_WHERE,
    ),
]
NumShards = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Servers that the replay is spread over; not for local.", rich_help_panel=_WHERE
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Ray's cluster, such as auto; only for ray, and by default one on this machine for this run.",
        rich_help_panel=_WHERE,
    ),
]

CheckMemory = Annotated[
    bool,
    typer.Option(
        help="Refuse a run that is estimated to need more memory than is free, on Ray on any of its nodes.",
        rich_help_panel=_WHERE,
    ),
]
Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="[COUNTx]MEMORY[,CPUS[,GPUS]]",
        help="Nodes of a cluster that --dry-run plans for, such as 15x64GB,16; only for ray, and may be given often.",
        rich_help_panel=_WHERE,
    ),
]

_SHORT = "Settings of the preset: each is short for --set NAME=VALUE"
NumActors = Annotated[int | None, typer.Option(min=1, metavar="N", help="Actors.", rich_help_panel=_SHORT)]
EnvsPerActor = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Environments of each actor.", rich_help_panel=_SHORT)
]
NumLearners = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Learners, of agents that have several.", rich_help_panel=_SHORT),
]
NumParameterShards = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Parts of the parameter server, of agents that have one.", rich_help_panel=_SHORT
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        "--max-steps",
        "--total-timesteps",
        min=1,
        metavar="N",
        help="Environment steps at most: max_env_steps.",
        rich_help_panel=_SHORT,
    ),
]
TargetReturn = Annotated[
    float | None,
    typer.Option(metavar="X", help="Mean greedy return at which the run ends.", rich_help_panel=_SHORT),
]
BatchSize = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Items that an update learns from.", rich_help_panel=_SHORT)
]
LearningRate = Annotated[
    float | None, typer.Option(metavar="X", help="Of agents with one optimiser.", rich_help_panel=_SHORT)
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        help="Where learner and policies compute: cpu, cuda, cuda:N, or auto, which is cuda where there is one and the"
        " agent computes on it.",
        rich_help_panel=_SHORT,
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(metavar="PRECISION", help="float32, or bfloat16 for all layers but the last.", rich_help_panel=_SHORT),
]
Threads = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="PyTorch's threads of the learner.", rich_help_panel=_SHORT)
]
