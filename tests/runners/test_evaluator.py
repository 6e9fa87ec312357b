import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from reverie.runners.evaluator import CONFIRMATION_SEEDS, SCREENING_SEEDS, Evaluator  # noqa: E402


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


def test_the_same_seeds_give_the_same_episodes():
    evaluator = Evaluator("CartPole-v1")
    one, two = (evaluator.evaluate(lambda obs: (obs[:, 2] > 0).astype(np.int64), SCREENING_SEEDS) for _ in range(2))
    assert one == two
    evaluator.close()


def test_confirmation_is_on_20_seeds_that_screening_never_uses():
    assert len(set(CONFIRMATION_SEEDS)) == 20
    assert not set(CONFIRMATION_SEEDS) & set(SCREENING_SEEDS)
