"""The replay table between actors and a learner: settings, limits and memory of all agents that have one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from reverie import rate_limiters, selectors
from reverie.agents import checks, hindsight
from reverie.agents.core import TableNeeds
from reverie.agents.environments import EnvSpec
from reverie.agents.settings import Settings
from reverie.tables import Table

TABLE = "replay"


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(Settings):
    """Settings of actors and of the table: items, ratio of draws to inserts, capacity."""

    num_actors: int
    """Actors, each with its own environments and policy."""
    envs_per_actor: int
    """Environments that an actor steps together."""
    n_step: int
    """Steps whose rewards an item adds before it bootstraps; fewer at the end of an episode."""
    discount: float
    """gamma: the discount of rewards for each step."""
    batch_size: int
    """Items in an update."""
    samples_per_insert: float
    """Average number of draws of an item; the table's limiter keeps this ratio."""
    learning_starts: int
    """Items in the table before the first update."""
    capacity: int
    """Items in the table; a full table evicts one for each new one."""
    weights_period: int
    """Steps of an actor's vector of environments between two checks for newer weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "num_actors", "envs_per_actor", "n_step", "batch_size", "learning_starts", "capacity")
        checks.at_least_one(self, "weights_period")
        checks.above_zero(self, "samples_per_insert")
        checks.within_unit(self, "discount")
        if self.learning_starts > self.capacity:
            raise ValueError(
                f"learning_starts is {self.learning_starts}, above the capacity of {self.capacity}: learning would"
                " never start"
            )

    def table_of(self, actor: int) -> str:
        """Name of the table that an actor writes into."""
        return TABLE

    @property
    def inserts_per_act(self) -> int:
        """The most items that one step of an actor inserts: at an episode's end all its n-step tails are inserted."""
        return self.envs_per_actor * self.n_step

    @property
    def error_buffer(self) -> float:
        """How far samples may deviate from the ratio, either way: the least with which a single thread never stalls.

        Both sides are blocked only if `max_diff - min_diff < batch_size + samples_per_insert * inserts`; the limiter
        also requires `max(1, samples_per_insert)`.
        """
        return max(self.batch_size + self.samples_per_insert * self.inserts_per_act, 2.0)


@dataclass(frozen=True, kw_only=True)
class HindsightSettings(ReplaySettings):
    """Settings of agents that can learn from goals which an episode achieved, `reverie.agents.hindsight`."""

    her: str = ""
    """In environments with goals: the goals of more items for each step, made when its episode ends. "future" takes one
    that this step or a later one of the episode achieved, "episode" one of any step, "final" the last one; "" makes no
    items. `samples_per_insert` and `capacity` count these items, too."""
    her_k: int = 4
    """Items with another goal for each step, if `her` is set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of(self, "her", ("", *hindsight.STRATEGIES))
        checks.at_least_one(self, "her_k")

    def without_effect(self) -> dict[str, str]:
        """Adds `her_k`, which has no effect while `her` is empty."""
        return {**super().without_effect(), **({} if self.her else {"her_k": "her is empty"})}

    @property
    def inserts_per_act(self) -> int:
        """The most items that one step of an actor inserts, those with other goals included."""
        return super().inserts_per_act + (self.envs_per_actor * self.her_k if self.her else 0)


@dataclass(frozen=True, kw_only=True)
class PrioritizedSettings(ReplaySettings):
    """Settings of agents that draw items by their TD errors (Schaul et al. 2016)."""

    priority_exponent: float
    """alpha: applied only by the table's selector."""
    importance_exponent: float
    """beta, at the start."""
    importance_normalise: str
    """Importance weights are divided by the largest of the "batch" or of the "table"."""
    priority_eps: float = 1e-6
    """Added to every absolute TD error."""
    priority_clip: float = 0.0
    """If above 0, the largest absolute TD error that a priority counts, so that one extreme reward does not take the
    draws of all other items."""
    importance_anneal_updates: int = 0
    """Updates over which beta rises in a line to 1, and stays there (section 3.4); 0 keeps it as it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.within_unit(self, "priority_exponent", "importance_exponent")
        checks.not_negative(self, "priority_eps", "priority_clip", "importance_anneal_updates")
        checks.one_of(self, "importance_normalise", ("batch", "table"))

    def without_effect(self) -> dict[str, str]:
        """Adds settings of priorities and of importance weights that have no effect.

        These are all others while `priority_exponent` is 0 (all items have the same probability), and
        `importance_normalise` or `importance_anneal_updates` while beta stays 0 or begins at 1.
        """
        if self.priority_exponent == 0:
            names = [
                one.name for one in fields(PrioritizedSettings) if one.name.startswith(("priority_", "importance_"))
            ]
            idle = dict.fromkeys(set(names) - {"priority_exponent"}, "priority_exponent is 0")
        elif self.importance_exponent == 0 and self.importance_anneal_updates == 0:
            idle = {"importance_normalise": "importance_exponent is 0"}
        else:
            idle = {"importance_anneal_updates": "importance_exponent is 1"} if self.importance_exponent == 1 else {}
        return {**super().without_effect(), **idle}

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Adds `importance_exponent`, beta of the last update, if `importance_anneal_updates` lets it rise."""
        own = {"importance_exponent": self.importance_at(max(0, updates - 1))} if self.importance_anneal_updates else {}
        return {**super().scheduled(env_steps, updates), **own}

    def importance_at(self, update: int) -> float:
        """beta at an update."""
        if self.importance_anneal_updates == 0:
            return self.importance_exponent
        walked = min(1.0, update / self.importance_anneal_updates)
        return self.importance_exponent + walked * (1.0 - self.importance_exponent)


