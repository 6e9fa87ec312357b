"""Settings of the agent, and its queue."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks
from reverie.agents.core import TableNeeds
from reverie.agents.environments import EnvSpec
from reverie.agents.inputs import front_sizes
from reverie.agents.layers import num_parameters
from reverie.tables import Table

TABLE = "unrolls"


@dataclass(frozen=True, kw_only=True)
class PpoConfig:
    """Names follow the paper's where it has one."""

    num_actors: int
    envs_per_actor: int
    hidden: tuple[int, ...]
    """Widths of the hidden layers of the policy network, and of the value network."""
    unroll_length: int
    """T: steps of every environment between two updates."""
    discount: float
    gae_lambda: float
    epochs: int
    """K: passes over a batch in one update."""
    minibatch_size: int
    """About the number of steps in one gradient step: an epoch is cut into equal parts."""
    clip: float
    """epsilon of the clipped surrogate."""
    value_coefficient: float
    entropy_coefficient: float
    learning_rate: float
    adam_epsilon: float
    max_grad_norm: float
    anneal_updates: int = 0
    """Updates over which rate and clip fall in a line to a twentieth, and stay there; 0 keeps them as they are."""

    def __post_init__(self) -> None:
        checks.at_least_one(self, "num_actors", "envs_per_actor", "epochs", "minibatch_size")
        checks.above_zero(self, "clip", "learning_rate", "adam_epsilon", "max_grad_norm")
        checks.not_negative(self, "value_coefficient", "entropy_coefficient", "anneal_updates")
        checks.within_unit(self, "discount", "gae_lambda")
        checks.widths(self, "hidden")
        if self.unroll_length < 2:
            raise ValueError(f"unroll_length is {self.unroll_length}, and must be at least 2: a reset is one of them")

    @property
    def batch_size(self) -> int:
        """Unrolls in an update: one per environment."""
        return self.num_actors * self.envs_per_actor

    def annealed(self, update: int) -> float:
        """The factor of rate and clip at an update."""
        if self.anneal_updates == 0:
            return 1.0
        return max(0.05, 1.0 - update / self.anneal_updates)


def needs(config: PpoConfig) -> TableNeeds:
    """The properties of the queue that the runner needs."""
    return TableNeeds(TABLE, config.batch_size, config.envs_per_actor, publish_every_update=True)


def make_tables(spec: EnvSpec, config: PpoConfig, *, seed: int) -> list[Table]:
    """A queue for one batch: no actor continues while a batch waits, and every unroll is learnt from once."""
    return [Table.queue(TABLE, max_size=config.batch_size)]


def memory(spec: EnvSpec, config: PpoConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    steps = config.batch_size * config.unroll_length
    step = spec.obs_bytes + spec.action_bytes + 4 * 6
    features, own, units = front_sizes(spec)  # policy and value network have their own
    policy, value = ((features, *config.hidden, out) for out in (sum(spec.action_sizes) or spec.num_actions or 0, 1))
    parameters = 2 * own + num_parameters(*policy) + num_parameters(*value)
    return {
        f"queue of {config.batch_size} unrolls": 2 * steps * step,  # in the queue, and in the actors
        "networks and optimiser": 4 * parameters * (4 + config.num_actors),
        "batches": steps * (step + 16 * (2 * units + sum(policy) + sum(value))),
    }
