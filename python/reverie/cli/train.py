"""`reverie train`: train an agent on an environment, in this process or in many."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reverie import agents
from reverie.cli import running, shorts, sweep
from reverie.cli import train_flags as flags
from reverie.cli.common import (
    EXIT_NOT_REACHED,
    EXIT_REACHED,
    find_modules_here,
    refuse,
    require_agents,
)
from reverie.cli.dry_run import show_plan
from reverie.cli.running import Request

if TYPE_CHECKING:
    from reverie.agents.agent import Agent
    from reverie.agents.core import Preset
    from reverie.runners import Node, Topology


def train(
    context: typer.Context,
    agent: flags.Agent,
    env: flags.Env,
    seed: flags.Seed = None,
    seeds: flags.Seeds = None,
    jobs: flags.Jobs = None,
    config: flags.Config = None,
    settings: flags.Settings = None,
    out: flags.Out = None,
    resume: flags.Resume = False,
    to_the_end: flags.ToTheEnd = False,
    runner: flags.Where = flags.Runner.local,
    num_shards: flags.NumShards = 1,
    address: flags.Address = None,
    node: flags.Nodes = None,
    check_memory: flags.CheckMemory = True,
    num_actors: flags.NumActors = None,
    envs_per_actor: flags.EnvsPerActor = None,
    num_learners: flags.NumLearners = None,
    num_parameter_shards: flags.NumParameterShards = None,
    max_steps: flags.MaxSteps = None,
    target_return: flags.TargetReturn = None,
    batch_size: flags.BatchSize = None,
    learning_rate: flags.LearningRate = None,
    device: flags.Device = None,
    precision: flags.Precision = None,
    threads: flags.Threads = None,
    tensorboard: flags.TensorBoard = None,
    dry_run: flags.DryRun = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Train AGENT on ENV until a greedy evaluation, confirmed on other episodes, says so.

    The run's folder gets preset.toml (the settings as they were used), log.jsonl, curve.png, checkpoints/ (the newest
    two) and TensorBoard's files. Ctrl-C saves a checkpoint and ends, as SIGTERM and the end of the terminal do; the
    same command with --resume goes on from it. With --seeds, --resume takes runs that have ended as they are, goes on
    with those that were interrupted, and begins the others.
    """
    require_agents()
    find_modules_here()
    _refuse_what_does_not_go_together(context.params)
    nodes = _nodes(runner, address, node)
    layout = {"runner": runner.value, "num_shards": num_shards, "nodes": nodes, "check_memory": check_memory}
    if seeds is not None:
        if not resume:  # what a resumed run needs is in its checkpoint
            _check_sweep(agent, env, sweep.seeds_of(seeds), jobs or 1, config, context.params, layout)
        if not dry_run:
            raise typer.Exit(sweep.run(context, sweep.seeds_of(seeds), jobs or 1, out, as_json=as_json))
    request = _request(agent, env, seed or 0, config, context.params, out, resume, layout)
    if dry_run:
        show_plan(request.topology, nodes, as_json=as_json)
        return
    board = importlib.util.find_spec("tensorboard") is not None if tensorboard is None else tensorboard
    result = running.run(
        request,
        stop_when_confirmed=not to_the_end,
        board=board,
        to_stderr=as_json,
        quiet=quiet,
        address=address,
        check_memory=check_memory,
    )
    if as_json:
        print(json.dumps(running.as_object(result, request.folder)), flush=True)
    raise typer.Exit(EXIT_REACHED if result.confirmed else EXIT_NOT_REACHED)


def _refuse_what_does_not_go_together(given: Mapping[str, Any]) -> None:
    """Flags of which one makes another mean nothing."""
    seed, seeds, jobs = given["seed"], given["seeds"], given["jobs"]
    runner = given["runner"]
    if given["address"] is not None and runner is not flags.Runner.ray:
        refuse(f"--address is of a Ray cluster, and --runner is {runner.value}: leave one of them out")
    if given["node"] and not (given["dry_run"] and runner is flags.Runner.ray):
        refuse("--node describes a Ray cluster for --dry-run: give it with --runner ray --dry-run, or leave it out")
    if seeds is not None and seed is not None:
        refuse(f"--seed is {seed} and --seeds {seeds}: give one of them")
    if seeds is None and jobs is not None:
        refuse(f"--jobs is {jobs}, and there is one run: name several with --seeds, or leave it out")
    _refuse_what_one_learner_has_not(given["agent"], given["num_learners"], given["num_parameter_shards"])


