"""Ape-X DQN (Horgan et al. 2018) by hand on Ray: actors, replay and learner are Ray actors, on CartPole.

Install `reverie[ray]`. Parameters go over Ray's object store; transitions bypass it, to a server of Reverie.
docs/guides/ape-x-by-hand.md explains each part; `reverie train apex-dqn --runner ray` does more.
"""

import itertools

import gymnasium
import numpy as np
import ray
import torch
from torch import nn

import reverie
from reverie.parameters.ray import RayChannel

NUM_ACTORS, ENVS_PER_ACTOR, N_STEP, DISCOUNT = 2, 4, 3, 0.99
BATCH_SIZE, SAMPLES_PER_INSERT, LEARNING_STARTS = 128, 32.0, 1_000
PUBLISH_EVERY, TARGET_EVERY, EVALUATE_EVERY, MAX_UPDATES = 10, 25, 250, 10_000
ENOUGH = 150.0  # A random policy balances for about 20 steps, and 500 are the most.


def make_network() -> nn.Sequential:
    """Action values `[N, 2]` of observations `[N, 4]`."""
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


@ray.remote(num_cpus=0)
class Replay:
    """The replay buffer: a server with a table, reached through shared memory on its own machine."""

    def __init__(self) -> None:
        ratio = reverie.rate_limiters.SampleToInsertRatio(
            SAMPLES_PER_INSERT, LEARNING_STARTS, error_buffer=SAMPLES_PER_INSERT * 500
        )
        prioritized, fifo = reverie.selectors.Prioritized(0.6), reverie.selectors.Fifo()
        # For other machines: host=ray.util.get_node_ip_address(), a token and TLS (docs/guides/secure-a-server.md).
        self.server = reverie.Server([reverie.Table("replay", prioritized, fifo, 50_000, ratio)])

    def address(self) -> str:
        return self.server.address


@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)
class Actor:
    """Steps environments with the newest parameters. Ray restarts it if its process ends."""

    def run(self, index: int, address: str, channel: RayChannel) -> None:
        rng, rows, num_envs = np.random.default_rng(index), np.arange(ENVS_PER_ACTOR), NUM_ACTORS * ENVS_PER_ACTOR
        epsilons = (0.9 ** (1 + 7 * np.arange(num_envs) / (num_envs - 1)))[index::NUM_ACTORS]
        client, network = reverie.Client(address), make_network()
        subscriber = channel.subscriber(like=network.state_dict())
        newest = subscriber.get(timeout=60.0)
        network.load_state_dict(newest.state_dict())
        envs = gymnasium.make_vec("CartPole-v1", num_envs=ENVS_PER_ACTOR, vectorization_mode="sync")
        obs, _ = envs.reset(seed=index)
        with client.transition_writer("replay", n_step=N_STEP, discount=DISCOUNT, num_envs=ENVS_PER_ACTOR) as writer:
            while True:
                with torch.no_grad():
                    q = network(torch.from_numpy(obs)).numpy()
                explores = rng.random(ENVS_PER_ACTOR) < epsilons
                action = np.where(explores, rng.integers(0, 2, ENVS_PER_ACTOR), q.argmax(axis=1))
                next_obs, reward, terminated, truncated, _ = envs.step(action)
                values = {"q_taken": q[rows, action], "bootstrap_value": q.max(axis=1)}
                writer.append(obs, action, reward, terminated, truncated, **values)
                obs = next_obs
                newer = subscriber.latest(newer_than=newest.version)  # does not wait for Ray
                if newer is not None:
                    newest = newer
                    network.load_state_dict(newest.state_dict())


@ray.remote(num_cpus=1)
class Learner:
    """Updates from prioritised batches, and publishes parameters."""

    def __init__(self, address: str, channel: RayChannel) -> None:
        self.network, self.target, self.updates = make_network(), make_network(), 0
        self.target.load_state_dict(self.network.state_dict())
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=6e-3)
        self.client, self.publisher = reverie.Client(address), channel.publisher()
        self.publisher.publish(self.network.state_dict(), number=0)
        self.batches = self.client.batches("replay", BATCH_SIZE, prefetch=1, as_="torch", timeout=60.0)

    def learn(self, num_updates: int) -> float:
        """Make updates; returns the mean return of greedy episodes after them."""
        for batch in itertools.islice(self.batches, num_updates):
            errors = self.td_errors(batch.data)
            loss = nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")
            self.optimizer.zero_grad()
            (batch.weights(beta=0.4) * loss).mean().backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
            self.optimizer.step()
            priorities = errors.detach().abs().numpy() + 1e-6
            self.client.update_priorities("replay", batch.info.key, priorities, wait=False)
            self.updates += 1
            if self.updates % TARGET_EVERY == 0:
                self.target.load_state_dict(self.network.state_dict())
            if self.updates % PUBLISH_EVERY == 0:
                self.publisher.publish(self.network.state_dict(), number=self.updates)
        return evaluate(self.network)

    def td_errors(self, data: dict[str, torch.Tensor]) -> torch.Tensor:
        """The n-step errors `[B]` of double Q-learning (van Hasselt et al. 2016)."""
        with torch.no_grad():
            best = self.network(data["next_obs"]).argmax(dim=1, keepdim=True)
            goal = data["reward"] + data["discount"] * self.target(data["next_obs"]).gather(1, best).squeeze(1)
        return goal - self.network(data["obs"]).gather(1, data["action"][:, None]).squeeze(1)


def evaluate(network: nn.Module, num_envs: int = 10) -> float:
    """The mean return of one greedy episode in each environment. Every step of CartPole pays 1."""
    envs = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="sync")
    obs, _ = envs.reset(seed=1_000)
    returns, running = np.zeros(num_envs), np.ones(num_envs, bool)
    while running.any():
        with torch.no_grad():
            action = network(torch.from_numpy(obs)).argmax(dim=1).numpy()
        obs, reward, terminated, truncated, _ = envs.step(action)
        returns += reward * running
        running &= ~(terminated | truncated)
    return float(returns.mean())


def main() -> None:
    """Starts the parts, and learns until the policy balances."""
    ray.init(num_cpus=NUM_ACTORS + 1, include_dashboard=False, log_to_driver=False)
    replay, channel = Replay.remote(), RayChannel()
    address = ray.get(replay.address.remote())
    learner = Learner.remote(address, channel)
    actors = [Actor.remote() for _ in range(NUM_ACTORS)]
    acting = [actor.run.remote(index, address, channel) for index, actor in enumerate(actors)]
    mean_return, updates = 0.0, 0
    while mean_return < ENOUGH and updates < MAX_UPDATES:
        learning = learner.learn.remote(EVALUATE_EVERY)
        # Acting ends only with an error, which `get` raises.
        (ended,), _ = ray.wait([learning, *acting], num_returns=1)
        mean_return, updates = ray.get(ended), updates + EVALUATE_EVERY
        print(f"update {updates}: mean return {mean_return:.0f}", flush=True)
    ray.shutdown()
    assert mean_return >= ENOUGH, "it learned to balance"


if __name__ == "__main__":
    main()