@dataclass(frozen=True, kw_only=True)
class MaybePrioritizedSettings(PrioritizedSettings, HindsightSettings):
    """Settings of agents that draw all items alike unless `prioritized` is set."""

    prioritized: bool = False
    """Whether items are drawn by their TD errors; new ones have the largest priority of the table. The settings of
    priorities have no effect otherwise."""
    priority_exponent: float = 0.6
    importance_exponent: float = 0.4
    importance_normalise: str = "batch"

    def without_effect(self) -> dict[str, str]:
        """Adds all settings of priorities and of importance weights while `prioritized` is false."""
        names = [one.name for one in fields(PrioritizedSettings) if one.name.startswith(("priority_", "importance_"))]
        return {
            **super().without_effect(),
            **({} if self.prioritized else dict.fromkeys(names, "prioritized is false")),
        }

    def scheduled(self, env_steps: int, updates: int) -> dict[str, float]:
        """Removes `importance_exponent` while `prioritized` is false."""
        found = super().scheduled(env_steps, updates)
        return {name: value for name, value in found.items() if self.prioritized or name != "importance_exponent"}

    @property
    def new_item_priority(self) -> float | Literal["max"]:
        """The priority of new items, whose TD errors actors do not compute."""
        return "max" if self.prioritized else 1.0


def needs(config: ReplaySettings) -> TableNeeds:
    """The properties of the table that the runner needs."""
    return TableNeeds(TABLE, config.batch_size, config.inserts_per_act, draws_ahead=True)


def make_table(
    config: ReplaySettings, sampler: selectors.Selector, remover: selectors.Selector | None = None, name: str = TABLE
) -> Table:
    """A new, empty table whose limiter keeps the ratio. By default the oldest item is evicted."""
    return Table(
        name,
        sampler=sampler,
        remover=selectors.Fifo() if remover is None else remover,
        max_size=config.capacity,
        rate_limiter=rate_limiters.SampleToInsertRatio(
            config.samples_per_insert, config.learning_starts, error_buffer=config.error_buffer
        ),
    )


def uniform_tables(spec: EnvSpec, config: ReplaySettings, *, seed: int) -> list[Table]:
    """One table from which every item is drawn with the same probability."""
    return [make_table(config, selectors.Uniform(seed=seed))]


def maybe_prioritized_tables(spec: EnvSpec, config: MaybePrioritizedSettings, *, seed: int) -> list[Table]:
    """One table from which items are drawn by priority, or every item with the same probability."""
    if config.prioritized:
        return [make_table(config, selectors.Prioritized(config.priority_exponent, seed=seed))]
    return uniform_tables(spec, config, seed=seed)


def memory(spec: EnvSpec, config: ReplaySettings, *, parameters: int, units: int) -> dict[str, int]:
    """Memory in bytes by part, an upper estimate: obs and next_obs counted separately (frames once), uncompressed.

    `parameters` is the number that learner and actors hold together, moments and gradients included; `units` is the
    sum of the widths of all layers that one row of a batch passes through. Raises `UnsupportedEnvironmentError` if
    `her` is set and the environment has no goals, or no way to reward others.
    """
    if isinstance(config, HindsightSettings) and config.her:
        hindsight.require_goals(spec)  # raises before anything is started
    rest = spec.action_bytes + 4 + 4 + 8  # reward, discount, weights_version
    bookkeeping = 160  # key, priority, references, tree nodes
    return {
        f"replay of {config.capacity:,} items": config.capacity * (spec.stored_bytes + rest + bookkeeping),
        "networks and optimiser": 4 * parameters,
        "batches": config.batch_size * (2 * spec.obs_bytes + rest + 16 * units),
    }
