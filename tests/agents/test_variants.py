"""A variant of an agent of this package: its learner with another loss, its settings with one more."""

import dataclasses

import pytest

pytest.importorskip("torch")

import reverie
from reverie import agents
from reverie.agents.cql_sac.learner import Learner as CqlSacLearner
from reverie.agents.ddpg.learner import Learner as DdpgLearner
from reverie.agents.dqn.learner import Learner as DqnLearner
from reverie.agents.sac.learner import Learner as SacLearner
from reverie.agents.td3.learner import Learner as Td3Learner

LOSS = 7.5
SHORT = {
    "max_env_steps": 60,
    "learning_starts": 20,
    "batch_size": 8,
    "samples_per_insert": 4.0,
    "evaluate_every": 60,
    "screening_episodes": 1,
    "target_return": None,
    "compile": "off",
}


def constant(q_tm1):
    return 0.0 * q_tm1.sum() + LOSS


class Sac(SacLearner):
    def _critics_loss(self, q_tm1, target, weights):
        return constant(q_tm1)


class Td3(Td3Learner):
    def _critics_loss(self, q_tm1, target, weights):
        return constant(q_tm1)


class Ddpg(DdpgLearner):
    def _critics_loss(self, q_tm1, target, weights):
        return constant(q_tm1)


class CqlSac(CqlSacLearner):
    def _critics_loss(self, q_tm1, target, weights):
        return constant(q_tm1)


class Dqn(DqnLearner):
    def _loss(self, data):
        return constant(self._online.module(data["obs"]))


@pytest.mark.parametrize(
    ("name", "learner", "env_id", "figure"),
    [
        ("sac", Sac, "Pendulum-v1", "critics_loss"),
        ("td3", Td3, "Pendulum-v1", "critics_loss"),
        ("ddpg", Ddpg, "Pendulum-v1", "critic_loss"),
        ("cql-sac", CqlSac, "Pendulum-v1", "critics_loss"),
        ("dqn", Dqn, "CartPole-v1", "loss"),
    ],
)
def test_a_learner_of_ones_own_computes_the_loss_and_inherits_the_rest(name, learner, env_id, figure):
    variant = dataclasses.replace(agents.find(name), name=f"my-{name}", make_learner=learner)
    result = reverie.train(variant, env_id, **SHORT)
    assert result.learner["updates"] > 0
    assert result.learner[figure] == LOSS
