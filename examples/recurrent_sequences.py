"""A recurrent DQN (R2D2, Kapturowski et al. 2019) from sequences with burn-in: it remembers a cue; `reverie[torch]`.

Each of 16 environments shows its cue, +1 or -1, at the first of twelve steps. Every later action is to equal it.
"""

import numpy as np
import torch
from torch import nn

import reverie

NUM_ENVS, STEPS, HIDDEN, EPISODES, UPDATES, BURN_IN, LENGTH = 16, 12, 32, 40, 6, 4, 6
torch.set_num_threads(1)
torch.manual_seed(1)
rng = np.random.default_rng(1)
table = reverie.Table("sequences", reverie.selectors.Uniform(seed=1), reverie.selectors.Fifo(), max_size=1_000)
client = reverie.Server([table], listen=False).client()
cell, head = nn.GRUCell(1, HIDDEN), nn.Linear(HIDDEN, 2)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-2)


def learn() -> None:
    """One update from 32 sequences. The state before each is stored with it, and burn-in brings it up to date."""
    batch = client.sample_batch("sequences", 32, timeout=5.0, ragged="pad")
    data = {name: torch.from_numpy(column) for name, column in batch.data.items()}
    state, values = data["state"][:, 0], []
    for t in range(BURN_IN + LENGTH):
        state = torch.where(data["mask"][:, t, None], cell(data["obs"][:, t], state), state)  # Padding keeps the state.
        state = state.detach() if t < BURN_IN else state
        values.append(head(state))
    q = torch.stack(values[BURN_IN:], dim=1)
    reward, action, ends, learns = (data[name][:, BURN_IN:] for name in ("reward", "action", "ends", "mask"))
    taken = q.gather(2, action[..., None]).squeeze(2)[:, :-1]
    goal = reward[:, :-1] + 0.9 * q.detach().amax(dim=2)[:, 1:] * ~ends[:, :-1]
    loss = ((taken - goal) ** 2)[learns[:, :-1]].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


right = []
options = {"num_envs": NUM_ENVS, "autoreset": "disabled"}  # this program resets its environments
with client.sequence_writer("sequences", LENGTH, period=3, burn_in=BURN_IN, **options) as writer:
    for _episode in range(EPISODES):
        cue, state = rng.choice([-1.0, 1.0], NUM_ENVS), torch.zeros(NUM_ENVS, HIDDEN)
        for t in range(STEPS):
            obs, before = np.float32(cue * (t == 0))[:, None], state.numpy()
            with torch.no_grad():
                state = cell(torch.from_numpy(obs), state)
                greedy = head(state).argmax(dim=1).numpy()
            action = np.where(rng.random(NUM_ENVS) < 0.2, rng.integers(0, 2, NUM_ENVS), greedy)
            reward, ends = np.float32((action == (cue > 0)) * (t > 0)), np.full(NUM_ENVS, t == STEPS - 1)
            step = {"obs": obs, "state": before, "action": action, "reward": reward, "ends": ends}
            writer.append(step, ended=ends)
        right.append(float(np.mean(greedy == (cue > 0))))
        for _ in range(UPDATES):
            learn()
print(f"right about the cue at the last step: {np.mean(right[:5]):.0%} at first, {np.mean(right[-5:]):.0%} at the end")
assert np.mean(right[-5:]) > 0.9
