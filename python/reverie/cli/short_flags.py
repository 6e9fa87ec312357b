"""Flags of `reverie train` that are short for a setting of the preset: the settings that users change most."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from reverie.cli.common import refuse
from reverie.cli.train_request import TrainRequest

if TYPE_CHECKING:
    from reverie.agents.core import Preset

SHORT_FLAGS = {
    "num_actors": "num_actors",
    "envs_per_actor": "envs_per_actor",
    "num_learners": "num_learners",
    "num_parameter_shards": "num_parameter_shards",
    "max_steps": "max_env_steps",
    "target_return": "target_return",
    "batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "precision": "precision",
    "device": "device",
    "threads": "threads",
    "compile": "compile",
    "disk": "replay_disk",
    "memory": "replay_memory",
    "journal": "replay_journal",
    "journal_sync": "replay_journal_sync",
}
"""The setting of each short flag, by the name of its parameter."""


def changed_preset(request: TrainRequest, agent: Any, path: Path | None) -> Preset:
    """The preset of a run, that of the file `path` if there is one, with `--set` and the short flags that were given.

    A flag for which the agent has no setting ends the command, as does a missing device. Raises what
    `Agent.load_preset` raises.
    """
    from reverie.agents import presets

    settings = _changed_settings(request, agent)
    changes = presets.parsed(settings, agent.presets)
    preset = agent.load_preset(request.env, path, presets.of_environment(changes, agent.config))
    return presets.override(preset, settings, agent.name)


def _changed_settings(request: TrainRequest, agent: Any) -> list[str]:
    """The changed settings in the form of `presets.override`."""
    from reverie.agents.run_settings import RunSettings

    known = {**get_type_hints(agent.config), **get_type_hints(RunSettings)}
    found = list(request.settings)
    for parameter, value in request.short_flags.items():
        setting = SHORT_FLAGS[parameter]
        flag = "--" + parameter.replace("_", "-")
        if setting not in known:
            refuse(_missing_setting(flag, value, agent, setting, known))
        found.append(f"{setting}={value}")
    return found


def _missing_setting(flag: str, value: object, agent: Any, setting: str, known: Mapping[str, Any]) -> str:
    own = [name for name in known if name.endswith(f"_{setting}")]
    hint = f"it has {', '.join(own)}, for --set" if own else "leave it out; --dry-run lists the settings"
    return f"{flag} is {value}, and {agent.name} has no setting {setting}: {hint}"
