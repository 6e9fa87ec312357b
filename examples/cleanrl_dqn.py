"""DQN with prioritised replay and n-step returns in one file, in the manner of CleanRL; `reverie[agents]`.

By default it runs for seconds. With `--total-timesteps 60000` (a minute) the last 20 episodes had a mean return of 339.
"""

import argparse
import dataclasses

import gymnasium
import numpy as np
import torch
from torch import nn

import reverie


@dataclasses.dataclass
class Args:
    """The settings; each is an option of the command line."""

    seed: int = 1
    env_id: str = "CartPole-v1"
    total_timesteps: int = 4_000
    learning_rate: float = 2.5e-4
    num_envs: int = 4
    buffer_size: int = 20_000
    server: str = ""  # of a prioritised table "replay"; empty keeps the table in this process
    n_step: int = 3
    gamma: float = 0.99
    alpha: float = 0.6
    beta: float = 0.4
    tau: float = 0.01
    batch_size: int = 128
    start_epsilon: float = 1.0
    end_epsilon: float = 0.05
    exploration_fraction: float = 0.5
    learning_starts: int = 1_000
    train_frequency: int = 8


def make_network(envs: gymnasium.vector.VectorEnv) -> nn.Module:
    """The values of all actions."""
    inputs, actions = int(np.prod(envs.single_observation_space.shape)), int(envs.single_action_space.n)
    layers = nn.Linear(inputs, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, actions)
    return nn.Sequential(nn.Flatten(), *layers)


def connect(args: Args) -> reverie.Client:
    """The client of a server, or of a table in this process."""
    if args.server:
        return reverie.Client(args.server)
    sampler = reverie.selectors.Prioritized(args.alpha, seed=args.seed)
    table = reverie.Table("replay", sampler, reverie.selectors.Fifo(), max_size=args.buffer_size)
    return reverie.Server([table], listen=False).client()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for field in dataclasses.fields(Args):
        parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default, help=" ")
    args = Args(**vars(parser.parse_args()))
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    envs = gymnasium.make_vec(args.env_id, args.num_envs, vectorization_mode="sync")
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    q_network, target_network = make_network(envs), make_network(envs)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    client, returns = connect(args), []
    batches = client.batches("replay", args.batch_size, prefetch=0, as_="torch", timeout=60.0)
    obs, _ = envs.reset(seed=args.seed)
    with client.transition_writer("replay", n_step=args.n_step, discount=args.gamma, num_envs=args.num_envs) as writer:
        for step in range(0, args.total_timesteps, args.num_envs):
            progress = min(1.0, step / (args.exploration_fraction * args.total_timesteps))
            epsilon = args.start_epsilon + progress * (args.end_epsilon - args.start_epsilon)
            with torch.no_grad():
                greedy = q_network(torch.from_numpy(obs)).argmax(dim=1).numpy()
            actions = np.where(rng.random(args.num_envs) < epsilon, envs.action_space.sample(), greedy)
            next_obs, rewards, terminations, truncations, infos = envs.step(actions)
            writer.append(obs, actions, rewards, terminations, truncations)
            obs = next_obs
            returns += infos["episode"]["r"][infos["_episode"]].tolist() if "episode" in infos else []
            if step > args.learning_starts and step % args.train_frequency == 0:
                batch = next(batches)
                data = batch.data
                with torch.no_grad():
                    td_target = data["reward"] + data["discount"] * target_network(data["next_obs"]).amax(dim=1)
                value = q_network(data["obs"]).gather(1, data["action"][:, None]).squeeze(1)
                td_error = td_target - value
                loss = (batch.weights(args.beta) * td_error**2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                client.update_priorities("replay", batch.info.key, td_error.detach().abs().numpy() + 1e-6)
                for target, online in zip(target_network.parameters(), q_network.parameters(), strict=True):
                    target.data.lerp_(online.data, args.tau)
            if step % 2_000 == 0 and returns:
                print(f"step {step}: mean of the last {len(returns[-20:])} returns {np.mean(returns[-20:]):.0f}")
    print(f"{len(returns)} episodes; mean of the last 20 returns {np.mean(returns[-20:]):.0f}")
