"""The arguments and flags of `reverie train`, as its --help groups them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from reverie import agents
from reverie.cli.common import LAST_LINE_JSON, flags_of, refuse
from reverie.cli.short_flags import refuse_settings
from reverie.cli.sizes import HELP, size_in_bytes


class Runner(enum.Enum):
    """The place in which the roles of a run are executed."""

    local = "local"
    process = "process"
    ray = "ray"


RESUME_MUST = "--resume-must"
"""The parser's form of `--resume=must`: a flag takes no value, and an option with one would take the next argument."""


class AgentCommand(TyperCommand):
    """A command whose first argument is an agent: it explains how settings of the agent are given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. A setting in the place of an option ends the command."""
        refuse_settings(args, {name for one in self.get_params(ctx) for name in (*one.opts, *one.secondary_opts)})
        return super().parse_args(ctx, args)


class TrainCommand(AgentCommand):
    """Parses `--resume=must`, next to `--resume` without a value, and `--journal` without one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. A value of `--resume` other than `must` ends the command."""
        end = args.index("--") if "--" in args else len(args)
        for index, one in enumerate(args[:end]):
            if one.startswith("--resume="):
                if (value := one.partition("=")[2]) != "must":
                    refuse(f"--resume is {value!r}, and may only have the value must: --resume=must, or --resume alone")
                args[index] = RESUME_MUST
            if one == "--journal" and (index + 1 == len(args) or args[index + 1].startswith("-")):
                args[index] = "--journal=run"
        return super().parse_args(ctx, args)


Agent = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help=f"One of {', '.join(agents.BUILT_IN)}, the name of another package's agent, or module:agent.",
    ),
]
Env = Annotated[
    str, typer.Option(metavar="ENV", help="Gymnasium environment: its id, or module:name of a class or function.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Any integer. The same seed gives the same run, except for its times.", show_default="0"
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Preset file to use instead of the agent's preset for ENV, or the name of another preset: paper, or an"
        " environment such as CartPole-v1.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a setting of the preset (--dry-run lists them); repeatable.",
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="FOLDER", help="The run's folder (default: runs/AGENT-ENV-seed-N).")]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue from the newest checkpoint in the run's folder; begin a new run if there is none. --resume=must:"
        " end with an error then. --set and other options may change most settings, such as the learning rate.",
    ),
]
ResumeMust = Annotated[bool, typer.Option(RESUME_MUST, hidden=True)]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace the run in the folder, with its log and checkpoints, by a new one."),
]
InitFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="POLICY",
        help="Begin with the weights of a run, a checkpoint or a .safetensors file; all else begins as in a new run."
        " With --resume, only if there is no run to continue.",
    ),
]
UntilMaxSteps = Annotated[
    bool, typer.Option("--until-max-steps", help="Train until max_env_steps, also after the target is confirmed.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan of the run and the memory it needs, and exit.")]
_output = flags_of("Output")
TensorBoard = Annotated[bool | None, _output(help="Also log for TensorBoard (default: if tensorboard is installed).")]
Log = Annotated[
    str | None,
    _output(
        metavar="NAMES",
        help="Logs of the run's scalars in addition to its folder: any of tensorboard, wandb and mlflow, with commas"
        " (default: the preset's, those of the run that --resume continues, or TensorBoard's).",
    ),
]
Project = Annotated[
    str | None,
    _output(
        metavar="NAME",
        help="Project of Weights & Biases and experiment of MLflow.",
        show_default="WANDB_PROJECT, MLFLOW_EXPERIMENT_NAME, or reverie",
    ),
]
Tags = Annotated[
    list[str] | None, _output("--tag", metavar="TAG", help="Tag of the run in Weights & Biases and MLflow; repeatable.")
]
Quiet = Annotated[bool, _output("--quiet", "-q", help="Print only warnings, errors, and the result in one line.")]
Json = Annotated[bool, _output("--json", help=LAST_LINE_JSON)]

