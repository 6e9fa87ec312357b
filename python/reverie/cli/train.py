"""`reverie train`: train an agent on an environment, in this process or in many."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import typer

from reverie import agents
from reverie.cli import log_choice, page_flags, running, short_flags, sweep, train_plan
from reverie.cli import train_flags as flags
from reverie.cli.common import (
    exit_code,
    find_modules_here,
    refuse,
    require_agents,
)
from reverie.cli.dry_run import show_plan
from reverie.cli.train_request import TrainRequest


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
    resume_must: flags.ResumeMust = False,
    overwrite: flags.Overwrite = False,
    init_from: flags.InitFrom = None,
    until_max_steps: flags.UntilMaxSteps = False,
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
    compile: flags.Compile = None,
    disk: flags.Disk = None,
    memory: flags.Memory = None,
    journal: flags.Journal = None,
    journal_sync: flags.JournalSync = None,
    tensorboard: flags.TensorBoard = None,
    log: flags.Log = None,
    project: flags.Project = None,
    tag: flags.Tags = None,
    http: page_flags.Http = None,
    token_file: page_flags.PageToken = None,
    tls_cert: page_flags.PageCert = None,
    tls_key: page_flags.PageKey = None,
    insecure: page_flags.PageInsecure = False,
    dry_run: flags.DryRun = False,
    quiet: flags.Quiet = False,
    as_json: flags.Json = False,
) -> None:
    """Train AGENT on ENV until its greedy return reaches the target, confirmed on other episodes.

    The run's folder contains preset.toml (the settings of the run), log.jsonl, curve.png, checkpoints/ (the newest
    two), best.safetensors (the policy of the best evaluation) and TensorBoard's files. Ctrl-C, SIGTERM and the end of
    the terminal save a checkpoint and end the run; the same command with --resume continues from it, or begins the run
    if it has not begun, so that a job can be queued again. With --seeds, --resume skips finished runs, continues
    interrupted runs, and starts the others.
    """
    require_agents()
    find_modules_here()
    _refuse_conflicting_flags(context.params)
    request = TrainRequest(
        agent=agent,
        env=env,
        seed=seed or 0,
        config=config,
        settings=tuple(settings or ()),
        short_flags={name: value for name in short_flags.SHORT_FLAGS if (value := context.params[name]) is not None},
        out=out,
        resume="must" if resume_must else resume,
        overwrite=overwrite,
        init_from=init_from,
        until_max_steps=until_max_steps,
        runner=runner.value,
        num_shards=num_shards,
        address=address,
        node=tuple(node or ()),
        check_memory=check_memory,
        tensorboard=tensorboard,
        log=None if log is None else log_choice.names_of(log),
        project=project,
        tags=None if tag is None else tuple(tag),
        quiet=quiet,
        to_stderr=as_json,
        page=page_flags.page(http, token_file, tls_cert, tls_key, insecure=insecure),
    )
    if seeds is not None:
        wanted = sweep.seeds_of(seeds)
        if not sweep.continues(request, wanted):  # a resumed run takes its settings from its checkpoint
            train_plan.check_together(replace(request, seed=wanted[0]), min(jobs or 1, len(wanted)))
        if not dry_run:
            raise typer.Exit(sweep.run(request, wanted, jobs or 1, as_json=as_json))
    if dry_run:
        show_plan(train_plan.prepare(request).topology, train_plan.nodes(request), as_json=as_json)
        return
    result, folder = train_plan.run(request)
    if as_json:
        print(json.dumps(running.as_object(result, folder)), flush=True)
    raise typer.Exit(exit_code(result.confirmed, result.topology.run.target_return))


def _refuse_conflicting_flags(given: Mapping[str, Any]) -> None:
    """End the command for flags that exclude each other."""
    seed, seeds, jobs = given["seed"], given["seeds"], given["jobs"]
    runner = given["runner"]
    if given["address"] is not None and runner is not flags.Runner.ray:
        refuse(f"--address is for a Ray cluster, and --runner is {runner.value}: leave one of them out")
    if given["init_from"] is not None and given["resume_must"]:
        refuse("--init-from begins a run and --resume=must continues one: leave one of them out, or write --resume")
    if given["overwrite"] and (given["resume"] or given["resume_must"]):
        refuse("--overwrite replaces a run and --resume continues it: leave one of them out")
    if given["node"] and not (given["dry_run"] and runner is flags.Runner.ray):
        refuse("--node describes a Ray cluster for --dry-run: give it with --runner ray --dry-run, or leave it out")
    if seeds is not None and seed is not None:
        refuse(f"--seed is {seed} and --seeds {seeds}: give one of them")
    if seeds is None and jobs is not None:
        refuse(f"--jobs is {jobs}, and there is one run: name several with --seeds, or leave it out")
    _refuse_flags_for_several_learners(given["agent"], given["num_learners"], given["num_parameter_shards"])


def _refuse_flags_for_several_learners(name: str, num_learners: int | None, num_parameter_shards: int | None) -> None:
    """End the command for these flags and an agent without a parameter server, which has one learner."""
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
