"""Settings of the agent, its table, and the memory that it needs."""

from __future__ import annotations

from dataclasses import dataclass

from reverie import selectors
from reverie.agents import checks, replay
from reverie.agents.discrete import PRECISIONS
from reverie.agents.environments import EnvSpec
from reverie.agents.epsilon_ladder import LadderSettings
from reverie.agents.inputs import front_sizes
from reverie.agents.layers import num_parameters
from reverie.agents.munchausen import MunchausenSettings
from reverie.agents.rates import RateSettings
from reverie.agents.targets import TargetSettings
from reverie.tables import Table


@dataclass(frozen=True, kw_only=True)
class ApexDqnConfig(replay.PrioritizedSettings, LadderSettings, TargetSettings, RateSettings, MunchausenSettings):
    """Names follow the paper where it has one; the presets name the source of their numbers."""

    hidden: tuple[int, ...]
    """Widths of the hidden layers of the dueling network."""
    optimizer_epsilon: float
    """Added to the denominator of the optimiser's steps; of RMSProp under its root."""
    huber_delta: float
    """The absolute TD error above which the loss is linear."""
    max_grad_norm: float
    """Gradients with a larger norm are scaled down to it."""
    optimizer: str = "adam"
    """"adam", or "rmsprop", the centred one of the paper."""
    precision: str = "float32"
    """Precision of all layers but the last; "bfloat16" halves the time of large networks if the processor has it."""
    first_priority: str = "td_error"
    """Priority of new items: the actor's "td_error", or the "max" of the table (Schaul et al. 2016)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.above_zero(self, "optimizer_epsilon", "huber_delta", "max_grad_norm")
        checks.widths(self, "hidden")
        checks.one_of(self, "first_priority", ("td_error", "max"))
        checks.one_of(self, "optimizer", ("adam", "rmsprop"))
        checks.one_of(self, "precision", PRECISIONS)

    def without_effect(self) -> dict[str, str]:
        """Adds `first_priority`, which has no effect while `priority_exponent` is 0."""
        idle = {"first_priority": "priority_exponent is 0"} if self.priority_exponent == 0 else {}
        return {**super().without_effect(), **idle}


def make_tables(spec: EnvSpec, config: ApexDqnConfig, *, seed: int) -> list[Table]:
    """One prioritised table. Actors and learner send |td| + eps; only this selector raises it to alpha."""
    return [replay.make_table(config, selectors.Prioritized(config.priority_exponent, seed=seed))]


def memory(spec: EnvSpec, config: ApexDqnConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    actions = spec.num_actions or 0
    features, parameters, units = front_sizes(spec)
    streams = [(features, *config.hidden, outputs) for outputs in ((1, actions) if spec.has_images else (actions + 1,))]
    parameters += sum(num_parameters(*widths) for widths in streams)
    units += sum(sum(widths) for widths in streams)
    networks = 5 + config.num_actors  # online, target, gradient, two moments; one in each actor
    return replay.memory(spec, config, parameters=parameters * networks, units=units)
