"""`train`: the checks that are the same for every runner, then the run itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from multiprocessing import current_process
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from reverie import _checks, agents
from reverie.agents import presets
from reverie.agents.agent import Agent
from reverie.agents.core import Preset, RunSettings
from reverie.agents.env_ids import id_of
from reverie.agents.env_settings import DEFAULTS, EnvSettings
from reverie.agents.hindsight import without_returns
from reverie.agents.named_parameters import ParameterError
from reverie.pages import Page
from reverie.runners import checkpoints
from reverie.runners.checked_run import CheckedRun
from reverie.runners.checkpoints import CHECKPOINTS, EarlierRun, RunExistsError, RunFiles, earlier_runs
from reverie.runners.interrupts import ending_at_interrupts, ending_by_sigterm
from reverie.runners.planning.devices import warn_of_precision
from reverie.runners.planning.folders import has_journal
from reverie.runners.planning.nodes import ClusterNode
from reverie.runners.planning.page_address import page_address
from reverie.runners.planning.plan import plan, require_settings
from reverie.runners.planning.topology import RunnerName
from reverie.runners.reports import logs
from reverie.runners.reports.events import Event, Finished, LogNotWritten, Result, StoppedError
from reverie.runners.reports.problems import EventReporter, OnEvent, callbacks_of


def train(
    agent: Agent | str,
    env_id: str | Callable[..., Any],
    *,
    runner: RunnerName = "local",
    seed: int = 0,
    preset: Preset | Path | str | None = None,
    config: Any = None,
    run: RunSettings | None = None,
    environment: EnvSettings | None = None,
    num_shards: int = 1,
    address: str | None = None,
    stop_when_confirmed: bool = True,
    on_event: OnEvent = None,
    folder: Path | str | None = None,
    resume: Path | str | bool | None = None,
    overwrite: bool = False,
    init_from: Path | str | None = None,
    should_stop: Callable[[], bool] | None = None,
    check_memory: bool = True,
    http: str | int | Page | None = None,
    **settings: Any,
) -> Result:
    """Train until the target is confirmed or `max_env_steps` are done.

    `agent` is the name of an agent or an `Agent`. `env_id` is the id of an environment; or a class derived from
    `gymnasium.Env`, or a function that makes an environment; or a factory of vectors of environments, which is called
    with `num_envs=`, and with `seed=` if it has such a parameter. A class or function is kept by its name,
    `module:name`, by which every role, a resumed run and a loaded policy import it. Without a target
    (`target_return=None`) the run trains to its last step.

    The settings are those of the agent's preset for the environment, or of `preset`: a file, the name of a preset of
    the agent, or a `Preset` object. `config`, `run` and `environment` (wrappers, a time limit) replace a table of it
    each, and other keywords single settings, by their names in the tables: `train("dqn", "CartPole-v1",
    max_env_steps=2_000, learning_rate=1e-3)`. Unknown names raise `PresetError` with the nearest name.

    `runner` selects where its roles run:

    - "local": in this thread, taking turns. The same seed gives the same run, except for times.
    - "process": each role in a process of its own on this machine. The order of events differs from run to run, so no
      two runs are the same; `env_steps` may end a little above `max_env_steps`; a role that ends is restarted, which
      is reported as an event. Processes import the main script as `multiprocessing` does: a script needs
      `if __name__ == "__main__":`.
    - "ray": each role in an actor of a Ray cluster; otherwise as "process". `address` is the address of a cluster
      ("auto": the cluster that this machine is part of); with None the run uses the cluster that this process is
      connected to, or else starts Ray on this machine for the time of the run. Every node needs this package and the
      agent's; with `folder` all nodes must see that folder, since shards write their tables themselves. Roles of a lost
      node are placed on the others. Each role requests from Ray the memory that it takes at most. With `device="cuda"`
      the learner requests a GPU; roles that request none compute on the CPU.

    With `stop_when_confirmed=False` training continues to its last step, and `confirmed` is whether the last weights
    hold the target.

    `checkpoint_every` as a keyword needs a `folder`; in `run` and in presets it has no effect without one.

    With a `folder`, the run has the files of one of `reverie train` there: `preset.toml` (its settings), `log.jsonl`
    (its events), `checkpoints/`, in which a checkpoint is written every `checkpoint_every` environment steps and at the
    end, and `best.safetensors`, the policy of the best evaluation. All commands take the folder. A folder that cannot
    be written raises OSError before anything starts, and one in which a run still trains `RunInUseError`.

    Ctrl-C raises KeyboardInterrupt after the present step, with the policy of the last weights as `.policy`; in a run
    with a folder a checkpoint is saved before, which a note names. A second Ctrl-C raises it at once. After the last
    step the KeyboardInterrupt has the run's result, as `.result`. In a run with a folder SIGTERM saves a checkpoint,
    and ends the process as it does without a run once the run is closed: by the signal, or, after `ray.init`, by the
    SystemExit of Ray's handler. Both need the main thread, and leave a program's own handlers alone. With an earlier
    run in the folder:

    - `resume=True` continues its newest checkpoint. If there is none, a new run begins; `resume="must"` raises. A run
      that was killed before its first checkpoint begins again with its settings, and a warning: its log begins again,
      and its `best.safetensors` stays until the new run has one.
    - `resume` as a path continues that checkpoint, or the newest one of that run's folder. With an older one of this
      folder, those of more steps are removed as soon as the run has written its first.
    - A resumed run that has finished, and has nothing left to train with these settings, returns its result again:
      nothing starts, and no event is reported except `LogNotWritten` for a damaged log. More steps, a target that it
      does not reach, or `stop_when_confirmed=False` before the last step let it train on. Settings with which its
      weights were not trained, or its evaluations not played, raise `ChangedSettingsError`: it would ignore them.
    - `overwrite=True` removes its checkpoints, tables, plot and TensorBoard's files as soon as the new run has started.
    - Without either, `RunExistsError` is raised.

    A resumed run takes the settings of its checkpoint, except those that are given here. It restores counters, curve,
    learner, tables (with their limiters' counts) and random states; episodes begin again. Agent, environment and seed
    stay the same. Settings in `setting_changes.MAY_CHANGE`, such as learning rates, may differ, and take effect at
    once; others raise `ChangedSettingsError`. All runners write the same form of checkpoint and resume each other's.

    With `replay_journal` a run that was killed continues with everything that its tables had acknowledged, and its
    learner with the newest checkpoint (the guide "The journal"). It needs a `folder`.

    `should_stop` is called between two turns, and in evaluations; if it returns True the run saves and raises
    `StoppedError`, whose `policy` has the last weights. `on_event`, a function or several, is called in this thread. To
    end a run from it, let `should_stop` return True: an exception in `on_event` ends the run without saving. Problems
    that do not end the run, such as a checkpoint or a log that cannot be written, are also warnings of the logger
    "reverie", unless a callback has a true attribute `shows_problems`.

    `init_from` is the run's folder, the checkpoint or the `.safetensors` file of a policy, whose weights the learner
    begins with; everything else begins as in a new run, and settings and environment may differ. The policy is of the
    same agent or of one with the same `make_policy`: a variant, or SAC after CQL on SAC. A run and a checkpoint give
    all networks, a file those that act; other networks have their initial weights. Names and shapes are compared. With
    `resume=True` it is for a run that has no checkpoint yet; it excludes other values.

    `check_memory=False` starts the run even if it is estimated to need more memory than is free; on Ray its roles then
    request no memory.

    `http` is `HOST:PORT`, or a port of 127.0.0.1, where the run shows itself while it trains: a page, metrics and JSON,
    as a server does (the guide "Watch a server"), with its learning curve, rates and times, and the tables of its first
    server, and with several servers the chance and the health of each. Port 0 takes a free one; the event `PageOpened`
    has the address. For an address that other machines can reach, a `Page` has the token and the certificates that it
    needs. On Ray the page is at the node of the first server: `0.0.0.0:PORT` is an address of whichever node that is. A
    port that is in use, and an address that is not safe, raise a ValueError; on Ray a port in use ends the run with a
    RoleError.

    Raises what `plan` and `reverie.agents.find` raise, `CheckpointError` (`RunExistsError` and `ChangedSettingsError`
    are such errors), `reverie.agents.policies.PolicyError` if `init_from` does not fit, `DamagedError` for damaged
    tables of a checkpoint, `StalledError` if the table's limits contradict each other, what the learner raises, and
    whatever `on_event` raises. With the runners "process" and "ray" also `RoleError` if a role ended in a way that a
    restart would not fix; on Ray also ImportError without `reverie[ray]`, and ConnectionError if there is no cluster at
    `address`, or Ray does not start here; RuntimeError in a new process that still imports the program. In all cases
    everything is closed and every process has ended when it raises.
    """
    _refuse_in_an_import_of_the_program()
    if address is not None and runner != "ray":
        raise ValueError(f"address is {address!r}, which only the runner 'ray' uses, and runner is {runner!r}")
    reference = agent if isinstance(agent, str) else ""
    agent, env_id = _agent(agent), id_of(env_id)
    callbacks = callbacks_of(on_event)
    _checks.functions(should_stop=should_stop)
    place = None if folder is None else _checks.path("folder", folder)
    if place is not None:
        checkpoints.require_folder(place)
    elif "checkpoint_every" in settings:
        raise ValueError(
            f"checkpoint_every is {settings['checkpoint_every']!r}, and there is no folder for checkpoints: set folder"
        )
    with ending_by_sigterm(), checkpoints.locked(place):
        earlier = checkpoints.earlier_run(place, resume, overwrite=overwrite)
        if init_from is not None and resume not in (None, False, True):
            raise ValueError(
                "init_from begins a run and resume continues one: leave one of them out, or set resume=True"
            )
        if earlier.checkpoint is not None:
            checkpoints.require_agent(earlier.checkpoint, agent)
        if place is not None and earlier.checkpoint is None and not overwrite:
            _refuse_other_run(place, agent.name, env_id, _checks.integer("seed", seed))
        found = _settings(agent, env_id, earlier, preset, config, run, environment, settings)
        nodes, begin = _runner(runner, address)
        topology = plan(
            agent,
            env_id,
            seed=seed,
            preset=found,
            num_shards=num_shards,
            runner=runner,
            nodes=nodes,
            check_memory=check_memory,
            check_files=earlier.checkpoint is None,
        )
        warn_of_precision(topology.config, topology.run, runner)
        page = None if http is None else page_address(http, runner)
        topology = replace(topology, folder=place)
        trained = agent
        if init_from is not None and earlier.checkpoint is None:
            from reverie.runners.checkpoints.warm_start import path_of, warm_started  # needs safetensors

            trained = warm_started(agent, topology, path_of(init_from))
        if runner != "local":
            _require_importable(trained)
        if place is not None:
            checkpoints.require_named_weights(agent, topology)
        elif has_journal(topology.run):
            raise ValueError(
                f"replay_journal is {topology.run.replay_journal!r}, and there is no folder for the checkpoints of the"
                " learner, with which a killed run could continue: set folder"
            )
        checkpoint, state = earlier.checkpoint, None
        if checkpoint is not None:
            state = checkpoints.load_run(checkpoint, agent, topology)
        written = replace(found, config=topology.config, run=topology.run, environment=topology.env.settings)
        if state is not None and checkpoints.is_finished(state, topology, stop_when_confirmed=stop_when_confirmed):
            assert checkpoint is not None
            checkpoints.require_trained_with(checkpoint, agent, topology, state)
            result = replace(checkpoints.result_of(checkpoint, agent, topology, state), reference=reference)
            if place is not None:
                with closing(RunFiles(place, written, None)) as log:
                    _complete(log, result, EventReporter(callbacks))
            return result
        checkpoint_folder = None if place is None else place / CHECKPOINTS
        replays = checkpoints.place_replays(checkpoint_folder, checkpoint, topology, state)
        if state is not None and replays.folder is not None and replays.continued:
            state = checkpoints.with_newer_counts(state, replays.folder, topology.run.max_env_steps)
        best = checkpoints.BestKeeper(place, agent, reference, topology, begins_again=earlier.begins_again)
        if checkpoint is not None and state is not None:
            best.resume(checkpoint, state["env_steps"])
        replaced = earlier_runs.to_replace(place) if overwrite and place is not None else None
        files = None if place is None else RunFiles(place, written, replaced)
        try:
            with ending_at_interrupts(place, should_stop or (lambda: False)) as interruptible:
                own: list[Callable[[Event], None]] = [] if files is None else [files, best.on_event]
                notes = (earlier.note if earlier.begins_again else "", found.note)
                reporting = EventReporter((interruptible.on_event, *own, *callbacks), notes)
                ending = _Ending(agent, reference, best, reporting)
                checked = CheckedRun(
                    agent=trained,
                    topology=topology,
                    on_event=ending,
                    should_stop=interruptible.should_stop,
                    stop_when_confirmed=stop_when_confirmed,
                    checkpoint_folder=checkpoint_folder,
                    resume=checkpoint,
                    state=state,
                    replays=replays,
                    check_memory=check_memory,
                    best=best,
                    page=page,
                )
                try:
                    interruptible.result = result = ending.complete(begin(checked))
                except StoppedError as stopped:
                    stopped.complete(topology, agent, reference)
                    raise
            return result
        except ParameterError as error:
            if checkpoint is None:
                raise
            raise checkpoints.CheckpointError(checkpoint, f"does not fit this run: {error}") from error
        finally:
            if files is not None:
                files.close()


class _Ending:
    """Completes the result of a run, once: it has the agent that `train` was given, not one with a warm start."""

    def __init__(
        self, agent: Agent, reference: str, best: checkpoints.BestKeeper, on_event: Callable[[Event], None]
    ) -> None:
        self._agent, self._reference, self._best, self._on_event = agent, reference, best, on_event
        self._result: Result | None = None

    def __call__(self, event: Event) -> None:
        self._on_event(Finished(self.complete(event.result)) if isinstance(event, Finished) else event)

    def complete(self, result: Result) -> Result:
        """The result, the same one at every call."""
        completed = replace(result, agent=self._agent, reference=self._reference, best=self._best.best)
        self._result = self._result or completed
        return self._result


def _refuse_in_an_import_of_the_program() -> None:
    """Raise RuntimeError in a process of `multiprocessing` that still imports the program, and would train as it does.

    It would repeat all runs of the program before the one that has started it.
    """
    if getattr(current_process(), "_inheriting", False):  # as `multiprocessing` itself finds it out
        raise RuntimeError(
            "train was called while a new process imports the program, which each process of a run does: call it under"
            ' `if __name__ == "__main__":`'
        )


def _agent(agent: Agent | str) -> Agent:
    if isinstance(agent, str):
        return agents.find(agent)
    if not isinstance(agent, Agent):
        raise TypeError(f'agent is {agent!r}, and must be an Agent, or the name of one, such as "dqn"')
    return agent


def _settings(
    agent: Agent,
    env_id: str,
    earlier: EarlierRun,
    preset: Preset | Path | str | None,
    config: Any,
    run: RunSettings | None,
    environment: EnvSettings | None,
    settings: dict[str, Any],
) -> Preset:
    """The settings of a run: of a preset, of the run that it continues, or the agent's own, each with these changes."""
    require_settings("environment", environment, DEFAULTS, "a run")
    if isinstance(preset, Preset):
        found = preset
    else:
        path = earlier.preset if preset is None else _checks.path("preset", preset)
        changes = {} if environment is None else vars(environment)
        found = agent.load_preset(env_id, path, {**changes, **presets.of_environment(settings, agent.config)})
    require_settings("config", config, found.config, agent.name)
    require_settings("run", run, found.run, "a run")
    found = replace(
        found,
        config=config or found.config,
        run=run or found.run,
        environment=environment or found.environment,
    )
    if settings:
        own = [name for name in inspect.signature(train).parameters if name != "settings"]
        found = presets.changed(found, settings, agent.name, own, env_id)
    if isinstance(preset, Preset) or environment is not None:
        return found
    return without_returns(found, settings)


def _complete(files: RunFiles, result: Result, report: Callable[[Event], None]) -> None:
    """Give the log of a finished run its result; a log that cannot be read or written is reported."""
    try:
        files.complete(result)
    except (logs.LogError, OSError) as error:
        report(LogNotWritten(result.env_steps, files.name, str(error)))


def _refuse_other_run(folder: Path, agent: str, env_id: str, seed: int) -> None:
    """Raise `RunExistsError` for the log of another run, which has no checkpoint yet."""
    other = checkpoints.other_run(folder, agent, env_id, seed)
    if other:
        raise RunExistsError(folder, f"{other}: set another folder")


def _runner(name: RunnerName, address: str | None) -> tuple[list[ClusterNode] | None, Callable[[CheckedRun], Result]]:
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
