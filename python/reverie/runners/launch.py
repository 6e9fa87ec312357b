"""`train`: the checks that are the same for every runner, then the run itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from reverie import _checks
from reverie.agents.agent import Agent
from reverie.agents.core import RunSettings
from reverie.agents.env_settings import EnvSettings
from reverie.agents.named_parameters import ParameterError
from reverie.pages import Page
from reverie.runners import checkpoints
from reverie.runners.checked_run import CheckedRun
from reverie.runners.checkpoints import checkpoint_files, earlier_runs
from reverie.runners.planning.devices import warn_of_precision
from reverie.runners.planning.folders import has_journal
from reverie.runners.planning.nodes import Node
from reverie.runners.planning.page_address import page_address
from reverie.runners.planning.topology import RunnerName, plan
from reverie.runners.reports.events import Event, Result, Started


def train(
    agent: Agent,
    env_id: str | Callable[..., Any],
    *,
    runner: RunnerName = "local",
    seed: int = 0,
    preset: Path | str | None = None,
    config: Any = None,
    run: RunSettings | None = None,
    environment: EnvSettings | None = None,
    num_shards: int = 1,
    address: str | None = None,
    stop_when_confirmed: bool = True,
    on_event: Callable[[Event], None] | None = None,
    checkpoint_folder: Path | str | None = None,
    resume: Path | str | bool | None = None,
    overwrite: bool = False,
    init_from: Path | str | None = None,
    should_stop: Callable[[], bool] | None = None,
    check_memory: bool = True,
    http: str | int | Page | None = None,
) -> Result:
    """Train until the target is confirmed or `run.max_env_steps` are done.

    `agent` is an agent, e.g. `reverie.agents.find("apex-dqn")`. `config`, `run` and `environment` (wrappers, a time
    limit) replace those of the preset. `env_id` is the id of an environment, or a factory of vectors of environments: a
    function or class that other processes can import, called with `num_envs=`, and with `seed=` if it has such a
    parameter. Without a target (`run.target_return` None) the run trains to its last step.

    `runner` selects where its roles run:

    - "local": in this thread, taking turns. The same seed gives the same run, except for times.
    - "process": each role in a process of its own on this machine. The order of events differs from run to run, so no
      two runs are the same; `env_steps` may end a little above `max_env_steps`; a role that ends is restarted, which
      is reported as an event. Processes import the main script as `multiprocessing` does: a script needs
      `if __name__ == "__main__":`.
    - "ray": each role in an actor of a Ray cluster; otherwise as "process". `address` is the address of a cluster
      ("auto": the cluster that this machine is part of); with None the run uses the cluster that this process is
      connected to, or else starts Ray on this machine for the time of the run. Every node needs this package and the
      agent's; with `checkpoint_folder` all nodes must see that folder, since shards write their tables themselves.
      Roles of a lost node are placed on the others. Each role requests from Ray the memory that it takes at most. With
      `run.device` "cuda" the learner requests a GPU; roles that request none compute on the CPU.

    With `stop_when_confirmed=False` training continues to its last step, and `confirmed` is whether the last weights
    hold the target.

    With a `checkpoint_folder`, a checkpoint is written there every `run.checkpoint_every` environment steps and at the
    end. With an earlier run in that folder:

    - `resume=True` continues its newest checkpoint. If there is none, a new run begins; `resume="must"` raises.
    - `resume` as a path continues that checkpoint, or the newest one of that run's folder.
    - A resumed run that has finished, and has nothing left to train with these settings, returns its result again:
      nothing starts, and no event is reported. More steps, a target that it does not reach, or
      `stop_when_confirmed=False` before the last step let it train on.
    - `overwrite=True` removes its checkpoints and tables as soon as the new run has started.
    - Without either, `RunExistsError` is raised.

    A resumed run restores counters, curve, learner, tables (with their limiters' counts) and random states; episodes
    begin again. Agent, environment and seed stay the same. Settings in `setting_changes.MAY_CHANGE`, such as learning
    rates, may differ, and take effect at once; others raise `ChangedSettingsError`. All runners write the same form of
    checkpoint and resume each other's.

    With `run.replay_journal` a run that was killed continues with everything that its tables had acknowledged, and its
    learner with the newest checkpoint (the guide "The journal"). It needs a `checkpoint_folder`.

    `should_stop` is called between two turns, and in evaluations; if it returns True the run saves and raises
    `StoppedError`. `on_event` is called in this thread. To end a run from it, let `should_stop` return True: an
    exception in `on_event` ends the run without saving.

    `init_from` is the run's folder, the checkpoint or the `.safetensors` file of a policy of the same agent, whose
    weights the learner begins with; everything else begins as in a new run, and settings and environment may differ. A
    run and a checkpoint give all networks, a file those that act; other networks have their initial weights. Names and
    shapes are compared. With `resume=True` it is for a run that has no checkpoint yet; it excludes other values.

    `check_memory=False` starts the run even if it is estimated to need more memory than is free; on Ray its roles then
    request no memory.

    `http` is `HOST:PORT`, or a port of 127.0.0.1, where the run shows itself while it trains: a page, metrics and JSON,
    as a server does (the guide "Watch a server"), with its learning curve, rates and times, and the tables of its first
    server, and with several servers the chance and the health of each. Port 0 takes a free one; the event `PageOpened`
    has the address. For an address that other machines can reach, a `Page` has the token and the certificates that it
    needs. On Ray the page is at the node of the first server: `0.0.0.0:PORT` is an address of whichever node that is. A
    port that is in use, and an address that is not safe, raise a ValueError; on Ray a port in use ends the run with a
    RoleError.

    Raises what `plan` raises, `CheckpointError` (`RunExistsError` and `ChangedSettingsError` are such errors),
    `reverie.agents.policies.PolicyError` if `init_from` does not fit, `DamagedError` for damaged tables of a
    checkpoint, `StalledError` if the table's limits contradict each other, what the learner raises, and whatever
    `on_event` raises. With the runners "process" and "ray" also `RoleError` if a role ended in a way that a restart
    would not fix; on Ray also ImportError without `reverie[ray]`, and ConnectionError if there is no cluster at
    `address`, or Ray does not start here. In all cases everything is closed and every process has ended when it raises.
    """
    if address is not None and runner != "ray":
        raise ValueError(f"address is {address!r}, which only the runner 'ray' uses, and runner is {runner!r}")
    nodes, begin = _runner(runner, address)
    topology = plan(
        agent,
        env_id,
        seed=seed,
        preset=preset,
        config=config,
        run=run,
        environment=environment,
        num_shards=num_shards,
        runner=runner,
        nodes=nodes,
        check_memory=check_memory,
    )
    warn_of_precision(topology.config, topology.run, runner)
    page = None if http is None else page_address(http, runner)
    folder = None if checkpoint_folder is None else _checks.path("checkpoint_folder", checkpoint_folder)
    topology = replace(topology, folder=folder)
    checkpoint = checkpoints.checkpoint_to_resume(folder, resume, overwrite=overwrite)
    if init_from is not None and resume not in (None, False, True):
        raise ValueError("init_from begins a run and resume continues one: leave one of them out, or set resume=True")
    if init_from is not None and checkpoint is None:
        from reverie.runners.checkpoints.warm_start import warm_started  # needs safetensors

        agent = warm_started(agent, topology, _checks.path("init_from", init_from))
    if runner != "local":
        _require_importable(agent)
    _checks.functions(on_event=on_event, should_stop=should_stop)
    if folder is not None:
        checkpoints.require_named_weights(agent, topology)
    elif has_journal(topology.run):
        raise ValueError(
            f"replay_journal is {topology.run.replay_journal!r}, and there is no checkpoint_folder for the learner,"
            " with which a killed run could continue: set it"
        )
    state = None if checkpoint is None else checkpoints.load_run(checkpoint, agent, topology)
    if state is not None and checkpoints.is_finished(state, topology, stop_when_confirmed=stop_when_confirmed):
        return checkpoints.result_of(agent, topology, state)
    replays = checkpoints.place_replays(folder, checkpoint, topology, state)
    if state is not None and replays.folder is not None and replays.continued:
        state = checkpoints.with_newer_counts(state, replays.folder, topology.run.max_env_steps)
    emit = on_event or (lambda event: None)
    checked = CheckedRun(
        agent=agent,
        topology=topology,
        on_event=_replacing(folder, emit) if overwrite and folder is not None else emit,
        should_stop=should_stop or (lambda: False),
        stop_when_confirmed=stop_when_confirmed,
        checkpoint_folder=folder,
        resume=checkpoint,
        state=state,
        replays=replays,
        check_memory=check_memory,
        page=page,
    )
    try:
        return begin(checked)
    except ParameterError as error:
        if checkpoint is None:
            raise
        raise checkpoints.CheckpointError(checkpoint, f"does not fit this run: {error}") from error


def _replacing(folder: Path, on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """`on_event`, which first removes the run that is in `folder` now, when the new one has started."""
    earlier = earlier_runs.to_replace(folder)

    def emit(event: Event) -> None:
        if isinstance(event, Started):
            checkpoint_files.remove(earlier)
        on_event(event)

    return emit


def _runner(name: RunnerName, address: str | None) -> tuple[list[Node] | None, Callable[[CheckedRun], Result]]:
    """The nodes that a run must fit, None if they are not known yet, and the function that runs it."""
    match name:
        case "local":
            from reverie.runners.local import run_here

            return None, run_here
        case "process":
            if sys.platform == "linux":
                from reverie.runners.process import run_in_processes

                return None, run_in_processes
            else:
                raise ImportError(
                    "the runner 'process' needs Linux, whose pidfds report the end of a process, and this is"
                    f" {sys.platform}: use runner='local' or 'ray'"
                )
        case "ray":
            from reverie.runners.ray.cluster import nodes_to_fit, run_on_cluster

            return nodes_to_fit(address), lambda run: run_on_cluster(run, address)
    raise ValueError(f"runner is {name!r}, and must be 'local', 'process' or 'ray'")


def _require_importable(agent: Agent) -> None:
    try:
        ForkingPickler.dumps(agent)
    except Exception as error:
        raise TypeError(
            f"agent {agent.name} cannot be sent to other processes ({error}): define its functions and classes at the"
            " top of a module"
        ) from error
