"""Algorithms of Stable-Baselines3 on Reverie's buffers: short trainings, and the same updates as SB3's own."""

from __future__ import annotations

import pytest

pytest.importorskip("stable_baselines3")

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import reverie
from reverie.integrations.stable_baselines3 import (
    DictReplayBuffer,
    PrioritizedDQN,
    PrioritizedReplayBuffer,
    PrioritizedSAC,
    ReplayBuffer,
)


def small(**options):
    """Settings of a small model; SB3 changes `policy_kwargs`."""
    settings = {"learning_starts": 20, "batch_size": 16, "device": "cpu", "seed": 3, **options}
    return {"policy_kwargs": {"net_arch": [8]}, **settings}


class Corridor(gym.Env):
    """Dict observations with an image and a number; eight steps long."""

    observation_space = spaces.Dict({"image": spaces.Box(0, 255, (3, 36, 36), np.uint8), "at": spaces.Discrete(9)})
    action_space = spaces.Discrete(2)
    _at = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at = 0
        return self._observe(), {}

    def step(self, action):
        self._at += int(action)
        return self._observe(), float(action), self._at >= 8, False, {}

    def _observe(self):
        return {"image": np.full((3, 36, 36), self._at, np.uint8), "at": self._at}


def parameters(model):
    return torch.cat([value.flatten() for value in model.policy.state_dict().values()])


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"n_steps": 3, "gamma": 0.99}], ids=["one-step", "n-step"])
@pytest.mark.parametrize("buffer", [ReplayBuffer, PrioritizedReplayBuffer])
def test_dqn_of_sb3_trains_on_a_buffer_and_repeats_with_its_seed(buffer, options):
    def learn():
        env = make_vec_env("CartPole-v1", n_envs=2, seed=1)
        model = DQN("MlpPolicy", env, replay_buffer_class=buffer, replay_buffer_kwargs=options, **small(train_freq=1))
        start = parameters(model)
        model.learn(80)
        assert model._n_updates > 20
        assert not torch.equal(start, parameters(model))
        return parameters(model)

    assert torch.equal(learn(), learn())


def test_sac_of_sb3_trains_on_a_server_with_normalised_observations():
    table = reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=500)
    with reverie.Server([table]) as server:
        env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=2, seed=1))
        model = SAC(
            "MlpPolicy",
            env,
            replay_buffer_class=ReplayBuffer,
            replay_buffer_kwargs={"server": server.address},
            **small(),
        )
        model.learn(60)
        assert model._n_updates > 15
        assert model.replay_buffer.size() == 30
        model.replay_buffer.client.close()


def test_dict_observations_train_in_dqn():
    for kind, buffer in ((DQN, DictReplayBuffer), (PrioritizedDQN, PrioritizedReplayBuffer)):
        options = {"learning_starts": 20, "batch_size": 4, "device": "cpu", "replay_buffer_class": buffer}
        model = kind("MultiInputPolicy", Corridor(), **options)
        model.learn(28)
        assert model._n_updates > 0


def test_a_saved_buffer_is_loaded_and_training_goes_on(tmp_path):
    model = DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=ReplayBuffer, optimize_memory_usage=True, **small())
    model.learn(60)
    model.save_replay_buffer(tmp_path / "replay")
    model.save(tmp_path / "model")
    again = DQN.load(tmp_path / "model", env=model.get_env())
    again.load_replay_buffer(tmp_path / "replay")
    assert again.replay_buffer.size() == 60
    again.learn(40, reset_num_timesteps=False)
    assert again.replay_buffer.size() == 100


def test_a_second_learn_begins_new_trajectories():
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        replay_buffer_class=ReplayBuffer,
        replay_buffer_kwargs={"n_steps": 5, "gamma": 0.99},
        optimize_memory_usage=True,
        **small(),
    )
    model.learn(40)
    with pytest.warns(UserWarning, match="last trajectory"):
        model.learn(40)
    # All windows of the first part are there, none of them with steps of the second.
    assert model.replay_buffer.size() >= 76


