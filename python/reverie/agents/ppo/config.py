"""Settings of the agent, and its queue."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks
from reverie.agents.core import TableNeeds
from reverie.agents.distributions import distribution_of
from reverie.agents.environments import EnvSpec
from reverie.agents.inputs import front_sizes
from reverie.agents.layers import num_parameters
from reverie.agents.lstm import UNCOMPILED_LSTM, num_lstm_parameters
from reverie.agents.noise import NoiseSettings
from reverie.agents.rates import RateSettings
from reverie.tables import Table

TABLE = "unrolls"


@dataclass(frozen=True, kw_only=True)
class PpoConfig(RateSettings, NoiseSettings):
    """Names follow the paper's where it has one."""

    num_actors: int
    """Actors, each with its own environments and policy."""
    envs_per_actor: int
    """Environments that an actor steps together."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers of the policy network, and of the value network."""
    unroll_length: int
    """T: steps of every environment between two updates."""
    discount: float
    """gamma: the discount of rewards for each step."""
    gae_lambda: float
    """lambda of generalised advantage estimation: 0 bootstraps after one step, 1 only where an unroll ends."""
    epochs: int
    """K: passes over a batch in one update."""
    minibatch_size: int
    """About the number of steps in one gradient step: an epoch is cut into equal parts."""
    clip: float
    """epsilon of the clipped surrogate."""
    value_coefficient: float
    """The weight of the value's loss."""
    entropy_coefficient: float
    """The weight of the policy's entropy, which the loss rewards."""
    adam_epsilon: float
    """Added to the denominator of Adam's steps."""
    max_grad_norm: float
    """Gradients with a larger norm are scaled down to it."""
    anneal_clip: bool = True
    """Whether the clip falls as the rate does."""
    value_clip: float = 0.0
    """If above 0, how far a value can move from the actor's and still lower its loss."""
    target_kl: float = 0.0
    """If above 0, an update ends before the first minibatch whose policy is 1.5 times as far from the actor's."""
    normalise_advantages: bool = True
    """Whether the advantages of each minibatch have mean 0 and deviation 1."""
    initial_sigma: float = 1.0
    """The deviation of continuous actions at the start, in units where actions span [-1, 1]. It is then learnt."""
    shared_layers: bool = False
    """Whether policy and value network share all layers but their last, as is usual for images."""
    lstm_units: int = 0
    """If above 0, an LSTM of this width follows the hidden layers, shared by policy and value: for tasks in which one
    observation does not show the state. Minibatches are then whole unrolls, each with the state before it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "num_actors", "envs_per_actor", "epochs", "minibatch_size")
        checks.above_zero(self, "clip", "adam_epsilon", "max_grad_norm", "initial_sigma")
        checks.not_negative(self, "value_coefficient", "entropy_coefficient")
        checks.not_negative(self, "value_clip", "target_kl", "lstm_units")
        checks.within_unit(self, "discount", "gae_lambda")
        checks.widths(self, "hidden")
        if self.unroll_length < 2:
            raise ValueError(f"unroll_length is {self.unroll_length}, and must be at least 2: a reset is one of them")

    def of_initial_weights(self, *, all_networks: bool) -> tuple[str, ...]:
        """Adds `initial_sigma`."""
        return (*super().of_initial_weights(all_networks=all_networks), "initial_sigma")

    def without_effect(self) -> dict[str, str]:
        """Adds settings that have no effect.

        These are `shared_layers` with an LSTM, `anneal_clip` without annealing, `value_clip` while
        `value_coefficient` is 0, and `clip` and the like while an update is one gradient step.
        """
        idle = {}
        if self.lstm_units:
            idle["shared_layers"] = "lstm_units is above 0"
        if self.anneal_updates == 0 or self.anneal_to == 1:
            idle["anneal_clip"] = "anneal_updates is 0" if self.anneal_updates == 0 else "anneal_to is 1"
        if self.value_coefficient == 0:
            idle["value_clip"] = "value_coefficient is 0"
        if self.epochs == self.minibatches(self.batch_size * self.unroll_length) == 1:
            # The policy is still the actor's: every ratio is 1, and every value is its own.
            idle |= dict.fromkeys(("clip", "anneal_clip", "value_clip", "target_kl"), "an update is one gradient step")
        return {**super().without_effect(), **idle}

    def without_effect_in(self, spec: EnvSpec) -> dict[str, str]:
        """Adds `initial_sigma`, which has no effect if actions are discrete."""
        idle = {} if spec.num_actions is None else {"initial_sigma": "actions are discrete"}
        return {**super().without_effect_in(spec), **idle}

    @property
    def batch_size(self) -> int:
        """Unrolls in an update: one per environment."""
        return self.num_actors * self.envs_per_actor

    def minibatches(self, count: int) -> int:
        """The number of minibatches of `count` steps."""
        return min(count, max(1, round(count / self.minibatch_size)))

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Adds `clip`, that of the last update, if `anneal_clip` lets it fall."""
        own = {"clip": self.clip_at(max(0, updates - 1))} if self.anneal_clip and self.anneal_updates else {}
        return {**super().scheduled(env_steps, updates), **own}

    def clip_at(self, update: int) -> float:
        """The clip at an update."""
        return self.clip * (self.annealed(update) if self.anneal_clip else 1.0)


def needs(config: PpoConfig) -> TableNeeds:
    """The properties of the queue that the runner needs."""
    return TableNeeds(TABLE, config.batch_size, config.envs_per_actor, publish_every_update=True, on_policy=True)


def make_tables(spec: EnvSpec, config: PpoConfig, *, seed: int) -> list[Table]:
    """A queue for one batch: every unroll is learnt from once. See `Actor` for what makes them on-policy."""
    return [Table.queue(TABLE, max_size=config.batch_size)]


def uncompiled(config: PpoConfig) -> str:
    """Why updates with these settings are not compiled; empty if they are."""
    return UNCOMPILED_LSTM if config.lstm_units else ""


def memory(spec: EnvSpec, config: PpoConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    steps = config.batch_size * config.unroll_length
    step = spec.obs_bytes + spec.action_bytes + 4 * 6
    features, own, units = front_sizes(spec)  # policy and value network have their own
    policy, value = ((features, *config.hidden, out) for out in (distribution_of(spec).num_outputs, 1))
    parameters = 2 * own + num_parameters(*policy) + num_parameters(*value)
    state = 2 * config.lstm_units
    parameters += num_lstm_parameters(config.hidden[-1], config.lstm_units) if config.lstm_units else 0
    return {
        # In the queue, and in the actors, which have the states before and after each step.
        f"queue of {config.batch_size} unrolls": 2 * steps * (step + 4 * state),
        "networks and optimiser": 4 * parameters * (4 + config.num_actors),
        "batches": steps * (step + 16 * (2 * units + sum(policy) + sum(value) + 5 * state)),
    }
