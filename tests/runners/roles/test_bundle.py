"""The role of a bundle, made on its own."""

import dataclasses
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import reverie
from reverie.agents.gorila import agent as gorila
from reverie.errors import UnavailableError
from reverie.parameters import FileChannel
from reverie.runners.links.messages import (
    FollowParameterShards,
    PauseUpdates,
    ResumeUpdates,
    RoleName,
    RoleReady,
    SaveState,
    ShardSettings,
    Stop,
    UpdatesPaused,
)
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.links.weights import WeightsChannel
from reverie.runners.planning.plan import plan
from reverie.runners.roles import bundle, role_loop
from reverie.runners.roles.parameter_shard import ParameterShardRole
from reverie.runners.supervision.role_setups import RoleSetups


class Line:
    """A link over which nothing comes but the end."""

    def __init__(self):
        self.reported = []

    def send(self, report):
        self.reported.append(report)

    def commands(self):
        return [Stop()]


def setup_of(folder):
    """A bundle with a journal, a disk and a page."""
    config = dataclasses.replace(gorila.load_preset("CartPole-v1").config, bundled=True)
    run = dataclasses.replace(gorila.load_preset("CartPole-v1").run, replay_disk=str(folder / "disk"))
    topology = plan(gorila, "CartPole-v1", config=config, run=run, runner="process", check_memory=False)
    storage = ReplayStorage(journal=reverie.Journal(folder / "journal"))
    first = RoleSetups(gorila, topology, None).first(RoleName("bundle"))
    weights = WeightsChannel(FileChannel(folder / "weights"))
    return dataclasses.replace(first, serving=ShardSettings(storage=storage), weights=weights)


@pytest.mark.parametrize("part", ["PublishingLearner", "allow_again", "networks_on"])
def test_a_bundle_that_starts_while_parameter_shards_do_not_answer_does_not_meet_its_own_locks(
    part, tmp_path, monkeypatch
):
    """Wherever its start fails, its server is stopped: the next try opens the same journal and the same disk."""
    attempts, made, kept = [], getattr(bundle, part), []

    def late(*args):
        attempts.append(args)
        if len(attempts) < 3:
            error = UnavailableError("the parameter shards do not answer")
            kept.append(error)  # a traceback that is kept holds the half-made bundle
            raise error
        return made(*args)

    monkeypatch.setattr(bundle, part, late)
    monkeypatch.setattr(role_loop, "AGAIN_SECONDS", 0.0)
    line = Line()
    role_loop.run_role(setup_of(tmp_path), line)
    assert len(attempts) >= 3
    assert isinstance(line.reported[0], RoleReady), line.reported


class Counter:
    """A link whose pauses are counted."""

    def __init__(self):
        self.pauses = 0

    def pause(self, seconds):
        self.pauses += 1


def test_a_bundle_that_starts_held_takes_no_step_until_it_is_resumed(tmp_path):
    role = bundle.BundleRole(dataclasses.replace(setup_of(tmp_path), held=True))
    try:
        link = Counter()
        role.turn(link)
        assert (role.report().acted.env_steps, link.pauses) == (0, 1)
        assert role.handle(PauseUpdates(3)) == UpdatesPaused(3)
        role.handle(ResumeUpdates())
        role.turn(link)
        assert role.report().acted.env_steps > 0
        assert link.pauses == 1
    finally:
        role.close()


def test_a_bundle_writes_its_table_only_if_the_answer_is_to_have_it(tmp_path):
    first = setup_of(tmp_path)
    kept = ReplayStorage(checkpointer=reverie.checkpointers.DefaultCheckpointer(tmp_path / "tables"))
    role = bundle.BundleRole(dataclasses.replace(first, serving=ShardSettings(storage=kept)))
    try:
        assert role.handle(SaveState(1, tables=False)).tables is None
        assert list((tmp_path / "tables").glob("*/*")) == []
        assert role.handle(SaveState(2)).tables is not None
    finally:
        role.close()


def test_states_name_the_epoch_of_the_parameter_shards_that_they_are_of(tmp_path):
    first = dataclasses.replace(setup_of(tmp_path), epoch=2)
    role = bundle.BundleRole(first)
    try:
        assert role.handle(SaveState(1)).epoch == 2
        role.inner.learner.follow = lambda server: None
        role.inner._server = lambda connection: None
        role.handle(FollowParameterShards(SimpleNamespace(open=lambda: None), epoch=3))
        assert role.handle(SaveState(2)).epoch == 3
    finally:
        role.close()
    shard = ParameterShardRole(dataclasses.replace(first, name=RoleName("parameter shard", 0)))
    assert shard.handle(SaveState(1)).epoch == 2