def _nodes(runner: flags.Runner, address: str | None, described: Sequence[str] | None) -> list[Node] | None:
    """The nodes that a run on Ray must fit: those described, or this machine where Ray is started here, or None where
    only the cluster knows them."""
    if runner is not flags.Runner.ray:
        return None
    from reverie.runners.planning import nodes
    from reverie.runners.planning.topology import this_machine

    if described:
        try:
            return [node for text in described for node in nodes.described(text)]
        except ValueError as error:
            refuse(error)
    return None if address is not None or os.environ.get("RAY_ADDRESS") else [this_machine()]


def _refuse_what_one_learner_has_not(name: str, num_learners: int | None, num_parameter_shards: int | None) -> None:
    """An agent without a parameter server has one learner, which has the parameters itself."""
    try:
        agent = agents.find(name)
    except ValueError as error:
        refuse(error)
    if agent.parameters is not None:
        return
    for option, number in (("--num-learners", num_learners), ("--num-parameter-shards", num_parameter_shards)):
        if number is not None:
            having = ", ".join(one for one in agents.BUILT_IN if agents.find(one).parameters is not None)
            refuse(
                f"{option} is {number}, and {agent.name} has one learner, which holds the parameters itself: leave it"
                f" out, or train {having}"
            )


def _check_sweep(
    agent: str,
    env: str,
    seeds: Sequence[int],
    jobs: int,
    config: Path | None,
    parameters: Mapping[str, Any],
    layout: dict[str, Any],
) -> None:
    """What would refuse every run of a sweep refuses it once, and so does memory for all that run at a time."""
    from reverie.runners.planning.topology import available_memory

    topology = _plan(agent, env, seeds[0], config, parameters, layout)[0]
    elsewhere = topology.runner == "ray" and layout["nodes"] is None
    if elsewhere or not layout["check_memory"] or parameters["node"]:
        return
    together = min(jobs, len(seeds))
    needed, available = topology.memory_bytes * together, available_memory()
    if needed > available:
        refuse(
            f"{together} runs at a time need about {needed / 2**30:.1f} GiB and {available / 2**30:.1f} GiB are free:"
            " lower --jobs"
        )


def _plan(
    name: str, env: str, seed: int, config: Path | None, parameters: Mapping[str, Any], layout: dict[str, Any]
) -> tuple[Topology, Preset, Agent]:
    """A run laid out, with its settings and its agent; what cannot be ends the command."""
    from reverie.agents import presets
    from reverie.agents.environments import describe
    from reverie.runners import plan

    try:
        agent = agents.find(name)
        agent.check(describe(env))
        preset = agent.load_preset(env, config)
        preset = presets.override(preset, shorts.changes(parameters, agent, preset))
        topology = plan(agent, env, seed=seed, preset=preset.path, config=preset.config, run=preset.run, **layout)
    except (ValueError, OSError, MemoryError) as error:
        refuse(error)
    return topology, preset, agent


def _request(
    name: str,
    env: str,
    seed: int,
    config: Path | None,
    parameters: Mapping[str, Any],
    out: Path | None,
    resume: bool,
    layout: dict[str, Any],
) -> Request:
    """Everything that can be refused is refused here, before anything starts."""
    from reverie.runners import checkpoints
    from reverie.runners.reports import logs

    try:
        agent = agents.find(name)
        folder = out or Path("runs") / f"{agent.name}-{env.replace('/', '_')}-seed-{seed}"
        anew = resume and logs.has_begun(folder) and not checkpoints.any_in(folder)
        checkpoint = checkpoints.find(folder) if resume and not anew else None
        if checkpoint is not None:
            checkpoints.check(checkpoint)  # its settings are read before all the rest
    except ValueError as error:
        refuse(error)
    if resume:
        _refuse_another_run(folder, agent.name, env, seed)
    before = folder if anew else checkpoint
    saved = None if before is None or not (before / checkpoints.PRESET).is_file() else before / checkpoints.PRESET
    topology, preset, agent = _plan(name, env, seed, config or saved, parameters, layout)
    if anew:
        print(f"reverie: {folder} has no checkpoint yet, so that the run begins anew", file=sys.stderr)
    if not resume and logs.has_begun(folder):
        refuse(f"{folder} holds a run: go on with --resume, or name another folder with --out")
    return Request(agent, topology, preset, folder, checkpoint)


def _refuse_another_run(folder: Path, agent: str, env: str, seed: int) -> None:
    """A folder whose log tells of another run is not gone on with; its checkpoint is compared later, in full."""
    from reverie.runners.reports import logs

    try:
        log = logs.read(folder)
    except (logs.LogError, OSError):
        return
    if (log.agent, log.env_id, log.seed) != (agent, env, seed):
        refuse(
            f"{folder} holds a run of {log.agent} on {log.env_id} with seed {log.seed}, and this one is of {agent} on"
            f" {env} with seed {seed}: name its own folder with --out"
        )
