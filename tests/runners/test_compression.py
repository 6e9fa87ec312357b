"""`replay_compression`: the tables of a run store their steps as the run asks."""

import dataclasses

import pytest

pytest.importorskip("torch")

from reverie.agents.core import RunSettings
from reverie.agents.dqn import agent as dqn
from reverie.agents.gorila import agent as gorila
from reverie.runners import local, train
from reverie.runners.links.messages import RoleName, RoleSetup, ShardSettings
from reverie.runners.planning.plan import plan
from reverie.runners.roles import bundle, role


class StartedError(Exception):
    """A server was started with these tables."""


def started(monkeypatch, module, compression):
    """The compression of the tables with which `module` starts its server."""

    def start(tables, *_, **__):
        raise StartedError([table.compression for table in tables])

    monkeypatch.setattr(module, "Server", start)
    agent = gorila if module is bundle else dqn
    preset = agent.load_preset("CartPole-v1")
    run = dataclasses.replace(preset.run, replay_compression=compression)
    config = dataclasses.replace(preset.config, bundled=True) if module is bundle else preset.config
    env = plan(agent, "CartPole-v1", config=config, run=run, runner="process").env
    kind, role_class = ("bundle", bundle.BundleRole) if module is bundle else ("shard", role.ShardRole)
    setup = RoleSetup(RoleName(kind), agent, env, config, run, 1, seed=0, serving=ShardSettings())
    with pytest.raises(StartedError) as caught:
        train(agent, "CartPole-v1", run=run) if module is local else role_class(setup)
    (found,) = caught.value.args
    return found


@pytest.mark.parametrize("module", [local, role, bundle])
def test_the_tables_of_a_run_have_its_compression_and_else_their_own(monkeypatch, module):
    assert started(monkeypatch, module, "none") == ["none"]
    assert started(monkeypatch, module, None) == ["auto"]


def test_an_unknown_compression_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r'replay_compression is \'gzip\', and must be "auto" or .* or "none"'):
        RunSettings(target_return=1.0, max_env_steps=1, evaluate_every=1, replay_compression="gzip")
