"""Ape-X DQN (Horgan et al. 2018) by hand: actors in processes, replay, learner and parameter server, on CartPole.

Install `reverie[agents]`. docs/guides/ape-x-by-hand.md explains each part; `reverie train apex-dqn` does more.
"""

import itertools
import multiprocessing

import gymnasium
import numpy as np
import torch
from torch import nn

import reverie
from reverie.parameters import TableChannel

NUM_ACTORS, ENVS_PER_ACTOR, N_STEP, DISCOUNT = 2, 4, 3, 0.99
BATCH_SIZE, SAMPLES_PER_INSERT, LEARNING_STARTS = 128, 32.0, 1_000
PUBLISH_EVERY, PULL_EVERY, TARGET_EVERY, EVALUATE_EVERY, MAX_UPDATES = 10, 10, 25, 250, 10_000
ENOUGH = 150.0  # A random policy balances for about 20 steps, and 500 are the most.


class DuellingNetwork(nn.Module):
    """Action values: the value of the state plus centred advantages (Wang et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.value, self.advantage = nn.Linear(128, 1), nn.Linear(128, 2)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        hidden = self.body(obs)
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(dim=1, keepdim=True)


def make_tables() -> list[reverie.Table]:
    """The replay buffer, and the table that holds the newest parameters."""
    replay = reverie.Table(
        "replay",
        max_size=50_000,
        sampler=reverie.selectors.Prioritized(0.6),
        remover=reverie.selectors.Fifo(),
        rate_limiter=reverie.rate_limiters.SampleToInsertRatio(
            SAMPLES_PER_INSERT, LEARNING_STARTS, error_buffer=SAMPLES_PER_INSERT * 500
        ),
    )
    return [replay, reverie.parameters.table("parameters", like=DuellingNetwork().state_dict())]


def act(address: str, index: int) -> None:
    """One actor: steps its environments with the newest parameters, and writes transitions with first priorities."""
    torch.set_num_threads(1)
    rng, rows, num_envs = np.random.default_rng(index), np.arange(ENVS_PER_ACTOR), NUM_ACTORS * ENVS_PER_ACTOR
    epsilons = (0.9 ** (1 + 7 * np.arange(num_envs) / (num_envs - 1)))[index::NUM_ACTORS]
    client, network = reverie.Client(address), DuellingNetwork()
    subscriber = TableChannel(client).subscriber(like=network.state_dict())
    newest = subscriber.get(timeout=60.0)
    network.load_state_dict(newest.state_dict())
    envs = gymnasium.make_vec("CartPole-v1", num_envs=ENVS_PER_ACTOR, vectorization_mode="sync")
    obs, _ = envs.reset(seed=index)
    with client.transition_writer("replay", n_step=N_STEP, discount=DISCOUNT, num_envs=ENVS_PER_ACTOR) as writer:
        for step in itertools.count(1):
            with torch.no_grad():
                q = network(torch.from_numpy(obs)).numpy()
            explores = rng.random(ENVS_PER_ACTOR) < epsilons
            action = np.where(explores, rng.integers(0, 2, ENVS_PER_ACTOR), q.argmax(axis=1))
            next_obs, reward, terminated, truncated, _ = envs.step(action)
            # The writer makes the first priorities, |TD error|, of these values. It waits for the rate limiter.
            values = {"q_taken": q[rows, action], "bootstrap_value": q.max(axis=1)}
            writer.append(obs, action, reward, terminated, truncated, **values)
            obs = next_obs
            newer = subscriber.latest(newer_than=newest.version) if step % PULL_EVERY == 0 else None
            if newer is not None:
                newest = newer
                network.load_state_dict(newest.state_dict())


def td_errors(network: nn.Module, target: nn.Module, data: dict[str, torch.Tensor]) -> torch.Tensor:
    """The n-step errors `[B]` of double Q-learning (van Hasselt et al. 2016)."""
    with torch.no_grad():
        best = network(data["next_obs"]).argmax(dim=1, keepdim=True)
        goal = data["reward"] + data["discount"] * target(data["next_obs"]).gather(1, best).squeeze(1)
    return goal - network(data["obs"]).gather(1, data["action"][:, None]).squeeze(1)


def learn(client: reverie.Client) -> float:
    """The learner: updates from prioritised batches, new priorities, new parameters. Returns the last mean return."""
    network, target = DuellingNetwork(), DuellingNetwork()
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=6e-3)
    publisher = TableChannel(client).publisher()
    publisher.publish(network.state_dict(), number=0)
    with client.batches("replay", BATCH_SIZE, prefetch=1, as_="torch", timeout=60.0) as batches:
        for update, batch in enumerate(itertools.islice(batches, MAX_UPDATES), 1):
            errors = td_errors(network, target, batch.data)
            loss = nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")
            optimizer.zero_grad()
            (batch.weights(beta=0.4) * loss).mean().backward()
            nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimizer.step()
            priorities = errors.detach().abs().numpy() + 1e-6
            client.update_priorities("replay", batch.info.key, priorities, wait=False)
            if update % TARGET_EVERY == 0:
                target.load_state_dict(network.state_dict())
            if update % PUBLISH_EVERY == 0:
                publisher.publish(network.state_dict(), number=update)
            if update % EVALUATE_EVERY == 0:
                mean_return = evaluate(network)
                print(f"update {update}: mean return {mean_return:.0f}", flush=True)
                if mean_return >= ENOUGH:
                    break
    return mean_return


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
    """Starts server and actors, and learns in this process."""
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    with reverie.Server(make_tables()) as server:
        actors = [context.Process(target=act, args=(server.address, i), daemon=True) for i in range(NUM_ACTORS)]
        for actor in actors:
            actor.start()
        mean_return = learn(server.client())
        for actor in actors:
            actor.terminate()
            actor.join()
    assert mean_return >= ENOUGH, "it learned to balance"


if __name__ == "__main__":
    main()
