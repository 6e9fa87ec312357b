"""Runs on a `Theatre`."""

import dataclasses
import functools
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parent))

from theatre import RUN, Theatre

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.runners import StoppedError, checkpoints, plan
from reverie.runners.supervision import role_group
from reverie.runners.supervision.listening_clock import ListeningClock
from reverie.runners.supervision.supervisor import Supervisor


@pytest.fixture
def perform(tmp_path, monkeypatch):
    """A run on a `Theatre` by its clock; gives the stage, the events and the result, or what ended it."""

    def perform(
        judge,
        *,
        agent=apex_dqn,
        stop=lambda stage: False,
        resume=None,
        folder=tmp_path,
        config=None,
        draws=None,
        script=None,
        ignores=None,
        best_in=None,
        **run,
    ):
        """`script` and `ignores` are functions of the stage: what happens in a turn, and unanswered commands."""
        config = config or dataclasses.replace(agent.load_preset("CartPole-v1").config, num_actors=2)
        topology = plan(agent, "CartPole-v1", config=config, run=dataclasses.replace(RUN, **run), runner="process")
        stage, events = Theatre(tmp_path, judge), []
        stage.draws = draws
        stage.script = script or stage.script
        if ignores is not None:
            stage.ignores = functools.partial(ignores, stage)
        policy = agent.make_policy(topology.env, config)
        stage.num_parameters = sum(one.numel() for one in policy.module.parameters())
        monkeypatch.setattr(role_group, "ListeningClock", lambda: ListeningClock(lambda: stage.now))
        monkeypatch.setattr("reverie.runners.supervision.supervisor.time.monotonic", lambda: stage.now)
        state = None if resume is None else checkpoints.load(resume)
        supervisor = Supervisor(
            agent,
            topology,
            stage,
            events.append,
            checkpoint_folder=folder,
            resume=None,
            state=state,
            replays=checkpoints.place_replays(folder, None, topology, None),
            best=checkpoints.BestKeeper(best_in, agent, "", topology),
            should_stop=lambda: stop(stage),
        )
        try:
            end = supervisor.run(stop_when_confirmed=True)
        except (StoppedError, TimeoutError) as error:
            end = error
        return stage, events, end

    return perform
