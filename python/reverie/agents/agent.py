"""`Agent`: the interface of an algorithm to runners, as one frozen object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from reverie.agents import preset_choice
from reverie.agents.built_in import Actions
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
from reverie.agents.environments import EnvSpec, UnsupportedEnvironmentError
from reverie.agents.fitting import require_continuous, require_discrete


class MakeTables(Protocol):
    """Makes the tables of a run, new and empty."""

    def __call__(self, spec: EnvSpec, config: Any, *, seed: int) -> Sequence[Any]:
        """The tables; `seed` is the seed of their random draws."""


class MakeActor(Protocol):
    """Makes one actor."""

    def __call__(
        self, spec: EnvSpec, config: Any, client: Any, weights: WeightSource, *, index: int, seed: int, watch: Stopwatch
    ) -> Actor:
        """Actor `index`, which pulls from `weights` and records its times in `watch`."""


@dataclass(frozen=True)
class SharedParameters:
    """The parts of an agent whose learners push gradients to a parameter server.

    Its `make_learner` takes two more arguments, `server=` and `index=`, for learner `index` of a remote server; such a
    learner has `follow(server)`, for a server that was restarted.
    """

    connect: Callable[[Any, int], Any]
    """`connect(connection, num_shards)`: a learner's client of remote shards; `connection.ask(questions)` returns one
    answer from each shard."""
    make_shard: Callable[..., ParameterShard]
    """`make_shard(spec, config, seed=, index=)`: shard `index`, its parameters drawn from `seed`, which is the same for
    all shards."""
    join_states: Callable[[EnvSpec, Any, Sequence[dict[str, Any]], Sequence[dict[str, Any]]], dict[str, Any]]
    """`join_states(spec, config, learners, shards)`: the state of one learner with all of these states of learners and
    shards, its parameters by name."""
    learner_state: Callable[[dict[str, Any], int], dict[str, Any]]
    """The part of a joined state for one learner."""
    shard_state: Callable[[EnvSpec, Any, dict[str, Any], int], dict[str, Any]]
    """`shard_state(spec, config, state, index)`: the part of a joined state for one shard."""
    join_metrics: Callable[[Sequence[dict[str, float]]], dict[str, float]]
    """Joins the metrics of all learners into those of one."""


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One algorithm. Runners receive it and refer to no algorithm by name.

    It is pickled for roles in other processes: its functions are pickled by module and name, so that none may be a
    lambda or defined within a function.
    """

    name: str
    """Its name for users, such as "apex-dqn"."""
    actions: Actions
    """The kind of its actions."""
    config: type[Any]
    """The dataclass of its settings, which includes `num_actors` and `envs_per_actor`."""
    presets: Path
    """The folder of its presets, one file per environment, and its defaults for other environments of a kind."""
    needs: Callable[[Any], TableNeeds]
    """`needs(config)`: the properties of the tables that the runner needs."""
    memory: Callable[[EnvSpec, Any], dict[str, int]]
    """`memory(spec, config)`: memory of a run in bytes, by part."""
    make_tables: MakeTables
    make_learner: Callable[..., Learner]
    """`make_learner(spec, config, client, seed=, watch=)`: the learner, its weights drawn from `seed`; it records its
    times in `watch`."""
    make_actor: MakeActor
    make_policy: Callable[[EnvSpec, Any], Policy]
    """`make_policy(spec, config)`: the greedy policy, for the evaluator."""
    other_actions: str = ""
    """The name of the agent that is this algorithm for the other kind of actions, which a refusal names."""
    any_space: bool = False
    """Whether it plays observations of any space and vectors of choices: its networks begin with `inputs.front`, and
    its actions pass through `actions`. Otherwise it plays vectors, and actions that are one number or a vector."""
    factored: bool = False
    """Whether its policy has a distribution for each part of a vector of choices, instead of a value for each
    combination."""
    devices: tuple[str, ...] = ("cpu",)
    """The kinds of devices that its learner and policies compute on."""
    compiles: bool = False
    """Whether its learner is a `core.CompilingLearner`: a `NetworkLearner` whose `_update` consists of operations on
    tensors, the same in each update of a kind."""
    uncompiled: Callable[[Any], str] | None = None
    """`uncompiled(config)`: why an agent that `compiles` does not with these settings; empty if it does."""
    parameters: SharedParameters | None = None
    """The parameter server's functions, if the agent's learners push gradients to one."""
    may_change: frozenset[str] = frozenset()
    """Settings of its own that a resumed run may change, in addition to those of
    `reverie.runners.checkpoints.setting_changes`."""

    def check(self, spec: EnvSpec) -> None:
        """Raise `UnsupportedEnvironmentError`, which names what would fit, if it cannot play the environment."""
        kind = self.actions
        if kind == "any":
            kind = "discrete" if spec.num_actions is not None else "continuous"
        if kind == "discrete":
            require_discrete(
                spec, self.name, other=self.other_actions, any_space=self.any_space, factored=self.factored
            )
        else:
            require_continuous(spec, self.name, other=self.other_actions, any_space=self.any_space)
        if self.parameters is not None and (spec.settings.normalise_observations or spec.settings.normalise_rewards):
            raise UnsupportedEnvironmentError(
                f"normalisation of {spec.env_id} is set, and the learners of {self.name} send gradients only, without"
                " statistics: leave it out, or train dqn"
            )

    def load_preset(
        self, env_id: str, path: Path | None = None, environment: Mapping[str, Any] = MappingProxyType({})
    ) -> Preset:
        """The preset of an environment, or the one in the file `path`. Raises `PresetError`.

        A `path` can also be a name: "paper" is the agent's other preset `presets/paper/ENV.toml`, and "CartPole-v1" its
        preset for that environment. An environment without a preset takes the agent's defaults for its kind, or the
        settings of another one of its kind. The target of another environment is never taken: the preset's `note` has
        the one that is. Raises what `environments.describe` raises for an environment that has no preset and cannot be
        made.

        `environment` has changed settings of the preset's table `[environment]`, by name. An environment without a
        preset is made with them to see its kind.
        """
        return preset_choice.for_environment(self.presets, self.config, env_id, path, environment, self.name)

    def layout(self, config: Any) -> tuple[int, int]:
        """The number of actors, and of environments per actor."""
        settings: ActingSettings = config
        return settings.num_actors, settings.envs_per_actor
