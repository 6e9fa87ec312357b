"""DQN with prioritised replay and three-step returns (Schaul et al. 2016) balances CartPole; `reverie[agents]`."""

import gymnasium
import numpy as np
import torch
from torch import nn

import reverie

NUM_ENVS, N_STEP, DISCOUNT, STEPS, START, UPDATES, TARGET_EVERY = 8, 3, 0.99, 1_200, 60, 2, 25
torch.set_num_threads(1)
torch.manual_seed(1)
rng = np.random.default_rng(1)
# New items get the largest priority in the table, so that each is soon drawn once.
table = reverie.Table("replay", reverie.selectors.Prioritized(0.6, seed=1), reverie.selectors.Fifo(), max_size=20_000)
client = reverie.Server([table], listen=False).client()
batches = client.batches("replay", 64, prefetch=0, as_="torch", timeout=5.0)


def make_network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def learn(beta: float) -> None:
    """One update: the loss of a transition is multiplied by its weight, and its error becomes its priority."""
    data = (batch := next(batches)).data
    with torch.no_grad():
        best = network(data["next_obs"]).argmax(dim=1, keepdim=True)
        goal = data["reward"] + data["discount"] * target(data["next_obs"]).gather(1, best).squeeze(1)
    values = network(data["obs"]).gather(1, data["action"][:, None]).squeeze(1)
    optimizer.zero_grad()
    (batch.weights(beta=beta) * nn.functional.huber_loss(values, goal, reduction="none")).mean().backward()
    optimizer.step()
    client.update_priorities("replay", batch.info.key, (goal - values).detach().abs().numpy() + 1e-6)


network, target = make_network(), make_network()
target.load_state_dict(network.state_dict())
optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
envs = gymnasium.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="sync")
obs, _ = envs.reset(seed=1)
lengths, returns = np.zeros(NUM_ENVS), [0.0]
with client.transition_writer("replay", n_step=N_STEP, discount=DISCOUNT, num_envs=NUM_ENVS) as writer:
    for step in range(STEPS):
        with torch.no_grad():
            greedy = network(torch.from_numpy(obs)).argmax(dim=1).numpy()
        action = np.where(rng.random(NUM_ENVS) < max(0.02, 1 - 3 * step / STEPS), rng.integers(0, 2, NUM_ENVS), greedy)
        next_obs, reward, terminated, truncated, _ = envs.step(action)
        writer.append(obs, action, reward, terminated, truncated)
        obs, lengths = next_obs, lengths + reward
        returns += lengths[terminated | truncated].tolist()
        lengths[terminated | truncated] = 0
        for update in range(UPDATES if step > START else 0):
            learn(beta=0.4 + 0.6 * step / STEPS)
            if (UPDATES * step + update) % TARGET_EVERY == 0:
                target.load_state_dict(network.state_dict())
score = float(np.mean(returns[-10:]))
print(f"the last ten episodes balance for {score:.0f} steps")
assert score > 60, "a random policy balances for about 20 steps"
