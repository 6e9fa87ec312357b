"""`EnvSpec`: the properties of an environment that an agent needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from reverie.agents.env_settings import DEFAULTS, EnvSettings
from reverie.agents.observations import ObservationLeaf

_SPACES = (
    "leaves",
    "obs_shape",
    "obs_dtype",
    "frame_stack",
    "num_actions",
    "action_sizes",
    "action_low",
    "action_high",
)
"""The properties of an `EnvSpec` that a policy depends on; parts of observations before the shape of their rows."""


class SpaceDifference(NamedTuple):
    """The first property of observations or actions that differs between two environments, as parts of a sentence."""

    subject: str
    """Such as `the part pos of observations`, or `num_actions`."""
    this: str
    """What the subject has in one of them, such as `has 6 values`."""
    other: str


@dataclass(frozen=True)
class EnvSpec:
    """The properties of an environment that an agent needs before it makes one."""

    env_id: str
    obs_shape: tuple[int, ...]
    obs_dtype: str
    num_actions: int | None
    """None if the actions are not discrete; `action_space` describes them."""
    action_space: str
    reward_threshold: float | None
    """The return at which Gymnasium counts the environment as solved."""
    action_low: tuple[float, ...] = ()
    """Bounds of continuous actions of shape `[A]`; empty for any others."""
    action_high: tuple[float, ...] = ()
    frame_stack: int | None = None
    """Number of frames that observations stack along the first axis; environments return only the newest frame."""
    reward_bound: float | None = None
    """Rewards are clipped to `[-reward_bound, reward_bound]` for learning; returns use unclipped rewards."""
    settings: EnvSettings = DEFAULTS
    """How the environment is made."""
    leaves: tuple[ObservationLeaf, ...] = ()
    """The arrays of an observation, as `observations` names and stores them; empty for one vector, and for Atari's
    frames."""
    action_sizes: tuple[int, ...] = ()
    """The number of choices for each part of an action (MultiDiscrete, MultiBinary); empty for other actions. Then
    `num_actions` is their product."""
    action_dtype: str = ""
    """The dtype of the environment's actions; empty for float32, and int64 of discrete ones."""
    note: str = field(default="", compare=False)
    """A sentence about observations that networks may read otherwise than their shape suggests; files of policies have
    none."""

    @property
    def parts(self) -> tuple[ObservationLeaf, ...]:
        """The arrays of an observation without its stack of frames: at least one."""
        if self.leaves:
            return self.leaves
        stacked = self.frame_stack is not None
        shape = self.obs_shape[1:] if stacked else self.obs_shape
        return (ObservationLeaf((), "image" if stacked and len(shape) == 2 else "numbers", shape, self.obs_dtype),)

    @property
    def frames_per_stack(self) -> int:
        """Frames that an observation stacks; 1 without stacks."""
        return self.frame_stack or 1

    @property
    def num_inputs(self) -> int:
        """Numbers in an observation."""
        return math.prod(self.obs_shape)

    @property
    def has_images(self) -> bool:
        """Whether observations are images."""
        return any(leaf.kind == "image" for leaf in self.parts)

    @property
    def obs_bytes(self) -> int:
        """Bytes of an observation."""
        return self.num_inputs * np.dtype(self.obs_dtype).itemsize

    @property
    def stored_bytes(self) -> int:
        """Bytes of a step's observations in a table, each frame stored once: an upper estimate."""
        return 2 * self.obs_bytes if self.frame_stack is None else self.obs_bytes // self.frame_stack

    @property
    def action_size(self) -> int:
        """Numbers in a continuous action; 0 for discrete ones."""
        return len(self.action_low)

    @property
    def action_bytes(self) -> int:
        """Bytes of an action in a table: float32 for every number, int64 for a discrete one."""
        return 4 * self.action_size or 8 * max(1, len(self.action_sizes))

    def for_evaluation(self) -> EnvSpec:
        """The description of the environments that evaluators make, whose spaces are the same."""
        return replace(
            self, env_id=self.settings.evaluation_env or self.env_id, settings=self.settings.for_evaluation()
        )

    def difference(self, other: EnvSpec) -> SpaceDifference | None:
        """The first property of observations or actions that differs, or None if a policy fits both."""
        name = next((name for name in _SPACES if getattr(self, name) != getattr(other, name)), None)
        if name is None:
            return None
        found = _difference_of_parts(self.parts, other.parts) if name == "leaves" else None
        return found or _difference_of_values(name, getattr(self, name), getattr(other, name))


def _difference_of_parts(
    these: tuple[ObservationLeaf, ...], others: tuple[ObservationLeaf, ...]
) -> SpaceDifference | None:
    """The first part that differs, and the first of its fields; None if none does."""
    paths, other_paths = [[part.path for part in parts] for parts in (these, others)]
    if paths != other_paths:
        alone = next((path for path in (*paths, *other_paths) if (path in paths) != (path in other_paths)), ())
        if alone == () or () in (*paths, *other_paths):
            return SpaceDifference("the observation", _parts_named(these), _parts_named(others))
        texts = ("exists", "is missing") if alone in paths else ("is missing", "exists")
        return SpaceDifference(f"the part {'/'.join(alone)} of observations", *texts)
    for part, other in zip(these, others, strict=True):
        subject = f"the part {part.name} of observations" if part.path else "the observation"
        for name, form in _FIELDS.items():
            this, that = getattr(part, name), getattr(other, name)
            if this != that:
                return SpaceDifference(subject, *_numbers(form, this, that, name in ("sizes", "starts")))
    return None


_FIELDS = {
    "kind": "is read as {}",
    "shape": "has the shape {}",
    "dtype": "has the dtype {}",
    "sizes": "has {} values",
    "starts": "counts from {}",
    "largest": "has values up to {}",
}
_KINDS = {"numbers": "numbers", "image": "an image", "category": "categories"}


def _parts_named(parts: tuple[ObservationLeaf, ...]) -> str:
    if parts[0].path == ():
        return "is one array"
    return f"has the part{'s' if len(parts) > 1 else ''} {', '.join(part.name for part in parts)}"


def _numbers(form: str, this: Any, that: Any, by_index: bool) -> tuple[str, str]:
    """The values of a field in its form; of one value for each category, the first that differs."""
    if by_index and len(this) == len(that):
        index = next(index for index, pair in enumerate(zip(this, that, strict=True)) if pair[0] != pair[1])
        form += f" at {index}" if len(this) > 1 else ""
        this, that = this[index], that[index]
    this, that = (_KINDS.get(one, one) if isinstance(one, str) else one for one in (this, that))
    return form.format(this), form.format(that)


def _difference_of_values(name: str, this: Any, that: Any) -> SpaceDifference:
    """A property of both; of one number for each part of actions, the first that differs, or their counts."""
    if name.startswith("action_"):
        if len(this) != len(that):
            return SpaceDifference(name, *(f"has {len(one)} numbers" if one else "is empty" for one in (this, that)))
        index = next(index for index, pair in enumerate(zip(this, that, strict=True)) if pair[0] != pair[1])
        name, this, that = f"{name}[{index}]", this[index], that[index]
    return SpaceDifference(name, f"is {this}", f"is {that}")
