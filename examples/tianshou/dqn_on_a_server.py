"""tianshou's DQN on CartPole-v1 with prioritised replay on a server: transitions and priorities are in its table.

pip install "reverie[tianshou]"
"""

import gymnasium as gym
import tianshou
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

import reverie
from reverie.integrations.tianshou import PrioritizedReplayBuffer

N_STEP, NUM_ENVS, STEPS = 3, 4, 600


def main() -> None:
    """Trains for some steps. Another machine's address takes the place of the server's."""
    envs = DummyVectorEnv([lambda: gym.make("CartPole-v1")] * NUM_ENVS)
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=4, action_shape=2, hidden_sizes=[64, 64]),
        action_space=gym.make("CartPole-v1").action_space,
        eps_training=0.15,
    )
    algorithm = DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=2e-3), n_step_return_horizon=N_STEP, target_update_freq=100
    )
    table = reverie.Table("replay", reverie.selectors.Prioritized(0.6), reverie.selectors.Fifo(), max_size=50_000)
    with reverie.Server([table]) as server:
        buffer = PrioritizedReplayBuffer(50_000, NUM_ENVS, n_step=N_STEP, beta=0.4, server=server.address)
        collector = tianshou.data.Collector(algorithm, envs, buffer)
        collector.reset()
        collector.collect(n_step=200, random=True)
        algorithm.run_training(
            OffPolicyTrainerParams(
                training_collector=collector,
                max_epochs=1,
                epoch_num_steps=STEPS,
                collection_step_num_env_steps=8,
                update_step_num_gradient_steps_per_sample=0.25,
                batch_size=64,
                test_step_num_episodes=0,
            )
        )
        info = buffer.client.info().tables["replay"]
        print(f"{info.num_inserts} transitions, {info.num_updates} new priorities")
        assert len(buffer) == info.current_size > STEPS
        assert info.num_updates > 0
        buffer.client.close()


if __name__ == "__main__":
    main()
