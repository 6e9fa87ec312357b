"""The folder of a server's disk tier in a run of several processes."""

import dataclasses

import pytest

pytest.importorskip("torch")

from reverie.agents.dqn import agent as dqn
from reverie.runners.links.messages import RoleName, Serving
from reverie.runners.planning.topology import plan
from reverie.runners.roles import role
from reverie.runners.supervision.role_setups import RoleSetups

NAME = RoleName("shard")


def shard_setup(folder, resumed=None, generation=0):
    run = dataclasses.replace(dqn.load_preset("CartPole-v1").run, replay_disk=str(folder))
    setups = RoleSetups(dqn, plan(dqn, "CartPole-v1", seed=3, run=run, runner="process"), resumed)
    seed = setups.seed(NAME, generation)
    return dataclasses.replace(setups.first(NAME), seed=seed, generation=generation, serving=Serving())


@pytest.mark.parametrize("again", [{"generation": 1}, {"resumed": {"env_steps": 700}}])
def test_a_server_that_is_started_again_removes_the_files_of_the_one_that_was_killed(tmp_path, again):
    role.Shard(shard_setup(tmp_path)).close()
    (folder,) = tmp_path.iterdir()
    assert folder.name == "seed-3-server-0", "of the run's seed"
    left = folder / "1-00000000.chunks"
    left.write_bytes(b"what a killed server had moved")
    setup = shard_setup(tmp_path, **again)
    assert setup.seed != shard_setup(tmp_path).seed, "draws after a restart do not repeat those before"
    role.Shard(setup).close()
    assert not left.exists()
    assert list(tmp_path.iterdir()) == [folder]


def test_runs_of_two_seeds_have_folders_of_their_own(tmp_path):
    run = dataclasses.replace(dqn.load_preset("CartPole-v1").run, replay_disk=str(tmp_path))
    assert len({run.server_disk(seed, index, 2)["disk"] for seed in (0, 1) for index in (0, 1)}) == 4