_several = flags_of("Several seeds")
Seeds = Annotated[
    str | None,
    _several("--seeds", "--sweep", metavar="SEEDS", help="Seeds such as 0-4 or 0,2,5, with one run for each."),
]
Jobs = Annotated[int | None, _several(min=1, metavar="N", help="Runs at the same time.", show_default="1")]

_where = flags_of("Where it runs")
Where = Annotated[
    Runner,
    _where(
        metavar="RUNNER",
        help="local: one process and one thread; process: a process for each role; ray: a Ray actor for each role.",
    ),
]
NumShards = Annotated[int, _where(min=1, metavar="N", help="Servers that share the replay buffer; not for local.")]
Address = Annotated[
    str | None,
    _where(
        metavar="ADDRESS",
        help="Address of the Ray cluster, such as auto; only for ray (default: start Ray on this machine).",
    ),
]

CheckMemory = Annotated[
    bool, _where(help="Refuse a run that is estimated to need more memory than is free; on Ray, on any of its nodes.")
]
Nodes = Annotated[
    list[str] | None,
    _where(
        "--node",
        metavar="[COUNTx]MEMORY[,CPUS[,GPUS]]",
        help="Nodes of a cluster that --dry-run plans for, such as 15x64GB,16; only for ray; repeatable.",
    ),
]

_short = flags_of("Settings of the preset: each is short for --set NAME=VALUE")
NumActors = Annotated[int | None, _short(min=1, metavar="N", help="Number of actors.")]
EnvsPerActor = Annotated[int | None, _short(min=1, metavar="N", help="Environments in each actor.")]
NumLearners = Annotated[int | None, _short(min=1, metavar="N", help="Number of learners, for agents with several.")]
NumParameterShards = Annotated[
    int | None, _short(min=1, metavar="N", help="Number of parameter shards, for agents with a parameter server.")
]
MaxSteps = Annotated[
    int | None,
    _short(
        "--max-steps",
        "--total-timesteps",
        min=1,
        metavar="N",
        help="Maximum number of environment steps: max_env_steps.",
    ),
]
TargetReturn = Annotated[float | None, _short(metavar="X", help="Mean greedy return at which the run ends.")]
BatchSize = Annotated[int | None, _short(min=1, metavar="N", help="Items in the batch of an update.")]
LearningRate = Annotated[
    float | None, _short("--learning-rate", "--lr", metavar="X", help="Learning rate, for agents with one optimiser.")
]
Device = Annotated[
    str | None,
    _short(
        metavar="DEVICE",
        help="Device of learner and policies: cpu, cuda, cuda:N, or auto: cuda if there is one and the agent supports"
        " it, else cpu.",
    ),
]
Precision = Annotated[
    str | None, _short(metavar="PRECISION", help="float32, or bfloat16 for all layers except the last.")
]
Threads = Annotated[int | None, _short(min=1, metavar="N", help="PyTorch threads of the learner.")]
Compile = Annotated[
    str | None,
    _short(
        metavar="WHEN",
        help="Compile the learner's updates, or record them on a GPU: off, auto (while a longer run learns), or on"
        " (from the second update on, or an error).",
    ),
]
Disk = Annotated[
    str | None,
    _short(metavar="FOLDER", help="Move the chunks of the replay that do not fit in --memory to files in FOLDER."),
]
Memory = Annotated[
    int | None,
    _short(
        parser=size_in_bytes,
        metavar="SIZE",
        help=f"Memory of the replay, above which it moves to the disk, {HELP}; needs --disk.",
    ),
]
Journal = Annotated[
    str | None,
    _short(
        metavar="[FOLDER]",
        help="Keep a journal of the replay, with which --resume continues after a kill: in FOLDER, or without it with"
        " the run's checkpoints. On Ray every node must see it.",
    ),
]
JournalSync = Annotated[
    str | None,
    _short(
        metavar="WHEN",
        help="When the journal waits for the disk: os (rarely), interval, or always; needs --journal.",
        show_default="interval",
    ),
]
