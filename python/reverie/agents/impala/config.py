"""Settings of the agent, and its queue."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import checks
from reverie.agents.core import TableNeeds
from reverie.agents.environments import EnvSpec
from reverie.agents.inputs import front_sizes
from reverie.agents.layers import num_parameters
from reverie.agents.lstm import UNCOMPILED_LSTM, num_lstm_parameters
from reverie.agents.noise import NoiseSettings
from reverie.agents.rates import RateSettings
from reverie.tables import Table

TABLE = "unrolls"


@dataclass(frozen=True, kw_only=True)
class ImpalaConfig(RateSettings, NoiseSettings):
    """Names follow the paper's where it has one."""

    num_actors: int
    """Actors, each with its own environments and policy."""
    envs_per_actor: int
    """Environments that an actor steps together."""
    hidden: tuple[int, ...]
    """Widths of the hidden layers of the policy network, and of the value network."""
    unroll_length: int
    """n: steps of every environment in an unroll, all made with the weights that were the newest at its start."""
    batch_size: int
    """Unrolls in an update."""
    queue_capacity: int
    """The largest number of unrolls that wait for the learner, and so of how far actors may run ahead of it."""
    discount: float
    """gamma: the discount of rewards for each step."""
    rho_bar: float
    """Truncates the importance weights of the temporal differences; it sets the limit of the values."""
    c_bar: float
    """Truncates the importance weights of the trace; it sets the speed of convergence."""
    trace_lambda: float
    """Also shortens the trace (the paper's remark 2); 1 for the paper's own results."""
    value_coefficient: float
    """The weight of the value's loss."""
    entropy_coefficient: float
    """The weight of the policy's entropy, which the loss rewards."""
    rmsprop_decay: float
    """The decay of RMSProp's mean of squared gradients."""
    rmsprop_epsilon: float
    """Added to the denominator of RMSProp's steps."""
    max_grad_norm: float
    """Gradients with a larger norm are scaled down to it."""
    shared_layers: bool = False
    """Whether policy and value network share all layers but their last, as in the paper and as is usual for images."""
    lstm_units: int = 0
    """If above 0, an LSTM of this width follows the hidden layers, shared by policy and value: for tasks in which one
    observation does not show the state. The learner computes an unroll from the actor's state before it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "num_actors", "envs_per_actor", "batch_size", "queue_capacity")
        checks.above_zero(self, "rho_bar", "c_bar", "rmsprop_epsilon", "max_grad_norm")
        checks.not_negative(self, "value_coefficient", "entropy_coefficient", "lstm_units")
        checks.within_unit(self, "discount", "trace_lambda", "rmsprop_decay")
        checks.widths(self, "hidden")
        if self.unroll_length < 2:
            raise ValueError(f"unroll_length is {self.unroll_length}, and must be at least 2: a reset is one of them")
        if self.rho_bar < self.c_bar:
            raise ValueError(f"rho_bar is {self.rho_bar}, and must not be below c_bar ({self.c_bar})")
        least = self.batch_size + self.envs_per_actor - 1
        if self.queue_capacity < least:
            raise ValueError(
                f"queue_capacity is {self.queue_capacity}, and must be at least {least}: with less, an actor could wait"
                f" for room for its {self.envs_per_actor} unrolls while the learner waits for {self.batch_size}"
            )

    def without_effect(self) -> dict[str, str]:
        """Adds `shared_layers`, without effect while there is an LSTM, and `c_bar`, while `trace_lambda` is 0."""
        shared = {"shared_layers": "lstm_units is above 0"} if self.lstm_units else {}
        trace = {} if self.trace_lambda else {"c_bar": "trace_lambda is 0"}
        return {**super().without_effect(), **shared, **trace}


def needs(config: ImpalaConfig) -> TableNeeds:
    """The properties of the queue that the runner needs."""
    return TableNeeds(TABLE, config.batch_size, config.envs_per_actor, publish_every_update=True)


def make_tables(spec: EnvSpec, config: ImpalaConfig, *, seed: int) -> list[Table]:
    """A queue, which returns every unroll once, the oldest first. Actors continue while it has room."""
    return [Table.queue(TABLE, max_size=config.queue_capacity)]


def uncompiled(config: ImpalaConfig) -> str:
    """Why updates with these settings are not compiled; empty if they are."""
    return UNCOMPILED_LSTM if config.lstm_units else ""


def memory(spec: EnvSpec, config: ImpalaConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    step = spec.obs_bytes + spec.action_bytes + 4 * 6
    acting = config.num_actors * config.envs_per_actor
    there = config.queue_capacity + acting
    features, own, units = front_sizes(spec)  # policy and value network have their own
    policy, value = ((features, *config.hidden, out) for out in (sum(spec.action_sizes) or spec.num_actions or 0, 1))
    parameters = 2 * own + num_parameters(*policy) + num_parameters(*value)
    parameters += num_lstm_parameters(config.hidden[-1], config.lstm_units) if config.lstm_units else 0
    state = 2 * config.lstm_units  # one for each unroll in the queue; actors have those before and after each step
    states = 4 * state * (config.queue_capacity + 2 * acting * config.unroll_length)
    rows = there * (config.unroll_length + 1) * step
    return {
        f"{config.queue_capacity} unrolls in the queue, and the actors' own": rows + states,
        "networks and optimiser": 4 * parameters * (3 + config.num_actors),
        "batches": config.batch_size
        * (config.unroll_length + 1)
        * (step + 16 * (2 * units + sum(policy) + sum(value) + 5 * state)),
    }
