"""Whether an agent can play an environment: the checks before anything starts, which name what would fit."""

from __future__ import annotations

from reverie.agents.built_in import for_actions
from reverie.agents.environments import EnvSpec, UnsupportedEnvironmentError

MOST_ENUMERATED = 1024
"""The most actions that an agent of q-values enumerates of a vector of choices: it computes a value for each."""


def require_discrete(
    spec: EnvSpec, agent: str, *, other: str = "", any_space: bool = False, factored: bool = False
) -> None:
    """Raise `UnsupportedEnvironmentError` for an environment that an agent with discrete actions cannot play.

    `other` is the agent that is the same algorithm for continuous actions, if any; `any_space`: whether it reads all
    observations and takes vectors of choices; `factored`: whether it has a head for each part of such a vector, instead
    of a value for each combination.
    """
    if spec.num_actions is None:
        raise UnsupportedEnvironmentError(
            f"actions of {spec.env_id} are {spec.action_space}: {agent} picks one of a set (Discrete){_form(other)};"
            f" continuous actions need {', '.join(for_actions('continuous'))}. CartPole-v1, Acrobot-v1 and"
            " MountainCar-v0 have discrete actions"
        )
    if spec.action_sizes and not any_space:
        raise UnsupportedEnvironmentError(
            f"actions of {spec.env_id} are {spec.action_space}: {agent} picks one number (Discrete); ppo and impala"
            " take vectors of choices"
        )
    if spec.action_sizes and not factored and spec.num_actions > MOST_ENUMERATED:
        raise UnsupportedEnvironmentError(
            f"actions of {spec.env_id} are {spec.action_space}, {spec.num_actions:,} combinations: {agent} computes a"
            f" value for each of at most {MOST_ENUMERATED:,}; ppo and impala have a distribution for each part"
        )
    if not any_space:
        _require_vectors(spec, agent, "CartPole-v1")


def require_continuous(spec: EnvSpec, agent: str, *, other: str = "", any_space: bool = False) -> None:
    """Raise `UnsupportedEnvironmentError` for an environment that an agent with bounded vectors cannot play."""
    if spec.num_actions is not None:
        raise UnsupportedEnvironmentError(
            f"actions of {spec.env_id} are {spec.action_space}: {agent} gives vectors of numbers (a Box){_form(other)};"
            f" discrete actions need {', '.join(for_actions('discrete'))}. Pendulum-v1 and MountainCarContinuous-v0"
            " have continuous actions"
        )
    if not spec.action_low:
        raise UnsupportedEnvironmentError(
            f"actions of {spec.env_id} are {spec.action_space}: {agent} gives vectors [A] within bounds; wrap the"
            " environment with gymnasium.wrappers.TransformAction and a Box of one axis, whose bounds and their"
            " distances are finite in float32 (reverie.agents.wrappers:FlatActions in wrappers makes one axis of a Box"
            " with bounds)"
        )
    if not any_space:
        _require_vectors(spec, agent, "Pendulum-v1")


def _form(other: str) -> str:
    return f", and {other} is its form for these actions" if other else ""


def _require_vectors(spec: EnvSpec, agent: str, fitting: str) -> None:
    """Raises unless observations are vectors: for agents whose networks are not made of `inputs.front`."""
    if spec.leaves or spec.frame_stack is not None:
        kinds = ", ".join(f"{leaf.name} ({leaf.kind} of shape {leaf.shape})" for leaf in spec.parts)
        raise UnsupportedEnvironmentError(
            f"observations of {spec.env_id} are {kinds}: {agent} takes vectors, such as those of {fitting}; its"
            " Agent.any_space is false"
        )
    if spec.settings.network:
        raise UnsupportedEnvironmentError(
            f"network is {spec.settings.network!r}, and {agent} makes its own: its Agent.any_space is false"
        )
    if spec.settings.normalise_observations or spec.settings.normalise_rewards:
        raise UnsupportedEnvironmentError(
            f"normalisation of {spec.env_id} is set, and {agent} does not normalise: its Agent.any_space is false"
        )
