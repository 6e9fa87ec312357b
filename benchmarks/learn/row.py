"""One row of results: an agent on an environment, with what seeds, and the command that trains it."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.agents import find

TARGETS, APART, ABLATIONS, DEFAULTS, REPLAY = "targets", "apart", "ablations", "defaults", "replay"
PARTS, CONTROL, OFFLINE, LONG = "parts", "control", "offline", "long"
SEEDS = (100, 101, 102, 103, 104)
"""Seeds of rows that stop at a target. No setting was chosen with them: presets were chosen with seeds below 100."""
LONG_SEEDS = (0, 1, 2, 3, 4)
"""Seeds of rows that take up to an hour a seed, or more."""
NO_VELOCITIES = "no-velocities"
"""The name of presets whose wrapper hides velocities."""
OFFLINE_STEPS = 10_000
"""Rows that a run reads before its first update; from then on there is one for each row."""
OFFLINE_SETTINGS = (f"learning_starts={OFFLINE_STEPS:_}", "capacity=10_500")
"""The data sets have so many steps and the rest of an episode, and a last observation of each episode."""


@dataclass(frozen=True)
class Row:
    """One agent on one environment, with its own preset but for `settings`."""

    name: str
    agent: str
    env_id: str
    reach: float
    """Greedy mean return of the last weights that counts as reached."""
    by: int
    """Environment steps at most."""
    settings: tuple[str, ...] = ()
    """Arguments of `reverie train --set`."""
    config: str = ""
    """The argument of `reverie train --config`; empty for the environment's own preset, or the agent's defaults."""
    runner: str = "local"
    num_shards: int = 1
    group: str = TARGETS
    until_max_steps: bool = False
    """Train on after the target is confirmed: curves of equal length, for comparisons."""
    library: str = "reverie"
    """The agent's library: "reverie", or "sb3" for Stable-Baselines3's agent on the same environment."""
    first: int = 0
    """Environment steps before the first update, where curves are compared at equal updates."""
    every: int = 0
    """Environment steps between the points at which curves of equal length are compared."""
    num_seeds: int = 5
    """The number of seeds with which it is run."""
    data: str = ""
    """The data set of `recordings.RECORDINGS` that it learns from; empty: it plays the environment."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds with which it is run."""
        return (LONG_SEEDS if self.group in (REPLAY, PARTS, CONTROL, LONG) else SEEDS)[: self.num_seeds]

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings that are not the same in all rows from data sets, for tables."""
        return tuple(one for one in self.settings if one not in OFFLINE_SETTINGS)

    @property
    def learner(self) -> str:
        """The agent and its library, its preset by name, and the settings that are not the preset's, for tables."""
        agent = self.agent if self.library == "reverie" else f"{self.library}: {self.agent}"
        preset = (f"--config {self.config}",) if self.config not in ("", NO_VELOCITIES) else ()
        return ", ".join([agent, *(f"`{one}`" for one in (*preset, *self.varied))])

    @property
    def points(self) -> list[int]:
        """Environment steps at which curves of equal length are compared."""
        return list(range(self.first + self.every, self.by + 1, self.every))

    @property
    def task(self) -> str:
        """The environment, for tables."""
        return f"{self.env_id} without velocities" if self.config == NO_VELOCITIES else self.env_id

    @property
    def takes_defaults(self) -> bool:
        """Whether the agent has no preset for the environment."""
        return not self.config and not (find(self.agent).presets / f"{self.env_id.replace('/', '_')}.toml").exists()

    @property
    def where(self) -> str:
        """The environment, the data set if it learns from one, and the settings that are not the preset's."""
        data = f" from {self.data}" if self.data else ""
        return self.task + data + "".join(f", `{setting}`" for setting in self.varied)

    def arguments(self, seed: int, folder: str, dataset: str = "DATASET") -> list[str]:
        """Arguments of the `reverie` command; `dataset` is the path of `data`."""
        data = (f"dataset={dataset}",) if self.data else ()
        settings = (*self.settings, *data, f"target_return={self.reach}", f"max_env_steps={self.by}")
        return [
            *("train", self.agent, "--env", self.env_id, "--seed", str(seed), "--out", folder),
            *(("--config", self.config) if self.config else ()),
            *(word for setting in settings for word in ("--set", setting)),
            *("--runner", self.runner, "--num-shards", str(self.num_shards)),
            *(["--until-max-steps"] if self.until_max_steps else []),
            *("--no-tensorboard", "--json"),
        ]
