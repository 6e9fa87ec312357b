"""The first priorities of R2D2's sequences, which an actor computes in NumPy, against the loss of its learner."""

import dataclasses
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.inputs import in_deviations  # noqa: E402
from reverie.agents.r2d2 import agent as r2d2  # noqa: E402
from reverie.agents.r2d2.actor import Sequences  # noqa: E402
from reverie.agents.r2d2.loss import r2d2_loss  # noqa: E402

SPEC = describe("CartPole-v1")
ACTIONS = 3


class Notes:
    """A client, its writer and the writer's history: notes the rows and the priority of each item."""

    def __init__(self):
        self.items, self.history = [], {"state": self, "weights_version": self}

    def trajectory_writer(self, *_args, **_options):
        return self

    def configure(self, *_args, **_options):
        pass

    def append(self, *_args, **_options):
        pass

    def __getitem__(self, at):
        return at

    def create_item(self, _table, priority, trajectory):
        # The version is that of the first step to learn from.
        self.items.append((trajectory["weights_version"], priority))

    def _end_episode(self, _clear):
        pass


def random_settings(rng):
    length = int(rng.integers(2, 13))
    return dataclasses.replace(
        r2d2.load_preset("CartPole-v1").config,
        sequence_length=length,
        sequence_period=int(rng.integers(1, length + 1)),
        burn_in=0,
        n_step=int(rng.integers(1, length + 1)),
        discount=0.97,
        priority_eta=float(rng.random()),
        priority_eps=float(rng.choice([1e-6, 0.1])),
        priority_clip=float(rng.choice([0.0, 0.7])),
        rescale_epsilon=float(rng.choice([0.0, 1e-3, 1e-2])),
    )


def random_episode(rng, length):
    """Q-values of each observation, and actions, rewards and discounts; it ends by termination or truncation."""
    discount = np.full(length, 0.97, np.float32)
    discount[-1] *= rng.random() < 0.5
    scale = rng.choice([0.1, 1.0, 30.0])
    return {
        "q": (rng.normal(size=(length + 1, ACTIONS)) * scale).astype(np.float32),
        "action": rng.integers(ACTIONS, size=length),
        "reward": (rng.normal(size=length) * rng.choice([0.1, 1.0, 50.0])).astype(np.float32),
        "discount": discount,
    }


def sent(config, one, deviation):
    """The first step and the priority of each sequence that an actor sends of this episode."""
    notes = Notes()
    sequences = Sequences(notes, "replay", config)
    sequences.deviation = deviation
    for t, (action, reward, discount) in enumerate(zip(one["action"], one["reward"], one["discount"], strict=True)):
        row = {"reward": reward, "discount": discount}
        sequences.append(row, np.zeros(2, np.float32), float(one["q"][t, action]), float(one["q"][t].max()))
    value = one["q"][-1].max() if one["discount"][-1] else 0.0
    sequences.end({"reward": np.float32(0), "discount": np.float32(0)}, float(value))
    return notes.items


def padded(column, count):
    return np.concatenate([column, np.ones((count, *column.shape[1:]), column.dtype)])[None]


def learnt(config, one, deviation, first):
    """The priority that the learner gives this sequence if its networks have the actor's q-values."""
    steps = min(config.sequence_length, len(one["reward"]) - first)
    rows, rest = slice(first, first + steps), config.sequence_length - steps
    q = torch.from_numpy(padded(one["q"][first : first + steps + 1], rest))
    action, reward, discount = (
        torch.from_numpy(padded(one[name][rows], rest)) for name in ("action", "reward", "discount")
    )
    mask = torch.arange(config.sequence_length)[None] < steps
    found = r2d2_loss(
        q,
        action,
        in_deviations(reward, deviation),
        discount,
        q,
        mask,
        torch.ones(1),
        n_step=config.n_step,
        rescale_epsilon=config.rescale_epsilon,
        priority_eta=config.priority_eta,
        priority_eps=config.priority_eps,
        priority_clip=config.priority_clip,
    )
    return found.priorities.item() * deviation


@pytest.mark.parametrize("seed", range(40))
def test_first_priorities_are_those_of_the_learners_loss_for_the_same_q_values(seed):
    rng = np.random.default_rng(seed)
    config = random_settings(rng)
    for _ in range(5):
        one = random_episode(rng, int(rng.integers(1, 3 * config.sequence_length)))
        deviation = float(rng.choice([1.0, 0.3, 20.0]))
        items = sent(config, one, deviation)
        assert items
        for first, priority in items:
            # Errors are differences of numbers as large as the largest q-value, of which they keep the digits.
            within = 1e-5 * deviation * max(1.0, np.abs(one["q"]).max())
            assert priority == pytest.approx(learnt(config, one, deviation, first), rel=1e-5, abs=within)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_q_values_that_are_not_finite_give_such_priorities_without_a_warning(value):
    config = random_settings(np.random.default_rng(0))
    one = random_episode(np.random.default_rng(1), config.sequence_length)
    one["q"][:] = np.float32(value)
    one["reward"][:] = np.float32(value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        items = sent(dataclasses.replace(config, priority_clip=0.0), one, 1.0)
    assert items
    for first, priority in items:
        expected = learnt(dataclasses.replace(config, priority_clip=0.0), one, 1.0, first)
        assert priority == pytest.approx(expected, rel=1e-5, nan_ok=True)