@pytest.mark.parametrize(
    ("kind", "plain", "env"),
    [(PrioritizedDQN, DQN, "CartPole-v1"), (PrioritizedSAC, SAC, "Pendulum-v1")],
    ids=["dqn", "sac"],
)
@pytest.mark.parametrize("options", [{}, {"n_steps": 3, "gamma": 0.9}], ids=["one-step", "n-step"])
@pytest.mark.parametrize("settings", [{}, {"ent_coef": 0.1, "use_sde": True, "target_update_interval": 2}])
def test_with_equal_priorities_and_beta_0_the_updates_are_those_of_sb3(kind, plain, env, options, settings):
    if plain is DQN and settings:
        settings = {"max_grad_norm": 0.1}
    # Both sample the same transitions: alpha 0 draws uniformly, with the same seed.
    buffer = {"replay_buffer_kwargs": {"alpha": 0.0, "seed": 5, **options}}
    common = {"replay_buffer_class": PrioritizedReplayBuffer, **buffer, **settings}

    def learn(kind, **betas):
        model = kind("MlpPolicy", env, **small(**common), **betas)
        model.learn(30)
        model.train(gradient_steps=5, batch_size=16)
        return parameters(model), model.logger.name_to_value

    theirs, their_figures = learn(plain)
    ours, our_figures = learn(kind, beta_initial=0.0, beta_final=0.0)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    names = [name for name in their_figures if name.startswith("train/")]
    assert len(names) > 1
    assert {n: our_figures[n] for n in names} == pytest.approx({n: their_figures[n] for n in names}, rel=1e-4, abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "env"), [(PrioritizedDQN, "CartPole-v1"), (PrioritizedSAC, "Pendulum-v1")])
def test_priorities_become_td_errors_and_beta_is_annealed(kind, env):
    model = kind("MlpPolicy", env, beta_initial=0.2, beta_final=0.8, **small())
    assert model.beta == pytest.approx(0.2)
    model.learn(80)
    assert model.beta == pytest.approx(0.8)
    table = model.replay_buffer.client.query("replay")
    updated = table.priority[table.version > 0]
    assert len(updated) > 20
    assert len(np.unique(updated)) > 20


@pytest.mark.parametrize(("kind", "env"), [(PrioritizedDQN, "CartPole-v1"), (PrioritizedSAC, "Pendulum-v1")])
def test_weights_change_the_updates(kind, env):
    def learn(beta):
        model = kind("MlpPolicy", env, beta_initial=beta, beta_final=beta, **small())
        model.learn(25)
        keys = model.replay_buffer.client.query("replay").key
        model.replay_buffer.update_priorities(keys, np.arange(len(keys)))
        model.train(1, 16)
        return parameters(model)

    assert torch.equal(learn(0.0), learn(0.0))
    assert not torch.equal(learn(0.0), learn(1.0))


@pytest.mark.parametrize("kind", [PrioritizedDQN, PrioritizedSAC])
def test_n_steps_of_the_algorithm_reach_its_own_buffer(kind, recwarn):
    env = "CartPole-v1" if kind is PrioritizedDQN else "Pendulum-v1"
    model = kind("MlpPolicy", env, n_steps=3, gamma=0.9, **small())
    assert (model.n_steps, model.replay_buffer.n_steps, model.replay_buffer.gamma) == (3, 3, 0.9)
    assert [str(warning.message) for warning in recwarn if "n_steps" in str(warning.message)] == []


def test_a_prioritised_algorithm_refuses_other_buffers_and_a_beta_out_of_range():
    with pytest.raises(TypeError, match="needs a PrioritizedReplayBuffer, got ReplayBuffer"):
        PrioritizedDQN("MlpPolicy", "CartPole-v1", replay_buffer_class=ReplayBuffer)
    with pytest.raises(ValueError, match="beta_final must be between"):
        PrioritizedSAC("MlpPolicy", "Pendulum-v1", beta_final=1.5)


def test_a_prioritised_model_is_saved_and_loaded(tmp_path):
    model = PrioritizedSAC("MlpPolicy", "Pendulum-v1", beta_final=0.9, **small())
    model.learn(30)
    model.save(tmp_path / "model")
    again = PrioritizedSAC.load(tmp_path / "model", env=model.get_env())
    assert again.beta_final == 0.9
    assert torch.equal(parameters(model), parameters(again))
    again.learn(30)
    assert again._n_updates > model._n_updates


def test_without_stable_baselines3_the_import_names_the_extra(monkeypatch):
    import importlib
    import sys

    for name in [name for name in sys.modules if name.startswith("reverie.integrations")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(ImportError, match=r"reverie\[stable-baselines3\]"):
        importlib.import_module("reverie.integrations.stable_baselines3")
