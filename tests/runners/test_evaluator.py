import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from reverie.runners.evaluator import Evaluator, confirmation_seeds, screening_seeds  # noqa: E402


class Echo(gymnasium.Env):
    """An episode lasts as many steps as its seed says; the reward is the action."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(100)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = seed
        return np.array([self.left], np.float32), {}

    def step(self, action):
        assert self.left > 0, "stepped after its end"
        self.left -= 1
        return np.array([self.left], np.float32), float(action), self.left == 0 and True, False, {}


gymnasium.register("ReverieEcho-v0", Echo)


@pytest.fixture
def evaluator():
    evaluator = Evaluator("ReverieEcho-v0", num_envs=4)
    yield evaluator
    evaluator.close()


def test_every_episode_is_whole_and_the_policy_sees_only_those_that_still_run(evaluator):
    seen = []

    def policy(observations):
        seen.append(observations[:, 0].tolist())
        return observations[:, 0].astype(np.int64)

    evaluation = evaluator.evaluate(policy, [3, 1, 2])
    assert seen == [[3, 1, 2], [2, 1], [1]]
    assert evaluation.returns == (6.0, 1.0, 3.0)
    assert evaluation.seeds == (3, 1, 2)
    assert evaluation.mean_return == pytest.approx(10 / 3)
    assert evaluation.num_episodes == 3


@pytest.mark.parametrize("seeds", [[], [1] * 5])
def test_more_seeds_than_environments_or_none_are_refused(evaluator, seeds):
    with pytest.raises(ValueError, match=f"{len(seeds)} seeds for 4 environments"):
        evaluator.evaluate(lambda observations: np.zeros(len(observations), np.int64), seeds)


def test_continuous_actions_go_to_the_environment_as_the_policy_gave_them():
    evaluator = Evaluator("Pendulum-v1", 3)
    evaluation = evaluator.evaluate(lambda obs: np.zeros((len(obs), 1), np.float32), [1, 2, 3])
    evaluator.close()
    env = gymnasium.make("Pendulum-v1")
    for seed, expected in zip(evaluation.seeds, evaluation.returns, strict=True):
        env.reset(seed=seed)
        assert sum(float(env.step(np.zeros(1, np.float32))[1]) for _ in range(200)) == expected


def test_the_same_seeds_give_the_same_episodes():
    evaluator = Evaluator("CartPole-v1", 10)
    one, two = (evaluator.evaluate(lambda obs: (obs[:, 2] > 0).astype(np.int64), screening_seeds(10)) for _ in range(2))
    assert one == two
    evaluator.close()


def test_confirmation_is_on_seeds_that_screening_never_uses():
    for episodes in (20, 100):
        assert len(set(confirmation_seeds(episodes))) == episodes
        assert not set(confirmation_seeds(episodes)) & set(screening_seeds(episodes))
