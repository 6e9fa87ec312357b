"""`Agent`: what an algorithm offers to a runner, in one frozen object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from reverie.agents import presets
from reverie.agents.core import (
    ActingSettings,
    Actor,
    Learner,
    ParameterShard,
    Policy,
    Preset,
    Stopwatch,
    TableNeeds,
    WeightSource,
)
from reverie.agents.environments import EnvSpec, require_continuous, require_discrete

Actions = Literal["discrete", "continuous"]


class MakeTables(Protocol):
    """Makes the tables of a run, new and empty."""

    def __call__(self, spec: EnvSpec, config: Any, *, seed: int) -> Sequence[Any]:
        """The tables; `seed` is that of their random draws."""


class MakeActor(Protocol):
    """Makes one actor."""

    def __call__(
        self, spec: EnvSpec, config: Any, client: Any, weights: WeightSource, *, index: int, seed: int, watch: Stopwatch
    ) -> Actor:
        """Actor `index`, pulling from `weights`; it reports to `watch` where its time goes."""


@dataclass(frozen=True)
class SharedParameters:
    """The parts of an agent whose learners push gradients to a parameter server.

    Its `make_learner` takes two arguments more, `server=` and `index=`, for learner `index` of a server elsewhere; and
    such a learner has `follow(server)`, for a server that was started again.
    """

    connect: Callable[[Any, int], Any]
    """`connect(connection, num_shards)`: what a learner holds of shards elsewhere; `connection.ask(questions)` returns
    one answer of each shard."""
    make_shard: Callable[..., ParameterShard]
    """`make_shard(spec, config, seed=, index=)`: shard `index`, the parameters drawn from `seed`, which all shards have
    in common."""
    join_states: Callable[[Sequence[dict[str, Any]], Sequence[dict[str, Any]]], dict[str, Any]]
    """The states of all learners and shards as that of a learner which has them all."""
    learner_state: Callable[[dict[str, Any], int], dict[str, Any]]
    """What `join_states` gave, for one learner alone."""
    shard_state: Callable[[dict[str, Any], int], dict[str, Any]]
    """What `join_states` gave, for one shard alone."""
    join_metrics: Callable[[Sequence[dict[str, float]]], dict[str, float]]
    """The metrics of all learners as those of one."""


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One algorithm. A runner receives it and knows no algorithm by name.

    Roles in other processes receive it as a pickle, which names its functions: each must be found by its module and
    name, so that none may be a lambda or defined within a function.
    """

    name: str
    """As a person types it, such as "apex-dqn"."""
    actions: Actions
    """Which actions it chooses among."""
    config: type[Any]
    """The dataclass of its settings, with `num_actors` and `envs_per_actor` among them."""
    presets: Path
    """The folder of its presets, one file for each environment."""
    needs: Callable[[Any], TableNeeds]
    """`needs(config)`: what the runner must know of the table."""
    memory: Callable[[EnvSpec, Any], dict[str, int]]
    """`memory(spec, config)`: bytes that a run needs, by what needs them."""
    make_tables: MakeTables
    make_learner: Callable[..., Learner]
    """`make_learner(spec, config, client, seed=, watch=)`: the learner, its weights drawn from `seed`; it reports to
    `watch` where its time goes."""
    make_actor: MakeActor
    make_policy: Callable[[EnvSpec, Any], Policy]
    """`make_policy(spec, config)`: the greedy policy, for the evaluator."""
    frames: bool = False
    """Whether it plays stacks of frames too."""
    devices: tuple[str, ...] = ("cpu",)
    """The kinds of devices that its learner and policies compute on."""
    parameters: SharedParameters | None = None
    """For an agent whose learners push gradients to a parameter server."""

    def check(self, spec: EnvSpec) -> None:
        """Raise `UnsupportedEnvironmentError`, which names what would fit, for an environment that it cannot play."""
        if self.actions == "discrete":
            require_discrete(spec, self.name, frames=self.frames)
        else:
            require_continuous(spec, self.name)

    def load_preset(self, env_id: str, path: Path | None = None) -> Preset:
        """The preset of an environment, or the one in the file `path`. Raises `PresetError`.

        A `path` that is no file can be a name: "paper" is the agent's other preset `presets/paper/ENV.toml`, and
        "CartPole-v1" its preset of that environment, for this one; the target stays that of the preset then.
        """
        return presets.load(presets.locate(self.presets, env_id, path), self.config)

    def layout(self, config: Any) -> tuple[int, int]:
        """Number of actors, and of environments in each."""
        settings: ActingSettings = config
        return settings.num_actors, settings.envs_per_actor
