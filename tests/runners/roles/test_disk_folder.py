"""The folder of a server's disk tier in a run of several processes."""

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("torch")

from reverie.agents.dqn import agent as dqn
from reverie.runners import Evaluated, train
from reverie.runners.links.messages import RoleName, ShardSettings
from reverie.runners.planning.plan import plan
from reverie.runners.roles import role
from reverie.runners.supervision.role_setups import RoleSetups

NAME = RoleName("shard")


def shard_setup(folder, resumed=None, generation=0):
    run = dataclasses.replace(dqn.load_preset("CartPole-v1").run, replay_disk=str(folder))
    setups = RoleSetups(dqn, plan(dqn, "CartPole-v1", seed=3, run=run, runner="process"), resumed)
    seed = setups.seed(NAME, generation)
    return dataclasses.replace(setups.first(NAME), seed=seed, generation=generation, serving=ShardSettings())


@pytest.mark.parametrize("again", [{"generation": 1}, {"resumed": {"env_steps": 700}}])
def test_a_server_that_is_started_again_removes_the_files_of_the_one_that_was_killed(tmp_path, again):
    role.ShardRole(shard_setup(tmp_path)).close()
    (folder,) = tmp_path.iterdir()
    assert folder.name == "seed-3-server-0", "of the run"
    left = folder / "1-00000000.chunks"
    left.write_bytes(b"what a killed server had moved")
    setup = shard_setup(tmp_path, **again)
    assert setup.seed != shard_setup(tmp_path).seed, "draws after a restart do not repeat those before"
    role.ShardRole(setup).close()
    assert not left.exists()
    assert list(tmp_path.iterdir()) == [folder]


def test_runs_that_share_a_disk_have_folders_of_their_own_which_stay_when_they_are_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = dataclasses.replace(dqn.load_preset("CartPole-v1").run, replay_disk=str(tmp_path))

    def folder(seed=0, of=None, index=0):
        topology = plan(dqn, "CartPole-v1", seed=seed, run=run)
        return run.server_disk(dataclasses.replace(topology, folder=of).name, index, 2)["disk"]

    trials = [Path("search/trial-0"), Path("search/trial-1"), Path("other/trial-0"), None]
    made = {folder(seed, of, index) for seed in (0, 1) for of in trials for index in (0, 1)}
    assert len(made) == 2 * 4 * 2
    assert folder(of=Path()) == folder(of=tmp_path), "the working directory has a name, too"
    longest = Path("x" * 255)
    assert folder(of=longest) != folder(of=longest / "y")
    assert len(Path(folder(of=longest)).name) < 100
    assert folder(of=Path("search/trial-0")) == folder(of=tmp_path / "search" / "trial-0"), (
        "as another command names it"
    )


def test_trials_of_one_seed_share_a_disk(tmp_path):
    preset = dqn.load_preset("CartPole-v1")
    run = dataclasses.replace(
        preset.run, max_env_steps=300, evaluate_every=300, confirmation_episodes=1, replay_disk=str(tmp_path / "disk")
    )
    run = dataclasses.replace(run, screening_episodes=1, target_return=None, replay_memory=1 << 20)

    def inner(event):
        if not isinstance(event, Evaluated) or (tmp_path / "second").exists():
            return
        train(dqn, "CartPole-v1", run=run, folder=tmp_path / "second")

    train(dqn, "CartPole-v1", run=run, folder=tmp_path / "first", on_event=inner)
    assert {path.name.split("-")[0] for path in (tmp_path / "disk").iterdir()} == {"first", "second"}
