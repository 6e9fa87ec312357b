"""Settings of Gorila: DQN's, and the distribution of learning over workers."""

from __future__ import annotations

from dataclasses import dataclass

from reverie import selectors
from reverie.agents import checks, replay
from reverie.agents.core import TableNeeds, seed_of
from reverie.agents.dqn.config import DqnConfig, sizes
from reverie.agents.environments import EnvSpec
from reverie.agents.replay import TABLE
from reverie.tables import Table


@dataclass(frozen=True, kw_only=True)
class GorilaConfig(DqnConfig):
    """DQN's settings have the same meaning; capacity, start and ratio apply to each table."""

    num_learners: int
    """Workers that compute gradients, each with its own copies of both networks."""
    num_parameter_shards: int
    """Ranges of the vector of parameters, each with its part of the optimiser's state."""
    max_staleness: int
    """A gradient is dropped if its parameters are more updates old than this."""
    bundled: bool
    """Actor i and learner i share a table of their own (the paper's bundled mode); else there is one table for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "num_learners", "num_parameter_shards")
        checks.not_negative(self, "max_staleness")
        if self.bundled and self.num_learners != self.num_actors:
            raise ValueError(
                f"num_learners is {self.num_learners} and num_actors {self.num_actors}: bundled, each actor has one"
                " learner; make them equal, or set bundled to false"
            )

    def without_effect(self) -> dict[str, str]:
        """Adds `max_staleness`, which has no effect while `num_learners` is 1."""
        idle = {"max_staleness": "num_learners is 1"} if self.num_learners == 1 else {}
        return {**super().without_effect(), **idle}

    def table_of(self, actor: int) -> str:
        """Name of the table that an actor writes into."""
        return needs(self).table_of(actor)


def needs(config: GorilaConfig) -> TableNeeds:
    """The properties of tables and learners that the runner needs."""
    return TableNeeds(
        TABLE,
        config.batch_size,
        config.inserts_per_act,
        num_learners=config.num_learners,
        bundled=config.bundled,
        draws_ahead=not config.bundled,
        num_parameter_shards=config.num_parameter_shards,
    )


def make_tables(spec: EnvSpec, config: GorilaConfig, *, seed: int) -> list[Table]:
    """One table for all, or one per bundle, with uniform draws."""
    names = needs(config).tables
    seeds = [seed] if len(names) == 1 else [seed_of(seed, i) for i in range(len(names))]
    return [
        replay.make_table(config, selectors.Uniform(seed=one), name=name)
        for name, one in zip(names, seeds, strict=True)
    ]


def memory(spec: EnvSpec, config: GorilaConfig) -> dict[str, int]:
    """Memory of a run in bytes by part, an upper estimate."""
    parameters, units = sizes(spec, config)
    # Each learner: online, target, gradient; each actor one; the server: parameters, gradient, two moments.
    vectors = 3 * config.num_learners + config.num_actors + 4
    parts = replay.memory(spec, config, parameters=parameters * vectors, units=units)
    (items, size), *rest = parts.items()
    tables = len(needs(config).tables)
    return {items if tables == 1 else f"{tables} times {items}": tables * size, **dict(rest)}
