"""`EnvSettings`: how a run's environments are made, the `[environment]` table of a preset."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from reverie.agents import checks
from reverie.agents.env_ids import id_of
from reverie.agents.named_parts import PartError, reference_of
from reverie.agents.settings import Settings


@dataclass(frozen=True, kw_only=True)
class EnvSettings(Settings):
    """How environments are made, in actors and evaluators. Part of checkpoints and of a policy's file."""

    wrappers: tuple[str, ...] = ()
    """Wrappers, the innermost first, each as `module:name` or with literal arguments: `module:name(size=3)`. Each is
    called with the environment. In Python a class or function may be given, and is kept by its name."""
    time_limit: int | None = None
    """Steps after which an episode is truncated, in place of the environment's own limit."""
    frame_stack: int | None = None
    """Newest observations that networks read together, oldest first; an episode's first is repeated. Replay tables
    store each once."""
    normalise_observations: bool = False
    """Whether networks normalise numbers by their running mean and deviation, which the learner updates."""
    normalise_rewards: bool = False
    """Whether the learner divides rewards by the running deviation of discounted returns, within 10, and the sums of
    rewards that items of several steps have; tables store them as they are, and returns are reported so. First
    priorities that actors compute of n-step items have no bound."""
    max_env_restarts: int | None = None
    """How often an actor may make its environments again after one raised: 0 ends the run at the first error, and None
    means no bound. In any case, five errors without an episode's end in between end the run."""
    evaluation_env: str = ""
    """The environment that evaluators play: an id, or `module:name` of a class or function that makes one, which may be
    given in Python. Its spaces must be those of the run's own. Its threshold is the target of a run whose preset has
    none for its environment. Empty: the run's own."""
    evaluation_wrappers: tuple[str, ...] | None = None
    """Wrappers of evaluators in the place of `wrappers`, such as none for returns without shaped rewards. None: the
    same."""
    network: str = ""
    """A factory as `module:name` of the layers in front of the agent's own: called with the `EnvSpec`, it returns a
    `torch.nn.Module` that computes features `[B, F]` of observations `[B, ...]`. In Python a function may be given."""

    def __post_init__(self) -> None:
        self._keep_names("wrappers")
        if self.evaluation_wrappers is not None:
            self._keep_names("evaluation_wrappers")
        try:
            object.__setattr__(self, "network", reference_of(self.network) if self.network else "")
        except PartError as error:
            raise ValueError(f"network: {error}") from error
        try:
            object.__setattr__(self, "evaluation_env", id_of(self.evaluation_env, "evaluation_env"))
        except TypeError as error:
            raise ValueError(str(error)) from error
        super().__post_init__()
        if self.network and (self.normalise_observations or self.normalise_rewards):
            raise ValueError(
                f"network is {self.network!r}, which reads observations by itself: leave normalisation out"
            )
        if self.time_limit is not None:
            checks.at_least_one(self, "time_limit")
        if self.frame_stack is not None:
            checks.at_least_one(self, "frame_stack")
        if self.max_env_restarts is not None:
            checks.not_negative(self, "max_env_restarts")

    def _keep_names(self, setting: str) -> None:
        """Replace the classes and functions of a list, which may be given in Python, by their names."""
        given: object = getattr(self, setting)
        if not isinstance(given, tuple | list):
            raise ValueError(f"{setting} is {given!r}, and must be a list of names, each module:name")
        try:
            object.__setattr__(self, setting, tuple(reference_of(one) for one in given))
        except PartError as error:
            raise ValueError(f"{setting}: {error}") from error

    def for_evaluation(self) -> EnvSettings:
        """The settings of the environments that evaluators make."""
        wrappers = self.wrappers if self.evaluation_wrappers is None else self.evaluation_wrappers
        return dataclasses.replace(self, wrappers=wrappers, evaluation_env="", evaluation_wrappers=None)

    def named_parts(self) -> tuple[str, ...]:
        """The names of classes and functions that every process of a run imports, and the environment of evaluators."""
        named = (*self.wrappers, *(self.evaluation_wrappers or ()), self.evaluation_env, self.network)
        return tuple(name for name in named if name)

    def changed(self) -> dict[str, Any]:
        """The settings that differ from the defaults."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {name: value for name, value in vars(self).items() if value != defaults[name]}


DEFAULTS = EnvSettings()
