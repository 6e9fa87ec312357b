"""Settings of the agent, its table, and the memory that it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reverie import selectors
from reverie.agents import checks, replay
from reverie.agents.core import TableNeeds
from reverie.agents.environments import EnvSpec
from reverie.agents.epsilon_ladder import LadderSettings
from reverie.agents.inputs import front_sizes
from reverie.agents.layers import num_parameters
from reverie.agents.lstm import num_lstm_parameters
from reverie.agents.rates import RateSettings
from reverie.tables import Table

MOST_ROWS = 40
"""The most rows of a sequence whose updates are compiled: a graph has operations of its own for each row."""


@dataclass(frozen=True, kw_only=True)
class R2d2Config(replay.PrioritizedSettings, LadderSettings, RateSettings):
    """Names follow the paper where it has one. Items are sequences: counts of items count sequences, not steps."""

    hidden: tuple[int, ...]
    """Widths of the layers between an observation and the LSTM."""
    lstm_units: int
    """The width of the LSTM."""
    sequence_length: int
    """Steps of a sequence to learn from."""
    sequence_period: int
    """Steps between the beginnings of two sequences of an episode; at most their length."""
    burn_in: int
    """Steps before these that only warm up the recurrent state, which begins as the actor's at the first of them."""
    optimizer_epsilon: float
    """Added to the denominator of the optimiser's steps."""
    max_grad_norm: float
    """Gradients with a larger norm are scaled down to it."""
    target_period: int
    """Updates between two copies into the target network."""
    priority_eta: float = 0.9
    """Share of the largest TD error of a sequence in its priority; the rest is that of the mean (section 2.3)."""
    rescale_epsilon: float = 1e-3
    """Epsilon of the value rescaling `h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x` (section 2.3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "lstm_units", "sequence_length", "sequence_period", "target_period")
        checks.not_negative(self, "burn_in", "rescale_epsilon")
        checks.above_zero(self, "optimizer_epsilon", "max_grad_norm")
        checks.within_unit(self, "priority_eta")
        checks.widths(self, "hidden")
        for name in ("sequence_period", "n_step"):
            value, longest = getattr(self, name), self.sequence_length
            if value > longest:
                raise ValueError(f"{name} is {value}, and must be at most the sequence_length of {longest}")

    def without_effect(self) -> dict[str, str]:
        """Adds `priority_eta`, which has no effect while `priority_exponent` is 0."""
        idle = {"priority_eta": "priority_exponent is 0"} if self.priority_exponent == 0 else {}
        return {**super().without_effect(), **idle}

    @property
    def rows(self) -> int:
        """Rows of an item: burn-in, steps to learn from, and one more to bootstrap from."""
        return self.burn_in + self.sequence_length + 1

    @property
    def inserts_per_act(self) -> int:
        """The most items that one step of an actor inserts: the end of an episode may complete two."""
        return 2 * self.envs_per_actor


def make_tables(spec: EnvSpec, config: R2d2Config, *, seed: int) -> list[Table]:
    """One prioritised table of sequences. Only its selector raises priorities to alpha."""
    return [replay.make_table(config, selectors.Prioritized(config.priority_exponent, seed=seed))]


def needs(config: R2d2Config) -> TableNeeds:
    """The properties of the table that the runner needs."""
    return replace(replay.needs(config), observations=config.rows)


def uncompiled(config: R2d2Config) -> str:
    """Why updates with these settings are not compiled; empty if they are."""
    return "" if config.rows <= MOST_ROWS else f"with more than {MOST_ROWS} rows in a sequence, here {config.rows}"


def memory(spec: EnvSpec, config: R2d2Config) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate: no two sequences share steps."""
    actions, units = spec.num_actions or 0, config.lstm_units
    features, parameters, front_units = front_sizes(spec)
    widths = (features, *config.hidden)
    parameters += num_parameters(*widths) + num_parameters(units, 1 + actions)
    parameters += num_lstm_parameters(config.hidden[-1] + actions, units)
    networks = 5 + config.num_actors  # online, target, gradient, two moments; one in each actor
    step = spec.obs_bytes + 8 + 8 + 4 + 4 + 1  # action, the one before, reward, discount, mask
    item = config.rows * step + 8 * units + 8
    row = step + 16 * (front_units + sum(widths) + 10 * units + actions)
    return {
        f"replay of {config.capacity:,} sequences": config.capacity * (item + 8 * config.rows + 160),
        "networks and optimiser": 4 * parameters * networks,
        "batches": config.batch_size * config.rows * row,
    }
