"""The plan of one run of `reverie train`, with all checks before it, and the run itself."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reverie import _memory, agents
from reverie.cli import log_choice, run_folders, running, short_flags
from reverie.cli.common import refuse
from reverie.cli.running import PlannedRun
from reverie.cli.train_request import TrainRequest

if TYPE_CHECKING:
    from reverie.agents.agent import Agent
    from reverie.agents.core import Preset
    from reverie.runners import ClusterNode, Result, Topology


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


def nodes(request: TrainRequest) -> list[ClusterNode] | None:
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


def lay_out(request: TrainRequest, config: Path | None, *, check_files: bool = True) -> tuple[Topology, Preset, Agent]:
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
            check_files=check_files,
        )
    except (ValueError, OSError, MemoryError, ImportError) as error:  # a data set may need an extra
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
    topology, preset, agent = lay_out(request, request.config or earlier.preset, check_files=earlier.checkpoint is None)
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
