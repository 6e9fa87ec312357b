"""Three-step transitions from four environments of Gymnasium, with priorities from the actor's own values."""

import gymnasium
import numpy as np

import reverie

NUM_ENVS, N_STEP, DISCOUNT = 4, 3, 0.99
table = reverie.Table(
    "replay",
    max_size=10_000,
    sampler=reverie.selectors.Prioritized(0.6, seed=3),
    remover=reverie.selectors.Fifo(),
    rate_limiter=reverie.rate_limiters.MinSize(200),
)
client = reverie.Server([table], listen=False).client()
envs = gymnasium.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="sync")
rng = np.random.default_rng(3)
mixing = rng.normal(size=(4, 2)) * 0.1

obs, _ = envs.reset(seed=3)
with client.transition_writer("replay", n_step=N_STEP, discount=DISCOUNT, num_envs=NUM_ENVS) as writer:
    for _ in range(300):
        q = obs @ mixing  # [N, 2], where a network would stand
        action = np.where(rng.random(NUM_ENVS) < 0.5, q.argmax(axis=1), rng.integers(0, 2, NUM_ENVS))
        q_taken = q[np.arange(NUM_ENVS), action]
        next_obs, reward, terminated, truncated, _ = envs.step(action)
        writer.append(obs, action, reward, terminated, truncated, q_taken=q_taken, bootstrap_value=q.max(axis=1))
        obs = next_obs

batch = client.sample_batch("replay", 128, timeout=5.0)
print("columns:", {name: column.shape for name, column in batch.data.items()})
print("largest reward:", batch.data["reward"].max(), "discounts:", np.unique(batch.data["discount"]))
# Every CartPole step pays 1: three of them, discounted; fewer only in an episode's tail.
returns = np.array([sum(DISCOUNT**k for k in range(n)) for n in (1, 2, 3)])
assert np.abs(batch.data["reward"][:, None] - returns).min(axis=1).max() < 1e-5
# An item that ends in a terminal state does not bootstrap; the others do over exactly three steps.
assert np.allclose(np.unique(batch.data["discount"]), [0.0, DISCOUNT**N_STEP])
assert (batch.info.priority > 0).all()
