"""PPO (Schulman et al. 2017) on CartPole: four processes act, and a queue brings their unrolls; `reverie[agents]`."""

import multiprocessing

import gymnasium
import numpy as np
import torch
from torch import distributions, nn

import reverie

NUM_ACTORS, NUM_ENVS, LENGTH, UPDATES, DISCOUNT, CLIP, _ = 4, 8, 32, 60, 0.98, 0.2, torch.manual_seed(0)
torch.set_num_threads(1)  # In each process: more threads than cores wait for one another.
network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))


def act(address: str, index: int) -> None:
    """Inserts unrolls of its environments. An insert waits while four are unread, so that no policy gets old."""
    client, _ = reverie.Client(address), torch.manual_seed(index)
    subscriber = reverie.parameters.TableChannel(client).subscriber(like=network.state_dict())
    envs = gymnasium.make_vec("CartPole-v1", NUM_ENVS, "sync", vector_kwargs={"autoreset_mode": "SameStep"})
    obs, _ = envs.reset(seed=index)
    while True:
        network.load_state_dict(subscriber.get().state_dict())
        steps = []
        for _ in range(LENGTH):
            policy = distributions.Categorical(logits=network(torch.from_numpy(obs)).detach()[:, :2])
            action, before = policy.sample(), obs
            obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            steps.append((before, action, policy.log_prob(action), np.float32(reward), ~(terminated | truncated), obs))
        client.insert([np.stack(column) for column in zip(*steps, strict=True)], {"unrolls": 1.0})


if __name__ == "__main__":
    optimizer, context = torch.optim.Adam(network.parameters(), lr=2e-3), multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "gymnasium", "reverie"])
    tables = [reverie.Table.queue("unrolls", max_size=NUM_ACTORS), reverie.parameters.table("parameters")]
    with reverie.Server(tables) as server, server.client() as client, context.Pool(NUM_ACTORS) as pool:
        publisher = reverie.parameters.TableChannel(client).publisher()
        pool.starmap_async(act, [(server.address, i) for i in range(NUM_ACTORS)], error_callback=print)
        for update in range(UPDATES):
            publisher.publish(network.state_dict(), number=update)
            unrolls = client.sample_batch("unrolls", NUM_ACTORS, timeout=300.0).data  # Columns [B, T, N, ...].
            obs, action, log_prob, reward, goes_on, next_obs = (torch.from_numpy(c).movedim(1, 0) for c in unrolls)
            goals, following = [], network(next_obs[-1]).detach()[..., 2]
            for t in reversed(range(LENGTH)):  # The discounted rewards, and the value behind the unroll.
                goals.insert(0, following := reward[t] + DISCOUNT * goes_on[t] * following)
            gain = torch.stack(goals) - network(obs).detach()[..., 2]
            data = [c.flatten(0, 2) for c in (obs, action, log_prob, torch.stack(goals), gain / gain.std())]
            for rows in torch.cat([torch.randperm(len(data[0])) for _ in range(4)]).split(256):
                obs, action, log_prob, goal, gain = (column[rows] for column in data)
                output = network(obs)  # The logits of two actions, and the value.
                ratio = (distributions.Categorical(logits=output[:, :2]).log_prob(action) - log_prob).exp()
                gains = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
                optimizer.zero_grad()
                ((output[:, 2] - goal).square() / data[3].var() - gains).mean().backward()
                optimizer.step()
    print(f"the episodes of the last unrolls have {(length := (1 / (1 - goes_on.float().mean()))):.0f} steps")
    assert length > 50, "those of a random policy have 22"
