"""The request for one run of `reverie train`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reverie.pages import Page

if TYPE_CHECKING:
    from reverie.runners.planning.topology import RunnerName


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The request for one run. Can be pickled: a sweep sends one to each of its processes."""

    agent: str
    """The agent's name, for `agents.find`."""
    env: str
    seed: int = 0
    config: Path | None = None
    """A preset file, or the name of a preset."""
    settings: tuple[str, ...] = ()
    """Changed settings of the preset, each as `name=value`."""
    short_flags: Mapping[str, Any] = field(default_factory=dict)
    """The short flags that were given, by the names in `short_flags.SHORT_FLAGS`."""
    out: Path | None = None
    """The run's folder; None for a folder named by agent, environment and seed."""
    resume: bool | Literal["must"] = False
    overwrite: bool = False
    """Whether to replace the run in the folder."""
    init_from: Path | None = None
    """The run, checkpoint or file whose weights the run begins with."""
    until_max_steps: bool = False
    runner: RunnerName = "local"
    num_shards: int = 1
    address: str | None = None
    node: tuple[str, ...] = ()
    """The nodes of a cluster to plan for, in the form of `nodes.parse_nodes`."""
    check_memory: bool = True
    tensorboard: bool | None = None
    """Whether to log for TensorBoard; None if `log` has it, or, without a choice, if it is installed."""
    log: tuple[str, ...] | None = None
    """The logs of scalars, of `LOGS`; None for those of the preset, of the run to continue, or the default."""
    project: str | None = None
    tags: tuple[str, ...] | None = None
    quiet: bool = False
    silent: bool = False
    """Print warnings and errors only: a sweep prints the results of its runs."""
    to_stderr: bool = False
    """Report progress on stderr, and leave stdout to the result."""
    page: Page | None = None
    """The page of the run, or of the runs of a sweep; None without one."""
    trial: int | None = None
    """The number of the trial of a search; None elsewhere."""

    @property
    def name(self) -> str:
        """The run's name among the runs of a sweep or a search."""
        return f"seed {self.seed}" if self.trial is None else f"trial {self.trial}, seed {self.seed}"
