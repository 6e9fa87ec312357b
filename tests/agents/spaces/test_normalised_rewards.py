"""Normalised rewards of environments whose rewards are large."""

import numpy as np
import pytest
import torch
from random_spaces import id_of, table_of

from reverie import agents
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import (
    UnsupportedEnvironmentError,
)
from reverie.agents.inputs import ObservationReader, Statistics
from reverie.agents.layers import initialised
from reverie.runners import plan


def test_normalised_rewards_are_raw_in_the_table_and_one_deviation_in_the_learner():
    apex = agents.find("apex-dqn")
    _, data, learner, _ = table_of("Loud", apex, normalise_rewards=True)
    assert set(np.unique(data["reward"] / 50)) - {0.0}, "the table has the environment's own rewards"
    deviation = learner._statistics.reward_deviation()
    assert 10 < deviation < 500
    scaled = learner._statistics.scaled({"reward": torch.tensor([50.0])})["reward"]
    assert scaled.item() == pytest.approx(50 / deviation)
    assert np.abs(data["discounted_return"]).max() > 50


def test_the_first_reward_after_many_steps_without_one_is_ten_deviations_and_no_more():
    """The deviation of equal returns is next to 0."""
    apex = agents.find("apex-dqn")
    spec, data, learner, _ = table_of("Loud", apex, normalise_rewards=True)
    one = Statistics([initialised(lambda: ObservationReader(spec), 0)])
    one.merge({**data, "discounted_return": np.zeros_like(data["discounted_return"])})
    assert one.reward_deviation() == pytest.approx(1e-4)
    first = one.scaled({"reward": torch.tensor([0.0, 1.0, -1.0])})["reward"]
    assert first.tolist() == [0.0, 10.0, -10.0]
    deviation = learner._statistics.reward_deviation()
    many = torch.tensor([9.0, 11.0]) * deviation
    assert learner._statistics.scaled({"reward": many})["reward"].tolist() == pytest.approx([9.0, 10.0])


def test_the_first_batch_is_in_deviations_of_its_own_returns_and_they_count_once():
    spec, data, _, _ = table_of("Loud", agents.find("apex-dqn"), normalise_rewards=True)
    readers = [initialised(lambda: ObservationReader(spec), seed) for seed in (0, 1)]
    one, returns = Statistics(readers), np.asarray(data["discounted_return"])
    reward = torch.as_tensor(data["reward"])
    expected = (reward / float(returns.std())).clip(-10.0, 10.0)
    torch.testing.assert_close(one.scaled({**data, "reward": reward})["reward"], expected, rtol=1e-4, atol=1e-6)
    assert [reader.returns.count.item() for reader in readers] == [len(returns)] * 2, "also before it was learnt from"
    one.merge(data)
    assert [reader.returns.count.item() for reader in readers] == [len(returns)] * 2
    torch.testing.assert_close(one.scaled({"reward": reward})["reward"], expected, rtol=1e-4, atol=1e-6)
    one.merge(data)
    assert [reader.returns.count.item() for reader in readers] == [2 * len(returns)] * 2


def test_normalisation_that_could_have_no_effect_is_refused():
    with pytest.raises(UnsupportedEnvironmentError, match=r"normalise_observations is true, and .* have no numbers"):
        plan(agents.find("dqn"), id_of("Grid"), environment=EnvSettings(normalise_observations=True))
    with pytest.raises(UnsupportedEnvironmentError, match="gorila send gradients only"):
        plan(agents.find("gorila"), "CartPole-v1", environment=EnvSettings(normalise_rewards=True))
