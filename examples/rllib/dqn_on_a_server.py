"""RLlib's DQN on CartPole-v1 with prioritised replay on a server, which the env runners fill from their own processes.

pip install "reverie[ray]" "ray[rllib]"
"""

import ray
from ray.rllib.algorithms.dqn import DQNConfig

import reverie
from reverie.integrations.rllib import AddSamples

N_STEP, ITERATIONS = 3, 2


def main() -> None:
    """Trains for some iterations. Another machine's address takes the place of the server's."""
    table = reverie.Table("replay", reverie.selectors.Prioritized(0.6), reverie.selectors.Fifo(), max_size=50_000)
    with reverie.Server([table]) as server:
        config = (
            DQNConfig()
            .environment("CartPole-v1")
            .env_runners(num_env_runners=2, rollout_fragment_length=20)
            .callbacks(on_sample_end=AddSamples(server.address, n_step=N_STEP))
            .training(
                n_step=N_STEP,
                train_batch_size_per_learner=32,
                num_steps_sampled_before_learning_starts=200,
                replay_buffer_config={
                    # The name of the class: RLlib takes no other class than its own.
                    "type": "reverie.integrations.rllib.PrioritizedEpisodeReplayBuffer",
                    "server": server.address,
                    "added_by": "env_runners",
                    "n_step": N_STEP,
                    "beta": 0.4,
                },
            )
            .reporting(min_sample_timesteps_per_iteration=500)
        )
        algorithm = config.build_algo()
        for _ in range(ITERATIONS):
            result = algorithm.train()
            info = algorithm.local_replay_buffer.client.info().tables["replay"]
            mean = result["env_runners"]["episode_return_mean"]
            print(f"{info.num_inserts} transitions, {info.num_updates} new priorities, a mean return of {mean:.0f}")
        algorithm.stop()


if __name__ == "__main__":
    ray.init(include_dashboard=False)
    main()
