"""The bounds of returns that some critics have, `v_min` and `v_max`: they are in the unit of the learner's rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reverie.agents import presets
from reverie.agents.environments import EnvSpec
from reverie.agents.settings import Settings

BOUNDS = ("v_min", "v_max")


def require_bounds(config: Any, env: EnvSpec, loaded: Path) -> None:
    """Raise ValueError for the bounds of the preset `loaded` if its rewards have another unit than the run's.

    Rewards that are normalised are in deviations of their returns. A preset's are no longer where the run has layers of
    its own or relabels goals: most returns would be outside of the bounds, and count as these.
    """
    if not isinstance(config, Settings) or not loaded.is_file():
        return
    bounds = [getattr(config, name, None) for name in BOUNDS]
    if None in bounds or any(name in config.without_effect() for name in BOUNDS):
        return
    preset = presets.load(loaded, type(config))
    normalised = env.settings.normalise_rewards
    if preset.environment.normalise_rewards == normalised or bounds != [getattr(preset.config, n) for n in BOUNDS]:
        return
    least, most = bounds
    unit, other = ("in deviations of returns", "not normalised") if not normalised else ("of raw rewards", "normalised")
    remedy = "of this environment" if not normalised else "in deviations, such as -20 and 20"
    raise ValueError(
        f"v_min ({least:g}) and v_max ({most:g}) are the preset's bounds {unit}, and the rewards of this run are"
        f" {other}: set both to the least and the largest discounted return {remedy}"
    )
