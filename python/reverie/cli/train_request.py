"""The request for one run of `reverie train`, its plan, and its checks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reverie import _memory, agents
from reverie.cli import log_choice, run_folders, running, short_flags
from reverie.cli.common import refuse
from reverie.cli.running import PlannedRun
from reverie.pages import Page

if TYPE_CHECKING:
    from reverie.agents.agent import Agent
    from reverie.agents.core import Preset
    from reverie.runners import Node, Result, Topology
    from reverie.runners.planning.topology import RunnerName


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The request for one run. Can be pickled: a sweep sends one to each of its processes."""

    agent: str
    """The agent's name, for `agents.find`."""
    env: str
    seed: int = 0
    config: Path | None = None
    """A preset file, or the name of a preset."""
    settings: tuple[str, ...] = ()
    """Changed settings of the preset, each as `name=value`."""
    short_flags: Mapping[str, Any] = field(default_factory=dict)
    """The short flags that were given, by the names in `short_flags.SHORT_FLAGS`."""
    out: Path | None = None
    """The run's folder; None for a folder named by agent, environment and seed."""
    resume: bool | Literal["must"] = False
    overwrite: bool = False
    """Whether to replace the run in the folder."""
    init_from: Path | None = None
    """The run, checkpoint or file whose weights the run begins with."""
    until_max_steps: bool = False
    runner: RunnerName = "local"
    num_shards: int = 1
    address: str | None = None
    node: tuple[str, ...] = ()
    """The nodes of a cluster to plan for, in the form of `nodes.parse_nodes`."""
    check_memory: bool = True
    tensorboard: bool | None = None
    """Whether to log for TensorBoard; None if `log` has it, or, without a choice, if it is installed."""
    log: tuple[str, ...] | None = None
    """The logs of scalars, of `LOGS`; None for those of the preset, of the run to continue, or the default."""
    project: str | None = None
    tags: tuple[str, ...] | None = None
    quiet: bool = False
    silent: bool = False
    """Print warnings and errors only: a sweep prints the results of its runs."""
    to_stderr: bool = False
    """Report progress on stderr, and leave stdout to the result."""
    page: Page | None = None
    """The page of the run, or of the runs of a sweep; None without one."""
    trial: int | None = None
    """The number of the trial of a search; None elsewhere."""

    @property
    def name(self) -> str:
        """The run's name among the runs of a sweep or a search."""
        return f"seed {self.seed}" if self.trial is None else f"trial {self.trial}, seed {self.seed}"


def run(request: TrainRequest) -> tuple[Result, Path]:
    """Train; returns the result and the run's folder. Errors and stops end the command."""
    planned = prepare(request)
    result = running.run(
        planned,
        stop_when_confirmed=not request.until_max_steps,
        to_stderr=request.to_stderr,
        quiet=request.quiet,
        silent=request.silent,
        address=request.address,
        check_memory=request.check_memory,
    )
    return result, planned.folder


def nodes(request: TrainRequest) -> list[Node] | None:
    """The nodes that a run on Ray must fit: those described, or this machine if Ray is started here.

    None if only the cluster knows them.
    """
    if request.runner != "ray":
        return None
    from reverie.runners.planning.memory import this_machine
    from reverie.runners.planning.nodes import parse_nodes

    if request.node:
        try:
            return [node for text in request.node for node in parse_nodes(text)]
        except ValueError as error:
            refuse(error)
    return None if request.address is not None or os.environ.get("RAY_ADDRESS") else [this_machine()]


def lay_out(request: TrainRequest, config: Path | None) -> tuple[Topology, Preset, Agent]:
    """The plan of the run with the preset `config`, its settings and its agent; errors end the command."""
    from reverie.runners import plan

    try:
        agent = agents.find(request.agent)
        preset = short_flags.changed_preset(request, agent, config)
        topology = plan(
            agent,
            request.env,
            seed=request.seed,
            preset=preset,
            num_shards=request.num_shards,
            runner=request.runner,
            nodes=nodes(request),
            check_memory=request.check_memory,
        )
    except (ValueError, OSError, MemoryError) as error:
        refuse(error)
    return topology, replace(preset, run=topology.run), agent


def prepare(request: TrainRequest) -> PlannedRun:
    """Make all checks of a run before anything starts; errors end the command."""
    from reverie.runners.planning.page_address import page_address

    env, seed = request.env, request.seed
    try:
        agent = agents.find(request.agent)
        page = None if request.page is None else page_address(request.page, request.runner)
    except (ValueError, OSError) as error:
        refuse(error)
    folder = request.out or Path("runs") / f"{agent.name}-{env.replace('/', '_')}-seed-{seed}"
    if request.resume:
        run_folders.refuse_another_run(folder, agent.name, env, seed)
    elif request.overwrite:
        run_folders.require_replaceable(folder)
    earlier = run_folders.find_earlier(folder, request.resume)
    topology, preset, agent = lay_out(request, request.config or earlier.preset)
    for note in filter(None, (earlier.note, preset.note)):
        print(f"reverie: {note}", file=sys.stderr)
    if not (request.resume or request.overwrite):
        run_folders.refuse_existing(folder)
    if earlier.checkpoint is not None:
        run_folders.report_changes(earlier.checkpoint, agent, topology, stop_when_confirmed=not request.until_max_steps)
    elif request.init_from is not None:
        _require_weights_fit(agent, topology, request.init_from)
    preset = replace(preset, log=log_choice.choose(request, preset, None if earlier.checkpoint is None else folder))
    return PlannedRun(
        reference=request.agent,
        topology=topology,
        preset=preset,
        folder=folder,
        checkpoint=earlier.checkpoint,
        resume=bool(request.resume),
        overwrite=request.overwrite,
        init_from=request.init_from,
        page=page,
    )


def check_together(request: TrainRequest, together: int) -> Preset:
    """Check once what several runs like this one need, and the memory for `together` of them at a time.

    Returns their preset; errors end the command.
    """
    topology, preset, _ = lay_out(request, request.config)
    if topology.note:
        print(f"reverie: {topology.note}", file=sys.stderr)
    log_choice.choose(request, preset)
    elsewhere = request.runner == "ray" and nodes(request) is None
    if elsewhere or not request.check_memory or request.node:
        return preset
    needed, available = topology.memory_bytes * together, _memory.available_memory()
    if needed > available:
        refuse(
            f"{together} runs at a time need about {needed / 2**30:.1f} GiB and {available / 2**30:.1f} GiB are free:"
            " lower --jobs"
        )
    return preset


def _require_weights_fit(agent: Agent, topology: Topology, source: Path) -> None:
    """End the command if a run with `topology` cannot begin with these weights."""
    try:
        from reverie.runners.checkpoints.warm_start import warm_started

        warm_started(agent, topology, source)
    except (ValueError, TypeError, OSError, ImportError) as error:
        refuse(error)
