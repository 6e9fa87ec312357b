"""Q-learning from a data set and from the environment: the data set's share of each batch falls as the agent learns."""

import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import torch

import reverie
from reverie.datasets import Annealed
from reverie.integrations.datasets import export_table, import_dataset, open_dataset

UPDATES = 400
torch.set_num_threads(1)


def play(env, writer, act, steps):
    obs, _ = env.reset(seed=int(rng.integers(1 << 30)))
    for _ in range(steps):
        action = act(obs)
        after, reward, terminated, truncated, _ = env.step(action)
        writer.append(obs, np.int64(action), reward, terminated, truncated, final_obs=after)
        obs = env.reset()[0] if terminated or truncated else after
    writer.end_episodes()  # The next call begins with a reset.


table = reverie.Table("online", reverie.selectors.Uniform(), reverie.selectors.Fifo(), max_size=100_000)
server = reverie.Server([table, table.replace("offline"), table.replace("demonstrations")], listen=False)
client, env, rng = server.client(), gymnasium.make("CartPole-v1"), np.random.default_rng(0)

# A data set: a controller that balances the pole, written to a Parquet file and read again.
with client.transition_writer("demonstrations", n_step=3, autoreset="disabled") as writer:
    play(env, writer, lambda obs: int(obs[2] + obs[3] > 0), 2000)
with tempfile.TemporaryDirectory() as folder:
    export_table(client, "demonstrations", Path(folder) / "cartpole.parquet")
    report = import_dataset(client, "offline", open_dataset(Path(folder) / "cartpole.parquet"))
print(f"{report.items} transitions from {report.size_bytes:,} bytes")

net, target = (torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)) for _ in range(2))
optimiser = torch.optim.Adam(net.parameters(), 1e-3)
shares = {"offline": Annealed(1.0, 0.25, UPDATES), "online": Annealed(0.0, 0.75, UPDATES)}
with client.transition_writer("online", n_step=3, autoreset="disabled") as writer:

    def act(obs):
        return int(rng.integers(2) if rng.random() < 0.1 else net(torch.from_numpy(obs)).argmax())

    for update, batch in zip(range(UPDATES), client.batches(shares, 64, as_="torch", seed=0), strict=False):
        if update % 100 == 0:
            target.load_state_dict(net.state_dict())
            play(env, writer, act, 200)
        data = batch.data
        with torch.no_grad():
            goal = data["reward"] + data["discount"] * target(data["next_obs"]).max(1).values
        loss = torch.nn.functional.smooth_l1_loss(net(data["obs"]).gather(1, data["action"][:, None])[:, 0], goal)
        optimiser.zero_grad(), loss.backward(), optimiser.step()
print(
    f"loss {loss.item():.3f} after {UPDATES} updates; {client.server_info()['online'].current_size} online transitions"
)
