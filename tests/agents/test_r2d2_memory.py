"""R2D2 on a task that needs a memory, and its policy with a state outside of training."""

import dataclasses

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.core import RunSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.r2d2 import agent as r2d2  # noqa: E402
from reverie.agents.r2d2.networks import GreedyPolicy  # noqa: E402
from reverie.runners import train  # noqa: E402
from reverie.runners.reports.evaluation import Evaluator  # noqa: E402

SPEC = describe("CartPole-v1")
CONFIG = dataclasses.replace(
    r2d2.load_preset("CartPole-v1").config,
    num_actors=1,
    envs_per_actor=1,
    hidden=(8,),
    lstm_units=6,
    sequence_length=4,
    sequence_period=2,
    burn_in=3,
    n_step=2,
    learning_starts=1,
    batch_size=8,
)


class Recall(gymnasium.Env):
    """Shows a cue of 1 or -1 once; the action after the third blank observation must name it."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    BLANKS = 3

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.steps = int(self.np_random.integers(2)), 0
        return np.array([2 * self.cue - 1, 0], np.float32), {}

    def step(self, action):
        self.steps += 1
        over = self.steps > self.BLANKS
        reward = (1.0 if action == self.cue else -1.0) if over else 0.0
        return np.array([0, self.steps == self.BLANKS], np.float32), reward, over, False, {}


gymnasium.register("ReverieRecallForR2d2-v0", Recall)
RUN = RunSettings(
    target_return=None, max_env_steps=1_500, evaluate_every=1_500, screening_episodes=20, confirmation_episodes=40
)


@pytest.mark.long
def test_a_cue_is_recalled_which_no_policy_without_a_memory_can_do():
    config = dataclasses.replace(
        CONFIG,
        envs_per_actor=8,
        hidden=(16,),
        lstm_units=16,
        sequence_length=4,
        sequence_period=4,
        burn_in=0,
        batch_size=32,
        learning_starts=50,
        capacity=2_000,
        samples_per_insert=16.0,
        learning_rate=5e-3,
        target_period=20,
    )
    result = train(r2d2, "ReverieRecallForR2d2-v0", config=config, run=RUN, seed=0)
    assert result.evaluation.num_episodes == 40
    assert result.evaluation.mean_return > 0.9
    dqn = agents.find("dqn")
    small = dataclasses.replace(dqn.load_preset("CartPole-v1").config, learning_starts=100, hidden=(16,))
    without = train(dqn, "ReverieRecallForR2d2-v0", config=small, run=RUN, seed=0)
    assert without.evaluation.mean_return < 0.5  # always one answer: cues of 40 fixed episodes are about half each


@pytest.mark.long
def test_policies_outside_of_training_carry_their_state_from_step_to_step(tmp_path):
    run = dataclasses.replace(RUN, max_env_steps=200, evaluate_every=200)
    config = dataclasses.replace(CONFIG, learning_starts=20)
    result = train(r2d2, "ReverieRecallForR2d2-v0", config=config, run=run, seed=0, folder=tmp_path)
    policy = reverie.load_policy(tmp_path)
    assert policy.recurrent
    loaded = reverie.load_policy(policy.save(tmp_path / "p.safetensors"))
    with pytest.raises(TypeError, match=r"the policy of r2d2 has a state: call action, state = policy\.step"):
        policy(np.zeros(2, np.float32))
    rng, one, many = np.random.default_rng(0), policy.initial_state(), loaded.initial_state(3)
    net, last, memory = policy.module, torch.full((1,), -1), (torch.zeros(1, 6), torch.zeros(1, 6))
    for _ in range(5):
        obs = rng.normal(size=2).astype(np.float32)
        action, one = policy.step(obs, one)
        actions, many = loaded.step(np.stack([obs, obs, -obs]), many)
        with torch.no_grad():
            q, memory = net(torch.from_numpy(obs[None]), net.one_hot(last), memory)
        last = q.argmax(dim=1)
        assert action.shape == ()
        assert action == actions[0] == actions[1] == last.item()
        np.testing.assert_allclose(one[:12], torch.cat(memory, dim=1)[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(many[0], one, rtol=1e-5, atol=1e-6)
    assert (many[2] != many[0]).any()
    with pytest.raises(ValueError, match=r"state has shape \(3,\), and must be \(14,\)"):
        policy.step(obs, np.zeros(3))
    assert (policy.step(obs, one.tolist())[1] == policy.step(obs, one)[1]).all()
    assert result.learner["updates"] > 0


def test_the_state_of_an_evaluated_episode_does_not_depend_on_the_others():
    policy = GreedyPolicy(SPEC, CONFIG)
    for parameter in policy.module.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.7, generator=torch.Generator().manual_seed(3))
    evaluator = Evaluator("CartPole-v1", 6)
    together = evaluator.evaluate(policy, range(6)).returns
    alone = tuple(evaluator.evaluate(policy, [seed]).returns[0] for seed in range(6))
    evaluator.close()
    assert together == alone
    assert len(set(together)) > 1  # episodes end at different steps, and the states of the others stay theirs


@pytest.mark.long
@pytest.mark.xdist_group("fork server")
def test_roles_in_processes_learn_from_sequences():
    run = dataclasses.replace(RUN, screening_episodes=2)
    config = dataclasses.replace(CONFIG, num_actors=2, envs_per_actor=2, learning_starts=30)
    result = train(r2d2, "CartPole-v1", config=config, run=run, seed=0, runner="process")
    assert result.learner["updates"] > 10
    assert result.learner["priorities_applied"] > 0
    assert result.replay["inserts"] > 100
