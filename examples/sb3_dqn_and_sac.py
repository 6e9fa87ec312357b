"""DQN and SAC of Stable-Baselines3 on Reverie's replay buffers: in this process, prioritised, and on a server.

Install `reverie[stable-baselines3]`. The trainings are short: they show the calls, and that DQN learns to balance.
"""

import tempfile
from pathlib import Path

import torch
from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import reverie
from reverie.integrations.stable_baselines3 import PrioritizedDQN, ReplayBuffer

torch.set_num_threads(1)  # More threads would wait for each other: the networks are small.

# Prioritised replay with 3-step returns, in this process.
dqn = PrioritizedDQN(
    "MlpPolicy",
    make_vec_env("CartPole-v1", n_envs=4, seed=1),
    n_steps=3,
    learning_rate=2e-3,
    buffer_size=20_000,
    learning_starts=500,
    batch_size=64,
    train_freq=1,
    gradient_steps=2,
    target_update_interval=100,
    exploration_fraction=0.3,
    policy_kwargs={"net_arch": [64, 64]},
    seed=1,
    device="cpu",
)
dqn.learn(4_000)
score, _ = evaluate_policy(dqn, make_vec_env("CartPole-v1", seed=2), n_eval_episodes=5)
print(f"DQN balances for {score:.0f} steps; {dqn.replay_buffer.size() * 4} transitions are stored")
assert score > 60, "a random policy balances for about 20 steps"

# The transitions of SAC are on a server, where other processes could add to them or sample them.
table = reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=10_000)
with reverie.Server([table]) as server:
    sac = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        replay_buffer_class=ReplayBuffer,
        replay_buffer_kwargs={"server": server.address},
        policy_kwargs={"net_arch": [32, 32]},
        batch_size=64,
        seed=1,
        device="cpu",
    )
    sac.learn(400)
    print(f"SAC made {sac._n_updates} updates from {sac.replay_buffer.size()} transitions")

with tempfile.TemporaryDirectory() as folder:
    dqn.save_replay_buffer(Path(folder) / "replay.pkl")
    dqn.load_replay_buffer(Path(folder) / "replay.pkl")
