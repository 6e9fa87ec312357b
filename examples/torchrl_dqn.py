"""DQN of TorchRL on CartPole-v1 with prioritised replay: the collector, the loss and the target network are TorchRL's.

pip install "reverie[torchrl]" "gymnasium"
"""

import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data.replay_buffers.scheduler import LinearScheduler
from torchrl.envs import GymEnv, StepCounter, TransformedEnv
from torchrl.modules import MLP, EGreedyModule, QValueModule
from torchrl.objectives import DQNLoss, SoftUpdate

from reverie.integrations.torchrl import PrioritizedReplayBuffer

STEPS = 1_000

torch.manual_seed(1)
env = TransformedEnv(GymEnv("CartPole-v1", categorical_action_encoding=True), StepCounter())
env.set_seed(1)
network = TensorDictModule(MLP(4, 2, num_cells=[64, 64]), in_keys=["observation"], out_keys=["action_value"])
policy = TensorDictSequential(network, QValueModule(spec=env.action_spec))
explore = EGreedyModule(env.action_spec, eps_init=1.0, eps_end=0.05, annealing_num_steps=STEPS // 2)
collector = Collector(
    env,
    TensorDictSequential(policy, explore),
    frames_per_batch=50,
    total_frames=STEPS,
    auto_register_policy_transforms=True,
)

# With server="host:port" the same buffer is on a server, which collectors in other processes fill.
replay = PrioritizedReplayBuffer(10_000, alpha=0.6, beta=0.4, batch_size=64)
beta = LinearScheduler(replay, "beta", final_value=1.0, num_steps=STEPS // 50)

loss_of = DQNLoss(policy, action_space="categorical", delay_value=True, reduction="none")
loss_of.make_value_estimator(gamma=0.99)
target = SoftUpdate(loss_of, tau=0.02)
optimizer = torch.optim.Adam(loss_of.parameters(), lr=1e-3)

longest = 0
for steps in collector:
    replay.extend(steps)
    explore.step(steps.numel())
    longest = max(longest, int(steps["next", "step_count"].max()))
    if len(replay) < 200:
        continue
    for _ in range(10):
        sample = replay.sample()
        loss = (loss_of(sample)["loss"] * sample["priority_weight"]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(loss_of.parameters(), 10.0)
        optimizer.step()
        target.step()
        replay.update_tensordict_priority(sample)  # the loss wrote "td_error"
    beta.step()
collector.shutdown()

print(f"{replay.write_count} steps, beta {replay.sampler.beta:.2f}, the longest episode has {longest} steps")
