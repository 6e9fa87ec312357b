"""Runs on `SimulatedRoles`."""

import dataclasses
import functools
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parent))

from simulated_roles import RUN, SimulatedRoles

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.runners import StoppedError, checkpoints, plan
from reverie.runners.supervision import role_group
from reverie.runners.supervision.listening_clock import ListeningClock
from reverie.runners.supervision.supervisor import Supervisor


@pytest.fixture
def perform(tmp_path, monkeypatch):
    """A run on `SimulatedRoles` by their clock; gives the backend, the events and the result, or what ended it."""

    def perform(
        judge,
        *,
        agent=apex_dqn,
        stop=lambda backend: False,
        resume=None,
        folder=tmp_path,
        config=None,
        draws=None,
        script=None,
        ignores=None,
        best_in=None,
        **run,
    ):
        """`script` and `ignores` are functions of the backend: what happens in a turn, and unanswered commands."""
        config = config or dataclasses.replace(agent.load_preset("CartPole-v1").config, num_actors=2)
        topology = plan(agent, "CartPole-v1", config=config, run=dataclasses.replace(RUN, **run), runner="process")
        backend, events = SimulatedRoles(tmp_path, judge), []
        backend.draws = draws
        backend.script = script or backend.script
        if ignores is not None:
            backend.ignores = functools.partial(ignores, backend)
        policy = agent.make_policy(topology.env, config)
        backend.num_parameters = sum(one.numel() for one in policy.module.parameters())
        monkeypatch.setattr(role_group, "ListeningClock", lambda: ListeningClock(lambda: backend.now))
        monkeypatch.setattr("reverie.runners.supervision.supervisor.time.monotonic", lambda: backend.now)
        state = None if resume is None else checkpoints.load(resume)
        supervisor = Supervisor(
            agent,
            topology,
            backend,
            events.append,
            checkpoint_folder=folder,
            resume=None,
            state=state,
            replays=checkpoints.place_replays(folder, None, topology, None),
            best=checkpoints.BestKeeper(best_in, agent, "", topology),
            should_stop=lambda: stop(backend),
        )
        try:
            end = supervisor.run(stop_when_confirmed=True)
        except (StoppedError, TimeoutError) as error:
            end = error
        return backend, events, end

    return perform
