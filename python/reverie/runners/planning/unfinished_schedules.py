"""Settings that change over a number of steps or updates which a run does not reach."""

from __future__ import annotations

from typing import Any

from reverie.agents.core import RunSettings, TableNeeds
from reverie.agents.environments import EnvSpec
from reverie.agents.settings import Settings
from reverie.runners.planning.annealing import updates_of_run

LATE = 0.9
"""A schedule of which a run passes less than this share is reported."""


def unfinished_note(config: Any, env: EnvSpec, needs: TableNeeds, run: RunSettings) -> str:
    """A sentence for each schedule that is longer than the run, with the value at its end; else empty.

    Schedules over updates are left out where the settings do not determine how many steps an update takes.
    """
    idle = config.without_effect_in(env) if isinstance(config, Settings) else {}
    lengths = {name: getattr(config, name, 0) for name in (*_OF_STEPS, *_OF_UPDATES) if name not in idle}
    updates = updates_of_run(config, needs, run)
    found = []
    for name, length in lengths.items():
        made = run.max_env_steps if name in _OF_STEPS else updates
        if not length or made is None or made >= (length if name in _STAGES else LATE * length):
            continue
        has = f"has {made:,} environment steps" if name in _OF_STEPS else f"makes about {made:,.0f} updates"
        effect = _effect(name, config, made)
        found.append(f"{effect}, since {name} is {length:,} and the run {has}: lower {name}")
    return "; ".join(found)


_OF_STEPS = ("epsilon_steps", "single_env_decay_steps", "noise_theta_steps", "random_steps")
_OF_UPDATES = ("anneal_updates", "importance_anneal_updates", "imitation_updates")
_STAGES = {
    "noise_theta_steps": "the random numbers of actions are correlated in the whole run",
    "random_steps": "all actions of the actors are uniform",
    "imitation_updates": "the policy learns the actions of the data only",
}
"""Settings that change at their end only, with the effect of a run that does not reach it."""


def _effect(name: str, config: Any, made: float) -> str:
    """The effect of a schedule in a run with `made` steps or updates, which are fewer than it has."""
    if name in _STAGES:
        return _STAGES[name]
    if name == "anneal_updates":
        share = f"{config.annealed(int(made)):.2g} of"
        if hasattr(config, "learning_rate"):
            return f"the learning rate falls to {share} {config.learning_rate:g} only"
        return f"the learning rates fall to {share} their values only"
    if name == "importance_anneal_updates":
        return _moves("importance_exponent", config.importance_exponent, config.importance_at(int(made)))
    if name == "single_env_decay_steps":
        return _moves("epsilon", config.epsilon_alone(0), config.epsilon_alone(int(made)))
    walked = made / config.epsilon_steps
    return _moves(
        "epsilon", config.epsilon_start, config.epsilon_start + walked * (config.epsilon_end - config.epsilon_start)
    )


def _moves(name: str, first: float, last: float) -> str:
    return f"{name} {'falls' if last < first else 'rises'} from {first:g} to {last:.2g} only"
