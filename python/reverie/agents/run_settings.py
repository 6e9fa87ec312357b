"""The settings of a run: how long it trains, how it is evaluated and saved, and where its replay is."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from reverie.agents import checks
from reverie.agents.settings import Settings
from reverie.tables import Compression, Table

AUTO = "auto"
"""The value of `device` for a GPU, where there is one that the agent can use."""


@dataclass(frozen=True)
class RunSettings(Settings):
    """The settings of a preset that belong to the run and not to the algorithm."""

    target_return: float | None
    """The mean return at which a greedy evaluation reaches the target; None has no target, and trains to the end."""
    max_env_steps: int
    """Training ends here, whether the target was reached or not."""
    evaluate_every: int
    """Environment steps between two greedy evaluations. Those that are missed during a longer one are left out."""
    threads: int = 1
    """Torch threads of the learner; actors use one."""
    screening_episodes: int = 10
    """Greedy episodes for every point of the learning curve."""
    confirmation_episodes: int = 20
    """Greedy episodes on other seeds, played when the target is reached and at the end: the reported result."""
    checkpoint_every: int = 10_000
    """Environment steps between two checkpoints, if the run keeps any."""
    evaluation_seconds: float = 300.0
    """An evaluation that takes longer is reported; with several processes, checkpoints no longer wait for it."""
    device: str = "cpu"
    """The device of learner and policies: "cpu", "cuda", one of several GPUs as "cuda:1", or "auto" (not on Ray),
    for which the plan of the run takes "cuda" if this machine has a GPU and the agent computes on it, else "cpu"."""
    actor_device: str | None = None
    """The device of the policies of actors and evaluator; None means `device`. "cpu" leaves a GPU to the learner.
    Refused on Ray, where `gpus_per_actor` decides."""
    compile: str = "auto"
    """Whether the learner's updates are compiled, on a GPU recorded as a CUDA graph: "off", "on" (from the second
    update on, on a GPU from the 21st, and an error if they cannot be), or "auto": while it learns, and without it if
    that fails. See `reverie.runners.planning`."""
    prefetch: int | None = None
    """Batches that a thread of the engine draws ahead while the learner learns; 0 draws each on demand. None means 2 if
    learner, actors and replay are separate processes and draws delete nothing from the table, else 0: in one process
    learning and acting take turns, so that the same seed gives the same run."""
    gpus_per_actor: float = 0.0
    """The share of a GPU that each actor and the evaluator request for their policies, on Ray with device "cuda", where
    the learner has a GPU of its own. 0: their policies compute on the CPU."""
    replay_disk: str | None = None
    """A folder to which the replay's chunks move when they do not fit in `replay_memory`, see `reverie.Server(disk=)`;
    None keeps all in memory. Each server of the run has a folder of its own in it."""
    replay_memory: int | None = None
    """Bytes of memory for the chunks of all servers of the run together; only with `replay_disk`, and then None means
    what `reverie.Server` takes."""
    replay_disk_bytes: int | None = None
    """Bytes of the files of all servers in `replay_disk` together; None means as many as the disk has."""
    replay_compression: str | None = None
    """How all tables of the run store steps, see `reverie.Table`; None means each table's own, which is "auto" for
    those of the built-in agents. A resumed run stores new steps so and keeps the others as they are. With `replay_disk`
    and "none", a batch reads only the cells that it needs."""
    replay_journal: str | None = None
    """The place of the journal of the run's servers, see `reverie.Journal`: with one, a killed run continues with the
    replay it had. "run": with the tables in the folder of its checkpoints; else a folder, in which each run has its
    own. None, and "off" for a resumed run, have no journal: a killed run continues with the tables of its newest
    checkpoint."""
    replay_journal_sync: str | None = None
    """When the journal waits for the disk: "os", "interval" or "always"; only with `replay_journal`, and then None is
    "interval"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least_one(self, "max_env_steps", "evaluate_every", "threads", "checkpoint_every")
        checks.at_least_one(self, "screening_episodes", "confirmation_episodes")
        checks.above_zero(self, "evaluation_seconds")
        if self.prefetch is not None:
            checks.not_negative(self, "prefetch")
        checks.one_of(self, "compile", ("off", "auto", "on"))
        for name in ("replay_memory", "replay_disk_bytes"):
            if getattr(self, name) is not None:
                checks.at_least_one(self, name)
                if self.replay_disk is None:
                    raise ValueError(f"{name} is {getattr(self, name)} and there is no replay_disk: give it a folder")
        if self.replay_compression is not None:
            checks.one_of(self, "replay_compression", get_args(Compression))
        if self.replay_journal == "":
            raise ValueError('replay_journal is empty, and must be "run" or a folder')
        if self.replay_journal_sync is not None:
            checks.one_of(self, "replay_journal_sync", ("os", "interval", "always"))
            if self.replay_journal in (None, "off"):
                raise ValueError(
                    f"replay_journal_sync is {self.replay_journal_sync} and there is no replay_journal: give one"
                )
        if self.target_return is not None and math.isnan(self.target_return):
            raise ValueError("target_return is nan, and must be a number: no return reaches it")
        for name in ("device", "actor_device"):
            device = getattr(self, name)
            if device is None or (name == "device" and device == AUTO):
                continue
            if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
                auto = ', or "auto"' if name == "device" else ""
                raise ValueError(f'{name} is {device!r}, and must be "cpu", "cuda" or "cuda:N"{auto}')
        if not 0 <= self.gpus_per_actor <= 1:
            raise ValueError(f"gpus_per_actor is {self.gpus_per_actor}, and must be a share from 0 to 1")
        if self.gpus_per_actor and self.device == "cpu":
            raise ValueError(f'gpus_per_actor is {self.gpus_per_actor} and device "cpu": ask for device "cuda" too')

    @property
    def policy_device(self) -> str:
        """The device of the policies of actors and evaluator."""
        return self.device if self.actor_device is None else self.actor_device

    @property
    def devices(self) -> str:
        """The devices of the run, in words."""
        both = f"{self.device}, policies on {self.policy_device}"
        return self.device if self.policy_device == self.device else both

    def server_disk(self, run_name: str, index: int, num_servers: int) -> dict[str, Any]:
        """The arguments `disk`, `memory_bytes` and `disk_bytes` of the run's server `index`.

        `run_name` is `Topology.name`: the folder is the same after a restart, which removes a killed server's files.
        """
        if self.replay_disk is None:
            return {}
        share = {"memory_bytes": self.replay_memory, "disk_bytes": self.replay_disk_bytes}
        shares = {name: None if size is None else max(1, size // num_servers) for name, size in share.items()}
        return {"disk": os.path.join(self.replay_disk, f"{run_name}-server-{index}"), **shares}

    def stored(self, tables: Sequence[Table]) -> list[Table]:
        """An agent's tables with the compression of the run."""
        if self.replay_compression is None:
            return list(tables)
        return [table.replace(compression=cast("Compression", self.replay_compression)) for table in tables]

    def reached_by(self, mean_return: float) -> bool:
        """Whether this mean return reaches the target. Without a target none does."""
        return self.target_return is not None and mean_return >= self.target_return
