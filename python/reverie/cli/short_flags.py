"""Flags of `reverie train` that are short for a setting of the preset: the settings that users change most."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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


def refuse_settings(args: Sequence[str], options: Collection[str]) -> None:
    """End the command at a setting, or another library's name of one, that is given as an option and has none.

    `args` begin with the agent; without a known one, nothing is refused here.
    """
    for index, one in enumerate(args):
        flag, _, value = one.partition("=")
        if one == "--":
            return
        if flag.startswith("--") and flag not in options:
            words = _as_setting(args[0], flag, value or _value(args[index + 1 :]), options)
            if words:
                refuse(words)


def _value(following: Sequence[str]) -> str:
    """The value of an option without `=`, from the arguments after it."""
    return following[0] if following and not following[0].startswith("--") else "VALUE"


def _as_setting(agent: str, flag: str, value: str, options: Collection[str]) -> str:
    """The hint for a setting that was given as a flag of its own; empty for anything else."""
    from reverie import agents
    from reverie.agents.env_settings import EnvSettings
    from reverie.agents.run_settings import RunSettings
    from reverie.agents.synonyms import agents_with, has_hint, suggestion, synonym

    name = flag.removeprefix("--").replace("-", "_")
    try:
        found = agents.find(agent)
    except (agents.UnknownAgentError, agents.AgentError):
        return ""
    known = [name for settings in (found.config, RunSettings, EnvSettings) for name in get_type_hints(settings)]
    if setting := name if name in known else synonym(name, known):
        short = [f"--{to.replace('_', '-')}" for to, meant in SHORT_FLAGS.items() if meant == setting]
        form = f"{short[0]} " if short and short[0] in options else f"--set {setting}="
        return f"there is no option {flag}: give {form}{value}"
    return f"there is no option {flag}{suggestion(name, known)}" if has_hint(name) or agents_with(name) else ""


def changed_preset(request: TrainRequest, agent: Any, path: Path | None) -> Preset:
    """The preset of a run, that of the file `path` if there is one, with `--set` and the short flags that were given.

    A flag for which the agent has no setting ends the command, as does a missing device. Raises what
    `Agent.load_preset` raises.
    """
    from reverie.agents import presets
    from reverie.agents.hindsight import without_returns

    settings = _changed_settings(request, agent)
    changes = presets.parsed(settings, agent.presets, agent.config, agent.name)
    preset = agent.load_preset(request.env, path, presets.of_environment(changes, agent.config))
    return without_returns(presets.override(preset, settings, agent.name, request.env), changes)


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
